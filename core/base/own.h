/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks files and directories that another user may have made, in a directory where several can
 * write, such as /tmp.
 */
#ifndef CARTON_BASE_OWN_H
#define CARTON_BASE_OWN_H

#include <stdbool.h>

#define OWN_WHY 128

/*
 * Does the open file or directory belong to the effective uid, and may nobody else write to it?
 * Otherwise it is not trusted. `root`: it may belong to root as well. 0; -EPERM, and ret_why says
 * why ("belongs to uid ..."); or -errno of fstat(2). Any thread.
 */
int own_check(int fd, bool root, char ret_why[OWN_WHY]);

#endif
