/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes lines to files that may block: a pipe or a socket that nobody reads, a disk that is stuck.
 * A thread writes and waits, so that nobody else does. Lines that find no room in its queue are
 * lost, and counted: the next line that is written says how many.
 */
#ifndef FS_WRITER_H
#define FS_WRITER_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#define WRITER_LINES 128
/* What the next line says of the lost ones, after their number. */
#define WRITER_LOST "lines of the log are missing here: nobody took them"

struct writer_line {
	int to;	       /* passed on to the writer_fn */
	int priority;  /* likewise */
	char *text;    /* malloc'ed */
	unsigned lost; /* so many lines before it are missing */
};

/* Writes a line. May block for any time. */
typedef void writer_fn(void *ctx, const struct writer_line *line);

struct writer {
	writer_fn *write;
	void *ctx;
	pthread_t thread;
	bool running;	      /* it was started, and not stopped since */
	pthread_mutex_t lock; /* guards the rest */
	pthread_cond_t more, done;
	struct writer_line lines[WRITER_LINES];
	unsigned long put, written; /* so many, ever; those between are in `lines` */
	unsigned lost;
	bool stalled; /* somebody has waited in vain, and no line was written since */
	bool ending;
};

/* Starts the thread, with all signals blocked but SIGSYS. 0 or -errno. */
int writer_start(struct writer *w, writer_fn *write, void *ctx);

/*
 * Takes over `line->text`, and writes it, or counts it as lost. `patient`: waits a second at most
 * until it is written, so that a reader who gets an error finds the reason in the log. After such a
 * wait in vain, nobody waits until a line is written again. Any thread.
 */
void writer_put(struct writer *w, const struct writer_line *line, bool patient);

/*
 * Waits a second at most until all lines are written, then ends the thread. A thread that cannot
 * write is left behind, with its lines: the process has to end then. No thread: does nothing.
 */
void writer_stop(struct writer *w);

/* Writes all bytes, unless an error ends it. Waits for room. */
void writer_bytes(int fd, const char *data, size_t n);

#endif
