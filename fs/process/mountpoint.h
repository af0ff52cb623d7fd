/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_MOUNTPOINT_H
#define FS_MOUNTPOINT_H

#include <stdbool.h>
#include <sys/types.h>

struct place;

/* True: `path` is the open FUSE device of a mount that mount.fuse3 -o drop_privileges has made. */
bool mountpoint_is_device(const char *path);

/* Makes *path, which is malloc'ed, the path of an open device. 0 or -ENOMEM. */
int mountpoint_set_device(char **path, int fd);

/* Is it an open FUSE device? */
bool mountpoint_is_fuse(int fd);

/*
 * Is a cartonfs mounted at `path`? Reads the list of mounts, and asks nothing of the mount itself.
 */
bool mountpoint_is_cartonfs(const char *path);

/*
 * Creates the directory *path and its missing parents, as mkdir -p does, and makes the path
 * absolute. Does nothing if `path` is there. 0, or -errno, logged.
 */
int mountpoint_create(char **path, mode_t mode);

/*
 * Checks that `path` is a directory, opens it for `place`, and unmounts a dead cartonfs mount that
 * a killed process has left there. *ret_covers: a warning for later, if the carton will
 * cover a mount or files; else untouched. For /dev/fd/N, checks that N is a FUSE device. 0, or
 * -errno, logged with what to do.
 */
int mountpoint_prepare(const char *path, struct place *place, const char **ret_covers);

/*
 * Does libfuse mount without fusermount3? Always as root: root of a container that may not mount
 * has no other way.
 */
bool mountpoint_may_mount(void);

/* Call it after libfuse has logged that it cannot mount: logs what the user lacks, if known. */
void mountpoint_explain(void);

#endif
