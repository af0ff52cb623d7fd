/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An unpacked carton: a directory as a container, under the same rules as a zip file.
 *
 * Every file is opened beneath the root with openat2(RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS):
 * nothing outside of the root is ever read, even if the directory changes while in use.
 */
#ifndef CARTON_ARCHIVE_DIR_H
#define CARTON_ARCHIVE_DIR_H

#include "archive/container.h"

/*
 * Lists the directory `fd`, which the container owns from now on, also on failure. 0; -EBADMSG if
 * it contains something that a carton may not (logged); -EFBIG over MAX_ENTRIES (logged); -ENOMEM;
 * or an error of the file system.
 */
int dir_open(int fd, struct budget *budget, struct container **ret);

#endif
