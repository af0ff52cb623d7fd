/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Has files ready before they are opened, on a thread of its own: the next files when files are
 * opened in the order of the tree, or of the numbers in their names; with verify=background, all
 * files that need not be fetched. An open that has to wait comes first: the work on other files is
 * cancelled, unless it is one of those that are fetched in their order.
 *
 * Of files that are fetched, only large ones are had ahead, three at a time, as far as the cache
 * has room. Where only those chunks are fetched that are read (carton_follow()), they are opened;
 * who reads no more than the beginnings of such files gets those of the next ones all at once.
 */
#ifndef FS_AHEAD_H
#define FS_AHEAD_H

#include "mount/mount.h"

struct ahead;

/*
 * `all`: verifies every file. 0 or -errno. Call ahead_stop() before the carton is stopped, and
 * ahead_free() after it is closed: until then threads of the carton may call the functions below.
 * Both are NULL-safe.
 */
int ahead_new(struct mount *m, bool all, struct ahead **ret);
void ahead_stop(struct ahead *a);
void ahead_free(struct ahead *a);

/*
 * A file was opened, with these flags; or an open of the file has to wait, and other work gives
 * way. `a` may be NULL. Any thread.
 */
void ahead_opened(struct ahead *a, struct carton_node *file, int flags);
void ahead_was_read(struct ahead *a, size_t n); /* bytes of any file were asked for */
void ahead_give_way(struct ahead *a, struct carton_node *file);

#endif
