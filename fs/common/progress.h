/* SPDX-License-Identifier: Apache-2.0 */
/* A progress bar on stderr, if that is a terminal. Used from several threads. */
#ifndef FS_PROGRESS_H
#define FS_PROGRESS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct progress {
	const char *word;     /* before the bar */
	uint64_t done, total; /* bytes; no total, or one that is reached: no bar, no time left */
	/* Writes line `i` of those above the bar, at most `columns` wide, without its end. */
	void (*line)(FILE *f, const void *ctx, size_t i, unsigned columns);
	const void *ctx;
	size_t n_lines;
};

/*
 * Nothing is shown in the first second. Another word, or far fewer bytes than before, begin another
 * bar with a time of its own.
 */
void progress_draw(const struct progress *p);

/* The same as a carton_progress_fn: the bar alone; `ctx` is the word. */
void progress_show(void *ctx, uint64_t done, uint64_t total);

/* Erases it all: before other output, and at the end. */
void progress_clear(void);

/*
 * From now on, a signal that ends the process erases it, too, where stderr is a terminal; that of
 * Ctrl-C also writes `hint`, a line with its end, unless that is NULL. Call it before threads
 * start.
 */
void progress_end_clean(const char *hint);

/* Seconds since some time before. */
double progress_now(void);

#endif
