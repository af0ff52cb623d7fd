/* SPDX-License-Identifier: Apache-2.0 */
#include "process/datagram.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/socket.h>

#define PATIENCE_MS 1000

/* By socket: the last wait for room was in vain, and the other side has not read since. */
static atomic_bool stalled[64];

static int try_once(int fd, const void *data, size_t n)
{
	ssize_t sent;

	do
		sent = send(fd, data, n, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (sent < 0 && errno == EINTR);
	return sent < 0 ? -errno : 0;
}

int datagram_send(int fd, const void *data, size_t n)
{
	atomic_bool *late = &stalled[(unsigned)fd % (sizeof(stalled) / sizeof(stalled[0]))];
	int r = try_once(fd, data, n);

	if (r == -EAGAIN && !atomic_exchange(late, true)) {
		poll(&(struct pollfd){ fd, POLLOUT, 0 }, 1, PATIENCE_MS);
		r = try_once(fd, data, n);
	}
	if (r == 0)
		atomic_store(late, false);
	return r;
}
