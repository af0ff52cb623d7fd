/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes lines to files that may block: a pipe or a socket that nobody reads, a disk that is stuck.
 * A thread writes and waits, so that nobody else does. Lines that find no room in its queue are
 * lost, and counted: the next line that is written says how many.
 */
#ifndef FS_WRITER_H
#define FS_WRITER_H

#include <stdbool.h>
#include <stddef.h>

struct writer;

/* What the next line says of the lost ones, after their number. */
#define WRITER_LOST "lines of the log are missing here: nobody took them"

struct writer_line {
	int priority;  /* passed on to the writer_fn */
	char *text;    /* malloc'ed; NULL: the end, only told of lost lines */
	unsigned lost; /* so many lines before it are missing */
};

/* Writes a line. May block for any time. */
typedef void writer_fn(void *ctx, const struct writer_line *line);

/*
 * Starts a thread, with all signals blocked but SIGSYS. A thread that cannot write may use `ctx`
 * for as long as the process lives. NULL: no thread can be started.
 */
struct writer *writer_start(writer_fn *write, void *ctx);

/*
 * Takes over `line->text`, and writes it, or counts it as lost. `patient`: waits a second at most
 * until it is written, so that a reader who gets an error finds the reason in the log. After such a
 * wait in vain, nobody waits until a line is written again. Any thread.
 */
void writer_put(struct writer *w, const struct writer_line *line, bool patient);

/* Counts lines as lost. Any thread. */
void writer_lost(struct writer *w, unsigned n);

/*
 * Waits a second at most until all lines are written, then ends the thread and frees the writer. A
 * thread that cannot write is left behind with the writer, and ends with the process. NULL: does
 * nothing.
 */
void writer_stop(struct writer *w);

/* Writes all bytes, unless an error ends it. Waits for room. */
void writer_bytes(int fd, const char *data, size_t n);

/*
 * The same without a thread: waits for room for `ms` at most, and then gives up. False: the bytes,
 * or some at the end, were not taken.
 */
bool writer_bytes_soon(int fd, const char *data, size_t n, int ms);

#endif
