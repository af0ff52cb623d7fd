/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fills the page cache with a large file while it is verified, so that its first reader does not
 * transfer it a second time.
 *
 * These pages cannot be read meanwhile: the inode was never open, and its opens wait until
 * push_end() has run. If the bytes were wrong, the pages are dropped before that. For the same
 * reason notify_store cannot deadlock: it waits for locked pages, and without a reader there are
 * none.
 *
 * Reads from the page cache cause no requests, so the use of the pages cannot be seen directly. The
 * last block of each file is left out: a READ of it shows that the file was read to its end. If
 * that does not happen (for example only headers are read), pushing stops until some large file is
 * read to its end again.
 */
#ifndef FS_PUSH_H
#define FS_PUSH_H

#include "mount/mount.h"

/*
 * An observer for carton_pin_observed(), or NULL: the file is small, or larger than half of the
 * free memory or than what the carton may take; it was open before; it is opened with O_DIRECT; or
 * pushing has stopped.
 */
struct carton_observer *push_new(struct mount *m, struct carton_node *node,
				 const struct fuse_file_info *fi);

/* push_saw_read() is called for each READ, push_saw_release() once for each RELEASE. */
void push_saw_read(struct mount *m, struct carton_node *node, uint64_t off, size_t n);
void push_saw_release(struct mount *m, struct carton_node *node);

#endif
