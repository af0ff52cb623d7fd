/* SPDX-License-Identifier: Apache-2.0 */
/* cartonctl pack, repack, link and embed. */
#include "ctl/ctl.h"
#include "ctl/destination.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/numbers.h"
#include "common/privacy.h"
#include "common/progress.h"
#include "common/text.h"

#define LINES_FROM 1000000000 /* bytes: a smaller carton is packed too quickly for progress lines */

/* ---- options ---- */

static bool parse_compress(const char *value, struct carton_pack_options *o)
{
	unsigned long level = 0;
	const char *colon = strchr(value, ':');

	if (strcmp(value, "auto") == 0)
		o->compress = CARTON_COMPRESS_AUTO;
	else if (strcmp(value, "store") == 0)
		o->compress = CARTON_COMPRESS_STORE;
	else if (strcmp(value, "zstd") == 0 || strncmp(value, "zstd:", 5) == 0)
		o->compress = CARTON_COMPRESS_ZSTD;
	else
		return false;
	if (colon && (!parse_number(colon + 1, 10, 19, &level) || level == 0))
		return false;
	o->level = (unsigned)level;
	return true;
}

/* Sets what the options say. An exit status. */
static int translate(const struct option_values *v, const char *command,
		     struct carton_pack_options *o)
{
	if (v->compress && !parse_compress(v->compress, o))
		return ctl_usage("--compress=%s: expected auto, store, zstd or zstd:LEVEL from 1 "
				 "to 19",
				 ctl_shown(v->compress));
	if (o->mode == CARTON_LINK && !v->urls)
		return ctl_usage("%s: --url='https://HOST/{sha256}' is missing", command);
	return EXIT_GOOD;
}

/* ---- progress ---- */

void ctl_show_lines(void *ctx, uint64_t done, uint64_t total)
{
	struct ctl_lines *lines = ctx;
	char size[SIZE_TEXT];
	unsigned tenth = total ? (unsigned)(10 * ((double)done / (double)total)) : 0;

	if (isatty(STDERR_FILENO)) {
		progress_show((void *)lines->label, done, total);
	} else if (total >= LINES_FROM && tenth > lines->tenth && done < total) {
		text_line(stderr, "cartonctl: %s: %u%% of %s", lines->label, 10 * tenth,
			  format_size(total, size));
		lines->tenth = tenth;
	}
}

/* ---- commands ---- */

static int run(const struct args *a, const char *source, const char *word,
	       const struct carton_pack_options *o)
{
	struct ctl_log log = { .lock = PTHREAD_MUTEX_INITIALIZER };
	struct carton_options open = a->values.carton;
	struct destination out;
	char hash[65], label[256];
	struct ctl_opening opening = { .word = "download",
				       .log = &log,
				       .label = carton_source_label(source, label, sizeof(label)) };
	int r = destination_open(word, &out);

	if (r != EXIT_GOOD)
		return r;
	carton_log_set(ctl_on_log, &log);
	ctl_show_opens(&open, &opening);
	r = carton_pack(source, out.path, &open, o, hash);
	progress_clear();
	if (r == 0)
		puts(hash);
	else if (!log.problems)
		ctl_failed(label, r);
	if (r < 0)
		destination_failed(&out);
	return ctl_flush(r < 0 ? exit_status(r, EXIT_BAD) : EXIT_GOOD);
}

/* The command called `name`: source, output, and for link paths. */
static int make(enum carton_pack_mode mode, const char *name, char **words, int n,
		const struct args *a)
{
	struct ctl_lines lines = { name, 0 };
	struct carton_pack_options o = {
		.mode = mode,
		.urls = (const char *const *)a->values.urls,
		.paths = n > 2 ? (const char *const *)words + 2 : NULL,
		.objects = a->values.objects,
		.exclude = (const char *const *)a->values.exclude,
		.dereference = a->values.dereference,
		.min_size = a->values.min_size,
		.chunk_index = a->values.chunk_index,
		.align = a->values.align,
		.jobs = a->values.jobs,
		.progress = ctl_show_lines,
		.progress_ctx = &lines,
	};
	char *source;
	int r;

	if (n < 2)
		return ctl_usage("%s: %s is missing", name,
				 n		     ? "OUT" :
				 mode == CARTON_PACK ? "DIRECTORY" :
						       "SOURCE");
	if (n > 2 && mode != CARTON_LINK)
		return ctl_usage("%s: too many arguments: %s", name, ctl_shown(words[2]));
	if (mode == CARTON_PACK && ctl_is_directory(words[1]) && !ctl_is_directory(words[0]))
		return ctl_usage("%s: OUT is a directory: %s; DIRECTORY comes first", name,
				 ctl_shown(words[1]));
	r = translate(&a->values, name, &o);
	if (r != EXIT_GOOD)
		return r;
	source = strdup(words[0]);
	if (!source)
		return ctl_failed(name, -ENOMEM);
	privacy_hide(words[0]);
	r = run(a, source, words[1], &o);
	free(source);
	return r;
}

int ctl_pack(char **words, int n, const struct args *a)
{
	return make(CARTON_PACK, "pack", words, n, a);
}

int ctl_repack(char **words, int n, const struct args *a)
{
	return make(CARTON_REPACK, "repack", words, n, a);
}

int ctl_link(char **words, int n, const struct args *a)
{
	return make(CARTON_LINK, "link", words, n, a);
}

int ctl_embed(char **words, int n, const struct args *a)
{
	return make(CARTON_EMBED, "embed", words, n, a);
}
