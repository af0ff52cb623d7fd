/* SPDX-License-Identifier: Apache-2.0 */
#include "process/notify.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "process/message.h"

#define PATIENCE_S 30

static int notify_fd = -1;

void notify_open(void)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	const char *path = getenv("NOTIFY_SOCKET");
	const struct timeval patience = { .tv_sec = PATIENCE_S };
	size_t len = path ? strlen(path) : 0;

	if (len < 2 || len >= sizeof(addr.sun_path) || (path[0] != '/' && path[0] != '@'))
		return;
	memcpy(addr.sun_path, path, len);
	if (path[0] == '@')
		addr.sun_path[0] = '\0'; /* an abstract socket */
	notify_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (notify_fd < 0)
		return;
	/* some messages wait for room, but not for ever: a service manager may be stuck */
	setsockopt(notify_fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	if (connect(notify_fd, (struct sockaddr *)&addr,
		    (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len)) < 0) {
		close(notify_fd);
		notify_fd = -1;
	}
}

int notify_store(int fd, const char *name)
{
	char text[64];
	int n = snprintf(text, sizeof(text), "FDSTORE=1\nFDNAME=%s", name);

	return notify_fd < 0 ? -ENOTCONN : message_send(notify_fd, text, (size_t)n, &fd, 1);
}

void notify_store_source(int fd)
{
	notify_systemd("FDSTOREREMOVE=1\nFDNAME=" NOTIFY_SOURCE);
	if (fd >= 0)
		notify_store(fd, NOTIFY_SOURCE);
}

void notify_forget(void)
{
	notify_systemd("FDSTOREREMOVE=1\nFDNAME=" NOTIFY_DEVICE);
	notify_systemd("FDSTOREREMOVE=1\nFDNAME=" NOTIFY_STATE);
	notify_systemd("FDSTOREREMOVE=1\nFDNAME=" NOTIFY_SOURCE);
}

void notify_systemd(const char *state)
{
	/* an error needs no handling: the service manager has a timeout */
	if (notify_fd >= 0)
		datagram_send(notify_fd, state, strlen(state));
}

bool notify_is_journal(void)
{
	const char *stream = getenv("JOURNAL_STREAM");
	unsigned long long dev, ino;
	struct stat st;

	return stream && sscanf(stream, "%llu:%llu", &dev, &ino) == 2 &&
	       fstat(STDERR_FILENO, &st) == 0 && st.st_dev == dev && st.st_ino == ino;
}
