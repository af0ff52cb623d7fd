/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded: no file system has unnamed files, as some on the network have none. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/types.h>

int openat64(int at, const char *path, int flags, ...)
{
	int (*real)(int, const char *, int, ...) = dlsym(RTLD_NEXT, "openat64");
	va_list ap;
	mode_t mode;

	va_start(ap, flags);
	mode = va_arg(ap, mode_t);
	va_end(ap);
	if ((flags & O_TMPFILE) == O_TMPFILE) {
		errno = EOPNOTSUPP;
		return -1;
	}
	return real(at, path, flags, mode);
}
