/* SPDX-License-Identifier: Apache-2.0 */
/* The life of the process: open the carton, mount, become a daemon, serve requests, unmount. */
#ifndef FS_SESSION_H
#define FS_SESSION_H

#include "process/options.h"

/*
 * Mounts and serves; returns an exit status. In the foreground it returns after the unmount.
 * Otherwise it forks a daemon that serves, and returns as soon as the mount is usable or has
 * failed.
 */
int session_run(struct options *o);

#endif
