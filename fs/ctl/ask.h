/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Questions to mounts, whose processes may be stopped: each is asked by a child process, which is
 * given up after CTL_ANSWER_MS. A thread would not do: once the daemon has read a request, not even
 * SIGKILL ends the thread that waits for it, and a process does not end before its threads.
 */
#ifndef FS_CTL_ASK_H
#define FS_CTL_ASK_H

#include <stddef.h>

#define CTL_ANSWER_MS 2000
#define CTL_NO_ANSWER "its process does not answer; is it stopped, or overloaded?"

struct ctl_question {
	int (*ask)(const void *ctx,
		   char **ret); /* in the child: 0 and a malloc'ed text (NULL: none), or -errno */
	const void *ctx;
	int r;	    /* out: the result of `ask`; -ETIMEDOUT; or why no child started */
	char *text; /* out: malloc'ed; NULL if r < 0 */
};

/* Asks all of them at the same time (64 at once). One thread. */
void ctl_ask(struct ctl_question *q, size_t n);

#endif
