/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small process beside the daemon, forked before the daemon is confined. It keeps the privileges
 * that the daemon gives up, reads nothing of the carton, and does four fixed things on request:
 * mount at the mount point of the command line, unmount it, write a line to syslog, open the files
 * that names are resolved with. It ends with the daemon, however that ends.
 */
#ifndef FS_MOUNTER_H
#define FS_MOUNTER_H

#include <sys/types.h>

#include "options.h"

struct mounter {
	int fd; /* a socket to it */
	pid_t pid;
};

/*
 * Forks it: before any thread is started. It mounts by its copy of `session`, which is not mounted, and
 * logs with the log function of now. 0 or -errno.
 */
int mounter_start(struct fuse_session *session, const struct options *o, struct mounter *ret);

/*
 * Mounts; *ret_fd is then the FUSE device, which the caller owns. 0, or -errno, logged. One thread
 * at a time calls this and mounter_unmount().
 */
int mounter_mount(struct mounter *m, int *ret_fd);

/* Unmounts what mounter_mount() has mounted, lazily. The caller has closed the device. */
void mounter_unmount(struct mounter *m);

/* Writes a line to syslog. Any thread. */
__attribute__((format(printf, 3, 4))) void mounter_log(const struct mounter *m, int priority,
						       const char *fmt, ...);

/* Has it open files for the daemon, as etc_files.h says. The caller still owns both. 0 or -errno. */
int mounter_open_files(struct mounter *m, int listener, int memory);

/* Ends it, and waits for that. */
void mounter_stop(struct mounter *m);

#endif
