/* SPDX-License-Identifier: Apache-2.0 */
#include "notify.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int notify_fd = -1;

void notify_open(void)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	const char *path = getenv("NOTIFY_SOCKET");
	size_t len = path ? strlen(path) : 0;

	if (len < 2 || len >= sizeof(addr.sun_path) || (path[0] != '/' && path[0] != '@'))
		return;
	memcpy(addr.sun_path, path, len);
	if (path[0] == '@')
		addr.sun_path[0] = '\0'; /* an abstract socket */
	notify_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (notify_fd < 0)
		return;
	if (connect(notify_fd, (struct sockaddr *)&addr,
		    (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len)) < 0) {
		close(notify_fd);
		notify_fd = -1;
	}
}

void notify_systemd(const char *state)
{
	/* an error needs no handling: the service manager has a timeout */
	if (notify_fd >= 0)
		(void)!send(notify_fd, state, strlen(state), MSG_NOSIGNAL);
}
