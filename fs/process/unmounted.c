/* SPDX-License-Identifier: Apache-2.0 */
#include "process/unmounted.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "common/mountinfo.h"

static void *watch(void *ctx)
{
	struct unmounted *u = ctx;

	for (;;) {
		struct pollfd p[] = { { fileno(u->mounts), POLLPRI, 0 }, { u->stop[0], 0, 0 } };
		struct mountinfo_copy mount;

		if (mountinfo_find(u->mounts, NULL, u->device, &mount) == 0) {
			u->seen = true;
			u->gone();
			return NULL;
		}
		while (poll(p, 2, -1) < 0)
			;
		if (p[1].revents)
			return NULL;
	}
}

void unmounted_open(struct unmounted *u)
{
	*u = (struct unmounted){ .mounts = fopen("/proc/self/mountinfo", "re"),
				 .stop = { -1, -1 } };
}

void unmounted_watch(struct unmounted *u, const char *device, void (*gone)(void))
{
	sigset_t all, before;

	if (!u->mounts || !*device || pipe2(u->stop, O_CLOEXEC) < 0)
		return;
	snprintf(u->device, sizeof(u->device), "%s", device);
	u->gone = gone;
	/* signals are for the main thread, which they have to wake up */
	sigfillset(&all);
	sigdelset(&all, SIGSYS); /* else a denied call cannot be logged */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	u->running = pthread_create(&u->thread, NULL, watch, u) == 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

bool unmounted_close(struct unmounted *u)
{
	bool seen;

	if (u->stop[1] >= 0)
		close(u->stop[1]);
	if (u->running)
		pthread_join(u->thread, NULL);
	if (u->stop[0] >= 0)
		close(u->stop[0]);
	if (u->mounts)
		fclose(u->mounts);
	seen = u->seen;
	*u = (struct unmounted){ .stop = { -1, -1 } };
	return seen;
}
