/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The page cache content of a file: filled at the first open of a small file, dropped when its
 * bytes turn out to be wrong. push.h fills it for large files. Threads: any, except for
 * pages_damaged().
 */
#ifndef FS_PAGES_H
#define FS_PAGES_H

#include "mount/mount.h"

/* Prepares the page cache before the first open of a file is answered; the file is pinned. */
void pages_first_open(struct mount *m, struct carton_node *node);

/*
 * The damaged() callback of the carton of a mount: drops the page cache content of the file, also
 * under its readers. It waits for READs that the kernel has sent, so it must not run on a thread
 * that answers them.
 */
void pages_damaged(void *mount, struct carton_node *file);

#endif
