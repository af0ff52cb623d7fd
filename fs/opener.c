/* SPDX-License-Identifier: Apache-2.0 */
#include "opener.h"

#include <fcntl.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static bool is_listed(const char *path)
{
	static const char *const listed[] = { "/etc/resolv.conf", "/etc/hosts", "/etc/host.conf",
					      "/etc/nsswitch.conf", "/etc/gai.conf" };

	for (size_t i = 0; i < sizeof(listed) / sizeof(listed[0]); i++)
		if (strcmp(path, listed[i]) == 0)
			return true;
	return false;
}

/* Opens the name that it has read: a later change in the process's memory has no effect. */
static int open_listed(int memory, unsigned long long address)
{
	char path[32] = "";

	if (pread(memory, path, sizeof(path) - 1, (off_t)address) <= 0 || !is_listed(path))
		return -1;
	return open(path, O_RDONLY | O_CLOEXEC);
}

bool opener_is_listener(int fd)
{
	char path[32], target[32] = "";

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return readlink(path, target, sizeof(target) - 1) > 0 &&
	       strcmp(target, "anon_inode:seccomp notify") == 0;
}

void opener_answer(int listener, int memory)
{
	/* with room for the longer structures of later kernels */
	union {
		struct seccomp_notif q;
		char room[512];
	} in = { .room = { 0 } };
	union {
		struct seccomp_notif_resp a;
		char room[512];
	} out = { .room = { 0 } };
	struct seccomp_notif_addfd add = { .flags = SECCOMP_ADDFD_FLAG_SEND,
					   .newfd_flags = O_CLOEXEC };
	int fd, r = -1;

	/* fails if the waiting thread was killed */
	if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &in.q) < 0)
		return;
	fd = open_listed(memory, in.q.data.args[1]);
	add.id = out.a.id = in.q.id;
	add.srcfd = (unsigned)fd;
	if (fd >= 0) {
		r = ioctl(listener, SECCOMP_IOCTL_NOTIF_ADDFD, &add);
		close(fd);
	}
	if (r >= 0)
		return;
	out.a.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
	ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &out.a);
}
