/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `cartonctl fetch`: files into the cache, and whether they are there.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/ctl.h"
#include "common/numbers.h"
#include "common/progress.h"
#include "ctl/term.h"
#include "common/text.h"

/* columns of a line beside the path: with the percentage; and with the sizes */
#define PERCENT_COLUMNS (2 + 2 + 4)
#define OTHER_COLUMNS (PERCENT_COLUMNS + 2 + 10 + 4 + 10)

/* Looks up the files named on the command line; symlinks are followed. */
static int find_files(struct carton *c, const struct args *a, struct carton_node **ret)
{
	int status = EXIT_GOOD;

	for (int i = 0; i < a->n_paths; i++) {
		int one = ctl_resolve(c, a, a->paths[i], &ret[i]);
		struct carton_stat st;

		if (one == EXIT_GOOD) {
			carton_stat(ret[i], &st);
			if (st.kind == CARTON_DIR)
				one = ctl_failed(a->paths[i], -EISDIR);
		}
		status = ctl_both(status, one);
	}
	return status;
}

/* ---- while it runs ---- */

/* A progress_line_fn: the file, and how far it is. */
static void put_line(FILE *f, const void *ctx, size_t i, unsigned columns)
{
	const struct carton_fetching *file = (const struct carton_fetching *)ctx + i;
	char came[SIZE_TEXT], size[SIZE_TEXT];

	/* in a narrow terminal, the path gets the columns of the sizes */
	bool narrow = columns < OTHER_COLUMNS + 16;
	unsigned others = narrow ? PERCENT_COLUMNS : OTHER_COLUMNS;

	term_to(f);
	term_spaces(2);
	term_cell(file->path, columns > others + 2 ? columns - others : 2);
	term_to(stdout);
	format_size(file->came, came);
	if (file->size)
		fprintf(f, "  %3d%%", (int)(100 * file->came / file->size));
	else
		fputs("      ", f);
	if (!narrow)
		fprintf(f, "  %10s%s%s", came, file->size ? " of " : "",
			file->size ? format_size(file->size, size) : "");
}

static void show(void *ctx, const struct carton_fetched *so_far,
		 const struct carton_fetching *running, size_t n_running)
{
	(void)ctx;
	progress_draw(&(struct progress){
		.word = "fetch",
		.done = so_far->came,
		.total = so_far->size,
		.line = put_line,
		.ctx = running,
		/* one file alone is what the bar shows */
		.n_lines = n_running > 1 ? n_running : 0,
	});
}

/* ---- at the end ---- */

static void put_json(const struct carton_fetched *got, ssize_t bad, bool ok)
{
	struct json_writer w = { .f = stdout };

	json_begin(&w, NULL, '{');
	json_bool(&w, "ok", ok);
	json_number(&w, "files", got->files);
	json_number(&w, "local", got->local);
	json_number(&w, "cached", got->cached);
	json_number(&w, "failed", bad < 0 ? got->files - got->local - got->cached : (uint64_t)bad);
	json_number(&w, "fetched_bytes", got->came);
	json_number(&w, "missing_bytes", got->lacks);
	json_end(&w, '}');
	putchar('\n');
}

static void put_summary(const struct args *a, const struct carton_fetched *got, double seconds)
{
	char size[SIZE_TEXT], took[DURATION_TEXT], count[TERM_COUNT];

	if (got->local == got->files) {
		/* from a URL: it was downloaded as a whole */
		puts(!strstr(a->source, "://") ?
			     "nothing to fetch: all files are in the carton" :
		     a->values.carton.offline ?
			     "nothing to fetch: all of the carton is in the cache" :
			     "nothing is left to fetch: its server has no Range requests, or it is "
			     "made of archives, so all of it comes when it is opened");
		return;
	}
	printf("fetched %s in %s, %zu of %s in the cache", format_size(got->came, size),
	       format_duration(seconds, took), got->cached, term_count(got->files, "file", count));
	if (got->local)
		printf(", %zu in the carton", got->local);
	putchar('\n');
}

static void put_failures(const struct carton_fetched *got, ssize_t bad)
{
	char size[SIZE_TEXT];

	if (bad < 0 && bad != -ENOSPC && bad != -ENOENT)
		text_line(stderr, "cartonctl: %s", strerror((int)-bad));
	if (bad > 0)
		text_line(stderr, "cartonctl: %zd file%s could not be fetched", bad,
			  bad == 1 ? "" : "s");
	if (got->lacks)
		text_line(stderr,
			  "cartonctl: there is no room in the cache: %s are missing; allow more "
			  "with --cache-size=SIZE, or choose another disk with --cache-dir=DIR",
			  format_size(got->lacks, size));
}

/* Returns the exit status. */
static int fetch(struct carton *c, const struct args *a, const struct carton_files *files)
{
	double began = progress_now();
	struct carton_fetched got;
	ssize_t bad = carton_fetch(c, files, show, NULL, &got);
	bool ok = bad == 0 && got.local + got.cached == got.files;

	progress_clear();
	put_failures(&got, bad);
	if (a->values.json)
		put_json(&got, bad, ok);
	else
		put_summary(a, &got, progress_now() - began);
	return ok ? EXIT_GOOD : exit_status(bad < 0 ? (int)bad : got.why, EXIT_BAD);
}

int ctl_fetch(struct carton *c, const struct args *a)
{
	struct carton_node **list = calloc((size_t)a->n_paths + 1, sizeof(struct carton_node *));
	const struct carton_files files = { list, (size_t)a->n_paths };
	int status;

	if (carton_is_bare(c) && !carton_is_verified(c)) {
		free(list);
		return ctl_refuse("fetch", "the cache keeps a bare file only by its --sha256=HEX");
	}
	status = list ? find_files(c, a, list) : ctl_failed("fetch", -ENOMEM);
	if (status == EXIT_GOOD)
		status = fetch(c, a, files.n ? &files : NULL);
	free(list);
	return status;
}
