/* SPDX-License-Identifier: Apache-2.0 */
#include "process/unmounted.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
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
			u->gone();
			return NULL;
		}
		while (poll(p, 2, -1) < 0)
			;
		if (p[1].revents)
			return NULL;
	}
}

void unmounted_open(struct unmounted *u, const char *mountpoint)
{
	*u = (struct unmounted){ .mounts = fopen("/proc/self/mountinfo", "re"),
				 .mountpoint = realpath(mountpoint, NULL),
				 .stop = { -1, -1 } };
}

void unmounted_watch(struct unmounted *u, void (*gone)(void))
{
	struct mountinfo_copy mount;
	sigset_t all, before;

	if (!u->mounts || !u->mountpoint ||
	    mountinfo_find(u->mounts, u->mountpoint, NULL, &mount) <= 0 ||
	    pipe2(u->stop, O_CLOEXEC) < 0)
		return;
	strcpy(u->device, mount.device);
	u->gone = gone;
	/* signals are for the main thread, which they have to wake up */
	sigfillset(&all);
	sigdelset(&all, SIGSYS); /* else a denied call cannot be logged */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	u->running = pthread_create(&u->thread, NULL, watch, u) == 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void unmounted_close(struct unmounted *u)
{
	if (u->stop[1] >= 0)
		close(u->stop[1]);
	if (u->running)
		pthread_join(u->thread, NULL);
	if (u->stop[0] >= 0)
		close(u->stop[0]);
	if (u->mounts)
		fclose(u->mounts);
	free(u->mountpoint);
	*u = (struct unmounted){ .stop = { -1, -1 } };
}
