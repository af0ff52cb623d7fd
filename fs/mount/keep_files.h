/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of RUNTIME_DIRECTORY, by which the processes of a service tell each other how a mount
 * is (keep.h).
 */
#ifndef FS_KEEP_FILES_H
#define FS_KEEP_FILES_H

#include <stdbool.h>

#define KEEP_MARKER "kept" /* has content while the mount outlives the process */

/* The path of such a file, malloc'ed; NULL: there is no directory, or no memory. */
char *keep_file(const char *name);

/*
 * For the step that mounts. True: a mount at this mountpoint waits for its next process. Do not
 * access its files: no process would answer.
 */
bool keep_is_kept(const char *mountpoint);

/*
 * systemd decides by the exit status of the main process whether it restarts a unit, not by that of
 * a step before it. So the step that mounts (-o mount_only) leaves its exit status in the file
 * `failed` of RUNTIME_DIRECTORY, 0 by removing the file, and the main process ends with it. Without
 * the directory nothing is done.
 */
void keep_leave_status(int status);

/* True: the step that mounts has failed with the exit status *ret. */
bool keep_take_status(int *ret);

#endif
