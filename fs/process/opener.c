/* SPDX-License-Identifier: Apache-2.0 */
#include "process/opener.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

/* .netrc is in HOME, or in the home directory of the password file. */
char *opener_netrc(void)
{
	const char *home = getenv("HOME");
	const struct passwd *pw = home ? NULL : getpwuid(geteuid());
	char *path;

	home = pw ? pw->pw_dir : home;
	return home && asprintf(&path, "%s/.netrc", home) >= 0 ? path : NULL;
}

void opener_init(struct opener *o, const struct carton_options *options, const char *source)
{
	*o = (struct opener){ .fds = { -1, -1 } };
	if (options->offline)
		return;
	if (!options->cacert)
		o->authorities = carton_authorities(source);
	o->files[0] = options->cacert ? options->cacert : o->authorities;
	o->files[1] = options->header_file;
	o->netrc = opener_netrc();
	o->files[2] = o->netrc;
}

void opener_finish(struct opener *o)
{
	free(o->netrc);
	free(o->authorities);
}

static bool is_listed(const struct opener *o, const char *path)
{
	static const char *const etc[] = { "/etc/resolv.conf", "/etc/hosts", "/etc/host.conf",
					   "/etc/nsswitch.conf", "/etc/gai.conf" };

	for (size_t i = 0; i < sizeof(etc) / sizeof(etc[0]); i++)
		if (strcmp(path, etc[i]) == 0)
			return true;
	for (size_t i = 0; i < sizeof(o->files) / sizeof(o->files[0]); i++)
		if (o->files[i] && strcmp(path, o->files[i]) == 0)
			return true;
	return false;
}

/*
 * Reads the name from the memory of the process, and opens that copy: a later change in the memory
 * has no effect.
 */
static int open_listed(const struct opener *o, unsigned long long address)
{
	char path[PATH_MAX] = "";
	struct stat st;
	int fd;

	if (pread(o->fds[1], path, sizeof(path) - 1, (off_t)address) <= 0 || !is_listed(o, path))
		return -1;
	/* a FIFO would keep this process waiting, and /dev/fd/N is another file here */
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0 || (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)))
		return fd;
	close(fd);
	return -1;
}

bool opener_is_listener(int fd)
{
	char path[32], target[32] = "";

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return readlink(path, target, sizeof(target) - 1) > 0 &&
	       strcmp(target, "anon_inode:seccomp notify") == 0;
}

void opener_answer(const struct opener *o)
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
	if (ioctl(o->fds[0], SECCOMP_IOCTL_NOTIF_RECV, &in.q) < 0)
		return;
	fd = open_listed(o, in.q.data.args[1]);
	add.id = out.a.id = in.q.id;
	add.srcfd = (unsigned)fd;
	if (fd >= 0) {
		r = ioctl(o->fds[0], SECCOMP_IOCTL_NOTIF_ADDFD, &add);
		close(fd);
	}
	if (r >= 0)
		return;
	out.a.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
	ioctl(o->fds[0], SECCOMP_IOCTL_NOTIF_SEND, &out.a);
}
