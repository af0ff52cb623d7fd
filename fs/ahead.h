/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verifies files before they are opened, on a thread of its own: the next ones when files are opened in the
 * order of the tree, or, with verify=background, all of them. Nothing is fetched for it. It gives way: an
 * open that has to wait cancels what is under way for other files.
 */
#ifndef FS_AHEAD_H
#define FS_AHEAD_H

#include "mount.h"

struct ahead;

/*
 * `all`: every file. 0 or -errno. It is stopped before the carton is, whose threads may call what is below
 * until it is closed; only then it is freed. Both are NULL-safe.
 */
int ahead_start(struct mount *m, bool all, struct ahead **ret);
void ahead_stop(struct ahead *a);
void ahead_free(struct ahead *a);

/* To be called when a file was opened, and when an open has to wait. `a` may be NULL. Any thread. */
void ahead_opened(struct ahead *a, struct carton_node *file);
void ahead_give_way(struct ahead *a, struct carton_node *file);

#endif
