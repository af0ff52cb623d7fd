/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process: mount, daemon, loop, end.
 */
#ifndef FS_SESSION_H
#define FS_SESSION_H

#include "options.h"

/* As mount(8). */
enum exit_status {
	EXIT_OK = 0,
	EXIT_USAGE = 1,
	EXIT_SYSTEM = 2,
	EXIT_MOUNT = 32,
};

/*
 * Mounts and serves. In the foreground it returns when the mount has ended; else it returns in the
 * calling process as soon as the tree is there, or has failed to be, and a daemon serves on.
 */
int session_run(struct options *o);

#endif
