/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Seccomp filters: a list of the system calls that are allowed (syscall_table.h), by the features
 * that the process uses and by three phases. While it opens the carton it may load further filters.
 * Once the carton is open, it cannot; and it loses the network if all content is local. Nothing may
 * be made executable in any phase: libraries are loaded before.
 *
 * All other calls are trapped: the kernel does not execute them, and a signal handler logs the name
 * and the arguments. Calls that no honest code makes then end the process with SIGSYS. All others
 * fail with an errno that libraries cope with; a call that is in no list fails with ENOSYS, as on
 * an older kernel. An update of a library that tries a new system call must not end the mount.
 *
 * If a library blocks SIGSYS, the kernel ends the process at a trapped call. So threads leave it
 * unblocked.
 */
#ifndef FS_SYSCALLS_H
#define FS_SYSCALLS_H

#include <stdbool.h>

/* Sanitizers fork, trace and make pages executable: their builds keep the calls for that. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZER 1
#endif

enum syscall_feature {
	SYSCALLS_NETWORK = 1,	/* something may be fetched */
	SYSCALLS_CACHE = 2,	/* there is a cache directory */
	SYSCALLS_DIRECTORY = 4, /* a directory is read */
	SYSCALLS_OUTPUT = 8,	/* files are written elsewhere: extract, pack */
	SYSCALLS_MOUNT = 16,	/* the daemon */
};

/*
 * Writes the line of a denied call to the log; it has no newline and does not name the program. It
 * runs in a signal handler, on any thread, and calls only what signal-safety(7) lists.
 */
typedef void syscalls_report_fn(const char *line);

/*
 * From now on, each openat(AT_FDCWD) for reading by this thread and all that it starts is reported
 * to the descriptor, and waits until it is answered (seccomp_unotify(2)). 0; -EBUSY: there is such
 * a descriptor already; -ENOSYS: the kernel does not support it; or -errno.
 */
int syscalls_listen(int *ret_listener);

/*
 * Confines this thread and all that it starts to the calls that `features` need. `report` NULL:
 * lines go to stderr. 0; -ENOSYS: the kernel has no seccomp filters; or -errno.
 */
int syscalls_confine(unsigned features, syscalls_report_fn *report);

/*
 * The carton is open: denies all threads the calls that are not needed any more. 0 or -errno, as
 * above.
 */
int syscalls_opened(bool fetches);

#endif
