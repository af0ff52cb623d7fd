/* SPDX-License-Identifier: Apache-2.0 */
#include "process/directory.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

int directory_open(const char *path)
{
	const struct open_how how = { .flags = O_PATH | O_NOFOLLOW | O_CLOEXEC,
				      .resolve = RESOLVE_NO_SYMLINKS };
	int fd = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof(how));

	/* the seccomp filter of a container may not know the call */
	if (fd < 0 && (errno == ENOSYS || errno == EPERM))
		fd = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

int directory_enter(int dir)
{
	int before = open(".", O_PATH | O_CLOEXEC), r;

	if (before < 0 || fchdir(dir) < 0) {
		r = -errno;
		if (before >= 0)
			close(before);
		return r;
	}
	return before;
}

void directory_leave(int before)
{
	if (fchdir(before) < 0)
		(void)!chdir("/");
	close(before);
}
