/* SPDX-License-Identifier: Apache-2.0 */
/* The exit status of cartonfs, which is that of mount(8) and one more, and of cartonctl. */
#ifndef FS_EXIT_STATUS_H
#define FS_EXIT_STATUS_H

#include <errno.h>
#include <string.h>

#include "carton.h"

enum exit_status {
	EXIT_GOOD = 0,
	EXIT_USAGE = 1,
	EXIT_BAD = 1,	  /* cartonctl failed, or found problems or differences */
	EXIT_TROUBLE = 2, /* cartonctl diff could not compare */
	EXIT_DAMAGED = 2, /* cartonctl verify found problems */
	EXIT_SYSTEM = 2,
	EXIT_MOUNT = 32,
	EXIT_LATER = 75,   /* a server is not reached now, or overloaded (EX_TEMPFAIL) */
	EXIT_SIGNAL = 128, /* and the number of the signal that has interrupted it */
};

/* The exit status for -errno: EXIT_LATER if the error may be gone soon, else `other`. */
static inline int exit_status(int error, int other)
{
	return carton_error_passes(error) ? EXIT_LATER : other;
}

#define NO_THREAD                                                                             \
	"no thread or process can be started; raise the limit of them: ulimit -u, TasksMax= " \
	"of a unit, or pids of a container; or that of the memory for their stacks: ulimit -v"

/*
 * -errno as text. Two errors mean more here than strerror() says: -EHOSTUNREACH is also a server
 * whose name is not found, and -EAGAIN is a limit of threads.
 */
static inline const char *error_text(int error)
{
	return error == -EHOSTUNREACH ? "its server is not found, or not reached" :
	       error == -EAGAIN	      ? NO_THREAD :
					strerror(-error);
}

#endif
