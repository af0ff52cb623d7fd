/* SPDX-License-Identifier: Apache-2.0 */
/* Becoming a daemon: the process that was started waits until its child has mounted. */
#ifndef FS_DAEMON_H
#define FS_DAEMON_H

#include <stdbool.h>

/*
 * Forks. True in the child, which passes *ret_fd to daemon_ready(). False: *ret_status is the exit
 * status of this process, once the child is ready or has ended, or after a failure.
 */
bool daemon_fork(int *ret_fd, int *ret_status);

/* Puts /dev/null in the place of stdin, stdout and stderr. */
void daemon_drop_terminal(void);

/* Leaves the terminal and the directory, and lets the parent end. Closes `fd`. */
void daemon_ready(int fd);

#endif
