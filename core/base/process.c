/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "log.h"
#include "base/util.h"

/* argv is one block of memory. Nothing here allocates, logs or takes a lock. */
void carton_rename_process(const char *shown, const char *name)
{
	int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
	char block[4096];
	size_t size = 0;
	ssize_t n;

	while (fd >= 0 && (n = read(fd, block, sizeof(block))) > 0)
		size += (size_t)n;
	fd_close(fd);
	memset(program_invocation_name, 0, size);
	if (size > 0)
		memcpy(program_invocation_name, shown, MIN(size - 1, strlen(shown)));
	prctl(PR_SET_NAME, name);
}
