/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that looks for credentials whenever it is asked. It is forked before this one is
 * confined, so that it can still run the user's programs and read the user's files.
 *
 * Threads: one at a time.
 */
#ifndef CARTON_HTTP_HELPER_H
#define CARTON_HTTP_HELPER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/cancel.h"

#define HELPER_MAX_OUTPUT (64 * 1024)

struct helper {
	int fd;		     /* to the process */
	struct cancel *stop; /* or NULL */
	bool asked;	     /* and has not answered */
	int64_t asked_ms;    /* last */
};

/* What the process does when it is asked, in a copy of this one's memory. */
struct helper_job {
	/*
	 * Writes an answer to `message`, and returns how long it is. The program may have had other
	 * threads when it was forked, so this neither allocates, logs nor takes a lock.
	 */
	size_t (*find)(void *ctx);
	void *ctx;
	const void *message;
};

/* Starts the process. Firing `stop`, which outlives it, ends all waits; or NULL. 0 or -errno. */
int helper_start(struct helper *h, const struct helper_job *job, struct cancel *stop);

/* The process ends, and a program that it runs. */
void helper_end(struct helper *h);

/* Asks for an answer, unless one is under way. */
void helper_ask(struct helper *h);

/*
 * Takes the answer, of at most n bytes; waits up to `wait_ms` for it, 0: not at all. Returns its
 * length; -EAGAIN: not there yet; -ETIMEDOUT; -EPIPE: the process has ended;
 * -ECANCELED: `stop` was fired.
 */
ssize_t helper_receive(struct helper *h, int wait_ms, void *ret, size_t n);

/*
 * For a job: runs a command of the shell in a group of its own, with `input` as its standard input
 * unless that is NULL, and takes at most n bytes of its output. 0; -ETIMEDOUT: it has not ended
 * after 60 s; -ECANCELED: nobody waits any more; -ECHILD: it has failed; -EFBIG; -errno. The group
 * is killed, unless the command has ended.
 */
int helper_run(const char *command, const char *input, char *ret, size_t n, size_t *ret_n);

#endif
