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
	FILE *mounts;	  /* /proc/self/mountinfo; NULL: not watched */
	char *mountpoint; /* without symlinks */
	char device[32];  /* its st_dev, as "0:57" */
	void (*gone)(void);
	pthread_t thread;
	int stop[2]; /* a pipe; its end ends the thread */
	bool running;
};

/*
 * Opens the list of mounts, before the sandbox forbids it and before the mount covers `mountpoint`.
 * If that fails, unmounts are not noticed.
 */
void unmounted_open(struct unmounted *u, const char *mountpoint);

/*
 * Starts a thread that calls `gone` once, when this file system has no mount left in this mount
 * namespace. Call it after mounting.
 */
void unmounted_watch(struct unmounted *u, void (*gone)(void));

/* Ends the thread. */
void unmounted_close(struct unmounted *u);

#endif
