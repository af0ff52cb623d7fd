/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Notices a lazy unmount (`umount -l`): the mount has no path any more, but exists while one of its
 * files is open or a call waits. The kernel does not tell the daemon.
 */
#ifndef FS_UNMOUNTED_H
#define FS_UNMOUNTED_H

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>

struct unmounted {
	FILE *mounts;	 /* /proc/self/mountinfo; NULL: not watched */
	char device[32]; /* of the mount: its st_dev, as "0:57" */
	void (*gone)(void);
	pthread_t thread;
	int stop[2]; /* a pipe; its end ends the thread */
	bool running;
	bool seen; /* `gone` was called; only the thread uses this until unmounted_close() */
};

/*
 * Opens the list of mounts, before the sandbox forbids it. If that fails, unmounts are not noticed.
 */
void unmounted_open(struct unmounted *u);

/*
 * Starts a thread that calls `gone` once, when the file system `device` has no mount left in this
 * mount namespace. Call it after mounting. If `device` is "", nothing is watched.
 */
void unmounted_watch(struct unmounted *u, const char *device, void (*gone)(void));

/* Ends the thread. True: no mount was left, and another file system may have the number by now. */
bool unmounted_close(struct unmounted *u);

#endif
