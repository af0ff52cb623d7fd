/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the page cache of the kernel holds of a file: filled at the first open of a small one, dropped when its
 * bytes turn out to be wrong. push.h fills it with large files. Threads: any, but for
 * pages_damaged().
 */
#ifndef FS_PAGES_H
#define FS_PAGES_H

#include "mount.h"

/* What the first open of a file does before it is answered; the file is pinned. */
void pages_first_open(struct mount *m, struct carton_node *node);

/*
 * The damaged() of the carton of a mount: what the kernel has of the file is dropped, also under its readers. Waits
 * until the reads that the kernel has sent are answered: not on a thread that they need.
 */
void pages_damaged(void *mount, struct carton_node *file);

#endif
