/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Seccomp filters. A system call that the program never makes kills the process with SIGSYS; one that
 * libraries try but do not need fails with an error.
 */
#ifndef FS_SYSCALLS_H
#define FS_SYSCALLS_H

#include <stdbool.h>

/* Sanitizers fork, trace and make pages executable: their builds keep the calls for that. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZER 1
#endif

/*
 * Confines this thread and all that it starts. With `ret_listener`, each openat(AT_FDCWD) for reading is
 * reported to that descriptor (seccomp_unotify(2)); -1 if the kernel does not support it. 0; -ENOSYS: the
 * kernel has no seccomp filters; or -errno.
 */
int syscalls_confine(bool network, int *ret_listener);

/* Denies new sockets to all threads. 0 or -errno, as above. */
int syscalls_cut_network(void);

#endif
