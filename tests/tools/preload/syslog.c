/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Appends to the file that SYSLOG_FILE names what a program, into which it is loaded by
 * LD_PRELOAD, would send to syslog: the log of a daemon, of which its mounter is the writer.
 */
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void to_file(const char *format, va_list ap)
{
	const char *path = getenv("SYSLOG_FILE");
	int fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;

	if (fd < 0)
		return;
	vdprintf(fd, format, ap);
	dprintf(fd, "\n");
	close(fd);
}

void syslog(int priority, const char *format, ...)
{
	va_list ap;

	(void)priority;
	va_start(ap, format);
	to_file(format, ap);
	va_end(ap);
}

/* What the C library makes of syslog() in a hardened build. */
void __syslog_chk(int priority, int flag, const char *format, ...);
void __syslog_chk(int priority, int flag, const char *format, ...)
{
	va_list ap;

	(void)priority;
	(void)flag;
	va_start(ap, format);
	to_file(format, ap);
	va_end(ap);
}
