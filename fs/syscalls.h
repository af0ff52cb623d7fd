/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Seccomp: the system calls that this process makes no more. It is killed, by SIGSYS, by one that no
 * honest run makes, and gets an error from one that libraries try and can do without.
 */
#ifndef FS_SYSCALLS_H
#define FS_SYSCALLS_H

#include <stdbool.h>

/* Sanitizers fork, trace and make pages executable: their builds keep the calls for that. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZER 1
#endif

/*
 * For this thread and all that it starts. With `ret_listener`, files opened for reading by a name that
 * is not relative to a directory are left to who has that descriptor (seccomp_unotify(2)); -1 where
 * the kernel cannot do that. 0; -ENOSYS: the kernel has no filters; or -errno.
 */
int syscalls_confine(bool network, int *ret_listener);

/* No new sockets, for all threads that there are. 0 or -errno, as above. */
int syscalls_cut_network(void);

#endif
