/* SPDX-License-Identifier: Apache-2.0 */
/* cartonctl sign: the signature of a carton or a directory. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ctl/ctl.h"
#include "ctl/destination.h"
#include "common/privacy.h"
#include "common/progress.h"
#include "common/text.h"
#include "ctl/term.h"

static void put_json(const struct carton_new_signature *got, const char *out)
{
	struct json_writer w = { .f = stdout };

	json_begin(&w, NULL, '{');
	json_text(&w, "signature", out);
	json_bool(&w, "replaced", got->replaced);
	json_number(&w, "files", got->files);
	json_text(&w, "key", got->hint);
	json_text(&w, "signer", *got->by ? got->by : NULL);
	if (got->ends)
		json_number(&w, "ends", (uint64_t)got->ends);
	json_end(&w, '}');
}

/* Is it a directory that is no carton? Then all its files are signed; else those of MANIFEST. */
static bool is_plain(const char *source)
{
	char manifest[PATH_MAX];

	if (!ctl_is_directory(source))
		return false;
	snprintf(manifest, sizeof(manifest), "%s/MANIFEST", source);
	return access(manifest, F_OK) < 0;
}

static void put_text(const struct carton_new_signature *got, const char *out, bool plain)
{
	time_t ends = (time_t)got->ends;
	char count[TERM_COUNT], day[16];
	struct tm tm;

	/* MANIFEST itself is one more, which others count with its files */
	text_line(stdout, "%s: %s%s signed%s", out, term_count(got->files, "file", count),
		  plain ? "" : " of MANIFEST",
		  got->replaced ? ", in place of an older signature" : "");
	if (!*got->by) {
		text_line(stdout, "key %s", got->hint);
		return;
	}
	gmtime_r(&ends, &tm);
	strftime(day, sizeof(day), "%Y-%m-%d", &tm);
	text_line(stdout, "by %s, until %s", got->by, day);
}

static int sign(const char *source, const struct args *a)
{
	struct ctl_log log = { .lock = PTHREAD_MUTEX_INITIALIZER };
	const struct carton_sign_options options = {
		.key = a->values.key,
		.cert = a->values.cert,
		.passphrase_file = a->values.passphrase_file,
		.dereference = a->values.dereference,
		.progress = progress_show,
		.progress_ctx = (void *)"sign",
	};
	struct carton_options open = a->values.carton;
	struct ctl_opening opening = { .word = "download", .log = &log };
	struct carton_new_signature got;
	/* before the process is confined */
	bool plain = is_plain(source);
	struct destination out = { 0 };
	char label[256];
	int r = a->values.output ? destination_open(a->values.output, &out) : EXIT_GOOD;

	if (r != EXIT_GOOD)
		return r;
	log.source = opening.label = carton_source_label(source, label, sizeof(label));
	carton_log_set(ctl_on_log, &log);
	ctl_show_opens(&open, &opening);
	r = carton_sign(source, out.path, &open, &options, &got);
	progress_clear();
	if (r < 0 && !log.problems)
		ctl_failed(label, r);
	if (r < 0)
		text_line(stderr, "cartonctl: %s was not signed", label);
	else if (a->values.json)
		put_json(&got, out.open ? out.label : got.out);
	else
		put_text(&got, out.open ? out.label : got.out, plain);
	return ctl_flush(r < 0 ? exit_status(r, EXIT_BAD) : EXIT_GOOD);
}

int ctl_sign(char **words, int n, const struct args *a)
{
	char *source;
	int status;

	if (n != 1)
		return n ? ctl_usage("sign: too many arguments: %s", ctl_shown(words[1])) :
			   ctl_usage("sign: SOURCE is missing");
	if (!a->values.key)
		return ctl_usage("sign: --key=FILE is missing");
	source = strdup(words[0]);
	if (!source)
		return ctl_failed("sign", -ENOMEM);
	privacy_hide(words[0]);
	status = sign(source, a);
	free(source);
	return status;
}
