/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Puts a large file into the page cache of the mount while it is verified, so that its first reader need
 * not get it a second time.
 *
 * Nobody can read these pages meanwhile: they belong to an inode that has never been open, and its opens
 * wait until push_end() has run. If the bytes were not right, the pages are gone by then. For the same
 * reason the store cannot deadlock: it waits for locked pages, and without a reader there are none.
 *
 * Pages in the cache cost no request, so nobody sees who reads them. The last block of each file is left
 * out: a READ of it tells that the file was read to its end. Where that does not follow, as when only
 * headers are read, pushing stops until some large file is read to its end again.
 */
#ifndef FS_PUSH_H
#define FS_PUSH_H

#include "mount.h"

/*
 * A tap for carton_pin_tapped(), or NULL: the file is small, or larger than half of the free memory or than
 * what the carton may take; it was open before; it is opened with O_DIRECT; or nobody reads all of a file.
 */
struct carton_tap *push_new(struct mount *m, struct carton_node *node,
			    const struct fuse_file_info *fi);

/* To be called for each READ, and once for each RELEASE. */
void push_saw_read(struct mount *m, struct carton_node *node, uint64_t off, size_t n);
void push_saw_release(struct mount *m, struct carton_node *node);

#endif
