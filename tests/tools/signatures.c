/* SPDX-License-Identifier: Apache-2.0 */
/*
 * signatures OCI_URL CACHE_DIR [WANTED]: prints each signature that is attached to an artifact, and
 * a line feed behind it, until one has the text WANTED. With OFFLINE in the environment, of the
 * cache alone; for no longer than FOR_MS. Status 0: one was taken; 2: none; 1: an error.
 */
#include <stdio.h>
#include <stdlib.h>

#include "carton/opened.h"
#include "log.h"
#include "import/import.h"

static int take(void *ctx, const struct buf *text)
{
	const char *wanted = ctx;

	fwrite(text->data, 1, text->len, stdout);
	putchar('\n');
	return wanted && memmem(text->data, text->len, wanted, strlen(wanted)) != NULL;
}

static void say(void *ctx, enum carton_log_level level, const char *subject, const char *message)
{
	(void)ctx;
	if (level <= CARTON_LOG_NOTICE)
		fprintf(stderr, "%s: %s\n", subject ? subject : "", message);
}

int main(int argc, char **argv)
{
	struct carton_options options = { .cache_dir = argc > 2 ? argv[2] : NULL,
					  .offline = getenv("OFFLINE") != NULL };
	struct repository repo = { 0 };
	struct import im = { 0 };
	const char *for_ms = getenv("FOR_MS");
	struct carton *c;
	int r = 1;

	carton_log_set(say, NULL);
	if (argc < 3 || carton_open(argv[1], &options, &c) < 0)
		return 1;
	im = (struct import){ .fetch = c->fetch.http ? &c->fetch : NULL,
			      .cache = c->cache,
			      .budget = &c->budget,
			      .attached_ms = for_ms ? atoi(for_ms) : 60000 };
	if (oci_lister.parse(argv[1], &repo) == 0)
		r = import_signatures(&im, &(struct import_signed){ &oci_lister, &repo, c->commit,
								    take, argv[3] });
	repository_finish(&repo);
	carton_close(c);
	return r < 0 ? 1 : r > 0 ? 0 : 2;
}
