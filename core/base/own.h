/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files and directories that another user may have made, where several can write: in /tmp, in a
 * shared directory.
 */
#ifndef CARTON_BASE_OWN_H
#define CARTON_BASE_OWN_H

#include <stdbool.h>

#define OWN_WHY 128

/*
 * Is the open file or directory this user's alone: does it belong to the effective uid, and may
 * nobody else write to it? What others can change is not trusted. `root`: it may belong to root as
 * well. 0; -EPERM, and ret_why says what it does ("belongs to uid ..."); or -errno of fstat(2). Any
 * thread.
 */
int own_check(int fd, bool root, char ret_why[OWN_WHY]);

#endif
