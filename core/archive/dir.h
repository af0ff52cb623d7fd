/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An unpacked carton: a directory as a container, under the same rules as a zip file.
 *
 * Every file is opened beneath the root with openat2(RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS), so
 * nothing outside of it is ever read, also when the directory changes while it is in use.
 */
#ifndef CARTON_ARCHIVE_DIR_H
#define CARTON_ARCHIVE_DIR_H

#include "archive/container.h"

/*
 * Lists the directory `fd` (taken over, also on failure). 0; -EBADMSG: it holds what a carton may
 * not (logged); -EFBIG: over MAX_ENTRIES; -ENOMEM; or what the file system says.
 */
int dir_open(int fd, struct container **ret);

#endif
