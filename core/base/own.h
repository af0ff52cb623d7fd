/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owners of files and directories. own_check() looks at files that another user may have made, in a
 * directory where several users can write, such as /tmp. The other functions give the owner the
 * rights that the umask has taken.
 */
#ifndef CARTON_BASE_OWN_H
#define CARTON_BASE_OWN_H

#include <stdbool.h>
#include <sys/types.h>

#define OWN_WHY 128

/*
 * Does the open file or directory belong to the effective uid, and may nobody else write to it?
 * Otherwise it is not trusted. `root`: it may belong to root as well. 0; -EPERM, and ret_why says
 * why ("belongs to uid ..."); or -errno of fstat(2). Any thread.
 */
int own_check(int fd, bool root, char ret_why[OWN_WHY]);

/*
 * Gives the owner of a new file or directory what the umask has taken from him of `mode`; the umask
 * decides for others. 0 or -errno.
 */
int own_give(int fd, mode_t mode);

/*
 * Makes a directory that its owner can enter, list and change as `mode` says, whatever the umask
 * is, by an absolute path or in `at`. 0 or -errno. Any thread.
 */
int own_make_dir(int at, const char *name, mode_t mode);

#endif
