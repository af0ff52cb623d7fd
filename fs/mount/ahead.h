/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verifies files before they are opened, on a thread of its own: the next files when files are
 * opened in the order of the tree; with verify=background, all files. It fetches nothing. An open
 * that has to wait comes first: the work on other files is cancelled.
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
 * A file was opened; or an open of the file has to wait, and other work gives way. `a` may be NULL.
 * Any thread.
 */
void ahead_opened(struct ahead *a, struct carton_node *file);
void ahead_give_way(struct ahead *a, struct carton_node *file);

#endif
