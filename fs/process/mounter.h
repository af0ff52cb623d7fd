/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A helper process, forked before the daemon enters its sandbox. It keeps the privileges that the
 * daemon drops and never reads the carton. On request it does six things: mount at the mountpoint
 * of the command line, unmount that mount, write a line to syslog, set how far the kernel reads
 * ahead, open listed files (opener.h), let the kernel read a file of the cache by itself. It ends
 * with the daemon, or once it can unmount.
 */
#ifndef FS_MOUNTER_H
#define FS_MOUNTER_H

#include <sys/types.h>

#include "process/options.h"
#include "process/place.h"
#include "common/mountinfo.h"

struct mounter {
	int fd; /* a socket to the mounter */
	pid_t pid;
	bool lingers; /* it waits until it can unmount, and is not waited for */
};

/* What the mounter works with. */
struct mounting {
	struct fuse_session *session; /* not mounted yet */
	const struct options *options;
	struct place *place; /* the mountpoint; unused if it is a device */
};

/*
 * Forks the mounter; call this before any thread is started. The mounter mounts its copy of the
 * session, and uses the current log function. 0 or -errno.
 */
int mounter_start(const struct mounting *m, struct mounter *ret);

/*
 * Mounts; *ret_fd is then the FUSE device, which the caller owns, and ret_device what st_dev is in
 * the mount, as "0:57", or "". 0, or -errno, logged. One thread at a time calls this and
 * mounter_unmount().
 */
int mounter_mount(struct mounter *m, int *ret_fd, char ret_device[32]);

/*
 * Unmounts the file system of mounter_mount() lazily, where it is by now. The caller has closed the
 * device. -ENOTEMPTY: something is mounted on it, as *ret_top says (unmount_device()): the mounter
 * goes on until it can unmount, also without the caller, or until SIGTERM. -EINTR: the same, but
 * SIGTERM has come. -ESTALE: it was not found when it was mounted. 0 or another -errno.
 */
int mounter_unmount(struct mounter *m, struct mountinfo_copy *ret_top);

/* Writes a line to syslog. Any thread. */
__attribute__((format(printf, 3, 4))) void mounter_log(const struct mounter *m, int priority,
						       const char *fmt, ...);

/* Writes `subject`, ": " and `line` to syslog. Safe in a signal handler. */
void mounter_log_line(const struct mounter *m, int priority, const char *subject, const char *line);

/*
 * Makes the mounter open files for the daemon (opener.h). The caller still owns both descriptors. 0
 * or -errno.
 */
int mounter_open_files(struct mounter *m, int listener, int memory);

/*
 * Makes the kernel read further ahead, if the mounter has the right to. Call it after INIT is
 * answered: that answer sets an upper limit.
 */
void mounter_read_ahead(struct mounter *m);

/*
 * Registers a file that the kernel may read by itself (passthrough). Returns its backing id (more
 * than 0) or -errno; -EPERM without CAP_SYS_ADMIN. `device` is that of mounter_mount(). Only one
 * thread at a time may call these two functions, and none during mounter_mount().
 */
int mounter_backing_open(const struct mounter *m, int device, int fd);
void mounter_backing_close(const struct mounter *m, int device, int id);

/*
 * The loop of the process: answers requests from `socket`, until the other side closes it (false)
 * or asks to quit (true). A message of any content makes it do no more than the functions above can
 * ask for; each received descriptor is closed. No other thread runs.
 */
bool mounter_serve(const struct mounting *m, int socket);

/* Ends the mounter and waits for its exit, unless something is mounted on the mount. */
void mounter_stop(struct mounter *m);

#endif
