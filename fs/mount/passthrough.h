/* SPDX-License-Identifier: Apache-2.0 */
/*
 * -o passthrough: the kernel reads and maps a file of the cache itself, without a request to this
 * process.
 *
 * Bytes that are read so are not compared with tags. So passthrough is only on if the user asks for
 * it, and only for files of which all was hashed since the mount began. It needs libfuse 3.17,
 * Linux 6.9 and CAP_SYS_ADMIN, which the mounter has if root mounts; where one is missing, files
 * are read as without the option.
 *
 * An inode is open in one way at a time, so the first open decides, until the last close. Any
 * thread.
 */
#ifndef FS_PASSTHROUGH_H
#define FS_PASSTHROUGH_H

#include "carton.h"
#include "process/fuse.h"
#include "process/mounter.h"

struct passthrough;

/*
 * `session` and `mounter` outlive it; the session is mounted before the first open. 0 or -ENOMEM.
 */
int passthrough_new(struct fuse_session *session, struct mounter *mounter,
		    struct passthrough **ret);
void passthrough_free(struct passthrough *p); /* NULL-safe */

/*
 * Asks the kernel for passthrough, in INIT. If the kernel has none, the functions below do nothing.
 */
void passthrough_negotiate(struct passthrough *p, struct fuse_conn_info *conn);

/*
 * Counts an open of a pinned file. True: it is passed through, and *fi is set for that.
 * passthrough_close() is called once for each, also if the open is not answered.
 */
bool passthrough_open(struct passthrough *p, struct carton_node *file, struct fuse_file_info *fi);
void passthrough_close(struct passthrough *p, const struct carton_node *file);

/* Is the file open, and passed through? */
bool passthrough_has(struct passthrough *p, const struct carton_node *file);

/* Can files be passed through, and how many are open so? */
bool passthrough_count(struct passthrough *p, uint64_t *ret_files);

#endif
