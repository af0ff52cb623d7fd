/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Readers survive the process. The service manager keeps the FUSE device open, and so the
 * connection, while the process is killed and started anew; the kernel keeps the requests. The next
 * process goes on:
 *
 *  - It gets the device, and a memfd with the INIT request and reply of the first process. INIT is
 *    answered only once in the life of a connection, so libfuse gets the old request again, and its
 *    reply is not sent.
 *  - The inode numbers of files in the carton are the same (mount_ino()), if the carton is: layout
 *    and options are compared. Generated files are found by their paths (inode_notes.h), if the
 *    program has the same version: else their names are looked up anew, and a program that has one
 *    open gets ESTALE.
 *  - Each read of a file that an earlier process has opened pins it, and so verifies it.
 *  - The kernel sends requests again that were read and not answered (FUSE_NOTIFY_RESEND, Linux
 *    6.9). On an older kernel the mount does not survive: such requests would wait for ever.
 *
 * Only for the main process of a unit with RuntimeDirectory= and FileDescriptorStoreMax=3. The file
 * `kept` of that directory has content while the mount outlives the process; the unit tests for it.
 */
#ifndef FS_KEEP_H
#define FS_KEEP_H

#include "mount/mount.h"

struct options;
struct keep_state;

struct keep {
	bool wanted;		  /* the device stays with the service manager */
	bool resumed;		  /* an earlier process has served the mount */
	int memory, marker;	  /* the memfd, and the file `kept`; -1: none */
	int source;		  /* the carton, open for reading; -1: it was not passed */
	struct keep_state *state; /* mapped */
	int failed;		  /* -errno, logged: the next process has to mount anew */
	struct mount *mount;
};

/*
 * Takes the descriptors that the service manager passes (LISTEN_FDS). *mountpoint (malloc'ed), if
 * it is a device, is replaced by the passed one. 0, or -errno, logged. `k` is set in any case.
 */
int keep_take(struct keep *k, char **mountpoint);

/*
 * Call it before the sandbox and after notify_open(). Either drops the descriptors that the service
 * manager keeps, or gives it the memfd for the next process.
 */
void keep_open(struct keep *k);

/*
 * When the first process that serves this mount began, in seconds since 1970. Call it after
 * keep_open().
 */
int64_t keep_first(const struct keep *k);

/*
 * Call it between mounting and serving. Continues the session of the earlier process, or saves the
 * state for the next one. 0; or -errno, logged, such as after another carton was mounted.
 */
int keep_begin(struct keep *k, struct mount *m, const struct options *o);

/* The process ends normally, and the mount with it. */
void keep_end(struct keep *k);

#endif
