/* SPDX-License-Identifier: Apache-2.0 */
/* cartonctl push: a carton to a registry of OCI artifacts. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "ctl/ctl.h"
#include "common/numbers.h"
#include "common/progress.h"
#include "common/text.h"
#include "ctl/term.h"

#define MAX_SIGNATURE_FILE (16 << 20) /* what is read of one at a registry */

static void put_json(const struct carton_pushed *got)
{
	struct json_writer w = { .f = stdout };

	json_begin(&w, NULL, '{');
	json_text(&w, "digest", got->digest);
	json_text(&w, "pin", got->pin);
	json_number(&w, "files", got->files);
	json_number(&w, "blobs", got->blobs);
	json_number(&w, "bytes", got->bytes);
	json_number(&w, "sent", got->sent);
	json_number(&w, "sent_bytes", got->sent_bytes);
	json_bool(&w, "signature", got->has_signature);
	json_end(&w, '}');
	putchar('\n');
}

/* The pin is the last line. */
static void put_text(const struct carton_pushed *got, double seconds)
{
	char count[TERM_COUNT], size[SIZE_TEXT], sent[SIZE_TEXT], took[DURATION_TEXT];

	printf("%s, %s: sent %" PRIu64 " of %" PRIu64 " blobs, %s, in %s%s\n",
	       term_count(got->files, "file", count), format_size(got->bytes, size), got->sent,
	       got->blobs, format_size(got->sent_bytes, sent), format_duration(seconds, took),
	       got->has_signature ? "; a signature is attached" : "");
	puts(got->pin);
}

int ctl_push_prepare(struct args *a)
{
	struct stat st;
	FILE *f = NULL;
	char *path;
	int r = 0;

	if (asprintf(&path, "%s.sig", a->source) < 0)
		return -ENOMEM;
	if (stat(path, &st) == 0 && S_ISREG(st.st_mode) && !(f = fopen(path, "re")))
		r = -errno;
	if (f && st.st_size > MAX_SIGNATURE_FILE)
		r = -EFBIG;
	if (f && r == 0 && !(a->signature = malloc((size_t)st.st_size + 1)))
		r = -ENOMEM;
	if (f && r == 0)
		a->signature_len = fread(a->signature, 1, (size_t)st.st_size, f);
	if (f)
		fclose(f);
	if (r < 0)
		ctl_failed(path, r);
	free(path);
	return r;
}

int ctl_push(struct carton *c, const struct args *a)
{
	struct ctl_lines lines = { "push", 0 };
	const struct carton_push_options options = { .progress = ctl_show_lines,
						     .progress_ctx = &lines,
						     .mount_from = a->values.mount_from,
						     .signature = a->signature,
						     .signature_len = a->signature_len };
	double began = progress_now();
	struct carton_pushed got;
	int r = carton_push(c, a->paths[0], &options, &got);

	progress_clear();
	if (r < 0) {
		text_line(stderr, "cartonctl: %s was not pushed", ctl_shown(a->paths[0]));
		return exit_status(r, EXIT_BAD);
	}
	if (a->values.json)
		put_json(&got);
	else
		put_text(&got, progress_now() - began);
	return EXIT_GOOD;
}
