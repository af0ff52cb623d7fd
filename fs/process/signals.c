/* SPDX-License-Identifier: Apache-2.0 */
#include "process/signals.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/time.h>

#include "process/fuse.h"

#define REPEAT_US 20000

static struct fuse_session *served;
/* atomic: any thread may handle a signal */
static bool ended, came;

static void repeat_after(long us)
{
	struct itimerval timer = { { 0, us }, { 0, us } };

	setitimer(ITIMER_REAL, &timer, NULL);
}

/*
 * Also handles SIGALRM, which may come to any thread that does not block it: read(2) of a worker
 * fails with EINTR.
 */
static void end_loop(int signal)
{
	bool over = __atomic_load_n(&ended, __ATOMIC_ACQUIRE);
	int saved = errno;

	(void)signal;
	__atomic_store_n(&came, true, __ATOMIC_RELEASE);
	if (!over)
		fuse_session_exit(served);
	/* the timer may have been set by a thread that was about to when the loop ended */
	repeat_after(over ? 0 : REPEAT_US);
	errno = saved;
}

static int catch_one(int signal, void (*handler)(int))
{
	struct sigaction old, new = { .sa_handler = handler };

	if (sigaction(signal, NULL, &old) < 0)
		return -errno;
	if (old.sa_handler == SIG_IGN)
		return 0;
	return sigaction(signal, &new, NULL) < 0 ? -errno : 0;
}

int signals_catch(struct fuse_session *se)
{
	static const int ends[] = { SIGINT, SIGTERM, SIGHUP, SIGALRM };
	int r = catch_one(SIGPIPE, SIG_IGN);

	served = se;
	for (size_t i = 0; r == 0 && i < sizeof(ends) / sizeof(ends[0]); i++)
		r = catch_one(ends[i], end_loop);
	return r;
}

bool signals_came(void)
{
	return __atomic_load_n(&came, __ATOMIC_ACQUIRE);
}

void signals_loop_ended(void)
{
	__atomic_store_n(&ended, true, __ATOMIC_RELEASE);
	repeat_after(0);
}
