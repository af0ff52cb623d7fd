/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of the process: open the carton, mount, become a daemon, serve requests, unmount.
 */
#ifndef FS_SESSION_H
#define FS_SESSION_H

#include "options.h"

/* The same as those of mount(8), and one more. */
enum exit_status {
	EXIT_OK = 0,
	EXIT_USAGE = 1,
	EXIT_SYSTEM = 2,
	EXIT_MOUNT = 32,
	EXIT_LATER = 75, /* a server cannot be reached now (EX_TEMPFAIL) */
};

/*
 * Mounts and serves; returns an exit status. In the foreground it returns after the unmount. Otherwise
 * it forks a daemon that serves, and returns as soon as the mount is usable or has failed.
 */
int session_run(struct options *o);

#endif
