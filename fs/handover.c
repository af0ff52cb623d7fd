/* SPDX-License-Identifier: Apache-2.0 */
#include "handover.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "log.h"
#include "message.h"
#include "mountpoint.h"
#include "numbers.h"

#define VARIABLE "_FUSE_COMMFD"

/* Returns a connected socket, -ENOENT if `path` is no socket, or -errno. */
static int connect_to(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct stat st;
	int fd, r = 0;

	if (stat(path, &st) < 0 || !S_ISSOCK(st.st_mode))
		return -ENOENT;
	if (strlen(path) >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	strcpy(address.sun_path, path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	while (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0 && r == 0)
		r = errno == EINTR ? 0 : -errno;
	if (r < 0)
		close(fd);
	return r < 0 ? r : fd;
}

/* The descriptor of the next message. */
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
static int find_socket(const char *mountpoint, const char **ret_from)
{
	const char *value = getenv(VARIABLE);
	unsigned long n;

	*ret_from = mountpoint;
	if (!value)
		return connect_to(mountpoint);
	*ret_from = VARIABLE;
	return parse_number(value, 10, INT_MAX, &n) ? (int)n : -EINVAL;
}

int handover_receive(char **mountpoint)
{
	const char *from;
	char *path;
	int socket, fd;

	if (mountpoint_is_device(*mountpoint))
		return 0;
	socket = find_socket(*mountpoint, &from);
	if (socket == -ENOENT)
		return 0;
	fd = socket < 0 ? socket : receive(socket);
	if (socket >= 0)
		close(socket);
	/* libfuse uses it too, for fusermount3 */
	unsetenv(VARIABLE);
	if (fd < 0) {
		carton_log(CARTON_LOG_ERROR, from, "no FUSE device comes from there: %s",
			   fd == -EPROTO ? "there is no descriptor in the message" : strerror(-fd));
		return fd;
	}
	if (asprintf(&path, "/dev/fd/%d", fd) < 0)
		return -ENOMEM;
	free(*mountpoint);
	*mountpoint = path;
	return 0;
}
