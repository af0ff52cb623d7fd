/* SPDX-License-Identifier: Apache-2.0 */
#include "process/handover.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "log.h"
#include "process/message.h"
#include "process/mountpoint.h"
#include "common/numbers.h"

#define VARIABLE "_FUSE_COMMFD"

static bool is_trusted(uid_t uid)
{
	return uid == 0 || uid == geteuid();
}

/*
 * Why the step from directory `at` to `next` cannot be trusted, or NULL. In a sticky directory
 * other users cannot rename or remove the files of this user and of root.
 */
static const char *fault_of_step(int at, int next)
{
	struct stat dir, st;

	if (fstat(at, &dir) < 0 || fstat(next, &st) < 0)
		return "cannot be examined";
	if (S_ISLNK(st.st_mode))
		return "is a symlink";
	if (!is_trusted(st.st_uid))
		return "belongs to another user";
	if (!is_trusted(dir.st_uid) ||
	    ((dir.st_mode & (S_IWGRP | S_IWOTH)) && !(dir.st_mode & S_ISVTX)))
		return "is in a directory that another user can change";
	return NULL;
}

/*
 * Opens the last component of an absolute path, O_PATH. -EPERM, logged, if another user could have
 * put it there.
 */
static int open_trusted(const char *path)
{
	const int flags = O_PATH | O_NOFOLLOW | O_CLOEXEC;
	int at = open("/", flags | O_DIRECTORY), r = at < 0 ? -errno : 0;
	char name[NAME_MAX + 1];
	const char *fault;

	for (const char *p = path + strspn(path, "/"); r == 0 && *p; p += strspn(p, "/")) {
		size_t n = strcspn(p, "/");
		int next;

		if (n >= sizeof(name)) {
			r = -ENAMETOOLONG;
			break;
		}
		memcpy(name, p, n);
		name[n] = '\0';
		p += n;
		next = openat(at, name, flags);
		if (next < 0) {
			r = -errno;
			break;
		}
		fault = fault_of_step(at, next);
		close(at);
		at = next;
		if (fault) {
			carton_log(CARTON_LOG_ERROR, path,
				   "no FUSE device is taken from this socket: %.*s %s; pass the "
				   "device as /dev/fd/N or over " VARIABLE,
				   (int)(p - path), path, fault);
			r = -EPERM;
		}
	}
	if (r < 0 && at >= 0)
		close(at);
	return r < 0 ? r : at;
}

/*
 * Connects to the socket that is open as `fd`, even if another file has its name by now, and asks
 * the kernel which user listens.
 */
static int connect_to(const char *path, int fd)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), r = s < 0 ? -errno : 1;
	struct ucred peer;
	socklen_t len = sizeof(peer);

	snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d", fd);
	while (r == 1 && connect(s, (struct sockaddr *)&address, sizeof(address)) < 0)
		r = errno == EINTR ? 1 : errno == EPERM ? -EACCES : -errno;
	if (r == 1 && getsockopt(s, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0)
		r = -errno;
	if (r == 1 && !is_trusted(peer.uid)) {
		carton_log(CARTON_LOG_ERROR, path,
			   "no FUSE device is taken from this socket: uid %u listens there, not %u "
			   "or root",
			   (unsigned)peer.uid, (unsigned)geteuid());
		r = -EPERM;
	}
	if (r < 0 && s >= 0)
		close(s);
	return r < 0 ? r : s;
}

/* Returns a connected socket, -ENOENT if `path` is no socket, or -errno. */
static int find_listener(const char *path)
{
	struct stat st;
	int fd, r;

	if (stat(path, &st) < 0 || !S_ISSOCK(st.st_mode))
		return -ENOENT;
	fd = open_trusted(path);
	if (fd < 0)
		return fd == -ENOENT ? -ESTALE : fd;
	r = fstat(fd, &st) < 0 ? -errno : !S_ISSOCK(st.st_mode) ? -ESTALE : connect_to(path, fd);
	close(fd);
	return r;
}

/* Receives the descriptor of the next message. */
static int receive(int socket)
{
	char text[4096];
	int fds[2];
	ssize_t n = message_receive(socket, text, sizeof(text), fds);

	if (fds[1] >= 0)
		close(fds[1]);
	return n < 0 ? (int)n : fds[0] < 0 ? -EPROTO : fds[0];
}

/* The socket, or -errno; -ENOENT: there is none. `ret_from` is what to call it. */
static int find_socket(const char *given, const char **ret_from)
{
	const char *value = getenv(VARIABLE);
	unsigned long n;

	*ret_from = given;
	if (!value)
		return find_listener(given);
	*ret_from = VARIABLE;
	return parse_number(value, 10, INT_MAX, &n) ? (int)n : -EINVAL;
}

int handover_receive(const char *given, char **mountpoint)
{
	const char *from;
	int socket, fd;

	if (mountpoint_is_device(*mountpoint))
		return 0;
	socket = find_socket(given, &from);
	if (socket == -ENOENT)
		return 0;
	fd = socket < 0 ? socket : receive(socket);
	if (socket >= 0)
		close(socket);
	/* libfuse uses it too, for fusermount3 */
	unsetenv(VARIABLE);
	if (fd == -EPERM)
		return fd; /* logged */
	if (fd < 0) {
		carton_log(CARTON_LOG_ERROR, from,
			   "cannot receive a FUSE device from this socket: %s",
			   fd == -EPROTO ? "there is no descriptor in the message" : strerror(-fd));
		return fd;
	}
	return mountpoint_set_device(mountpoint, fd);
}
