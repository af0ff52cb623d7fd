/* SPDX-License-Identifier: Apache-2.0 */
/* cartonctl import: a repository of a hub as a carton of some KB. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/ctl.h"
#include "ctl/destination.h"
#include "common/numbers.h"
#include "common/privacy.h"
#include "common/progress.h"
#include "common/text.h"
#include "ctl/term.h"

static void put_json(const struct carton_imported *got)
{
	struct json_writer w = { .f = stdout };

	json_begin(&w, NULL, '{');
	json_text(&w, "commit", *got->commit ? got->commit : NULL);
	json_text(&w, "model_hash", got->model_hash);
	json_number(&w, "files", got->files);
	json_number(&w, "bytes", got->bytes);
	json_number(&w, "linked", got->linked);
	json_number(&w, "shared", got->shared);
	json_number(&w, "carton_bytes", got->size);
	json_end(&w, '}');
}

int ctl_parse_runner(char *text, struct carton_runner *ret)
{
	char *at = strrchr(text, '@');
	unsigned long compat;

	ret->name = text;
	if (!at)
		return EXIT_GOOD;
	if (at == text || !parse_number(at + 1, 10, UINT_MAX, &compat) || !compat)
		return ctl_usage("--runner=%s: expected NAME or NAME@VERSION, a number",
				 ctl_shown(text));
	*at = '\0';
	ret->compat = (unsigned)compat;
	return EXIT_GOOD;
}

/* The hash is the last word, as that of verify. */
static void put_text(const struct carton_imported *got, const char *out, bool also)
{
	char count[TERM_COUNT], size[SIZE_TEXT];

	if (*got->commit)
		printf("commit %s\n", got->commit);
	printf("%s, %s; %" PRIu64 " of them behind URLs", term_count(got->files, "file", count),
	       format_size(got->bytes, size), got->linked);
	if (also)
		printf(", %" PRIu64 " also at other repositories", got->shared);
	putchar('\n');
	text_line(stdout, "%s: %s", out, format_size(got->size, size));
	printf("model %s\n", got->model_hash);
}

static int import(const char *source, const char *word, const struct args *a)
{
	struct ctl_log log = { .lock = PTHREAD_MUTEX_INITIALIZER };
	struct ctl_lines lines = { "import", 0 };
	struct carton_import_options options = {
		.runner.framework = a->values.framework,
		.also = (const char *const *)a->values.also,
		.chunk_index = a->values.chunk_index,
		.progress = ctl_show_lines,
		.progress_ctx = &lines,
	};
	struct carton_options open = a->values.carton;
	struct carton_imported got;
	struct destination out;
	char label[256];
	struct ctl_opening opening = { .word = "import",
				       .log = &log,
				       .label = carton_source_label(source, label, sizeof(label)) };
	int r;

	if (a->values.runner && ctl_parse_runner(a->values.runner, &options.runner) != EXIT_GOOD)
		return EXIT_USAGE;
	r = destination_open(word, &out);
	if (r != EXIT_GOOD)
		return r;
	carton_log_set(ctl_on_log, &log);
	ctl_show_opens(&open, &opening);
	r = carton_import(source, out.path, &open, &options, &got);
	progress_clear();
	if (r < 0 && !log.problems)
		ctl_failed(label, r);
	if (r < 0)
		destination_failed(&out);
	else if (a->values.json)
		put_json(&got);
	else
		put_text(&got, out.label, options.also);
	return ctl_flush(r < 0 ? exit_status(r, EXIT_BAD) : EXIT_GOOD);
}

int ctl_import(char **words, int n, const struct args *a)
{
	char *source;
	int status;

	if (n < 2)
		return ctl_usage("import: %s is missing", n ? "OUT" : "REPOSITORY");
	if (n > 2)
		return ctl_usage("import: too many arguments: %s", ctl_shown(words[2]));
	source = strdup(words[0]);
	if (!source)
		return ctl_failed("import", -ENOMEM);
	privacy_hide(words[0]);
	status = import(source, words[1], a);
	free(source);
	return status;
}
