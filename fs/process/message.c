/* SPDX-License-Identifier: Apache-2.0 */
#include "process/message.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>

union control {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(2 * sizeof(int))];
};

int message_send(int socket, const void *data, size_t n, const int *fds, size_t n_fds)
{
	union control control = { 0 };
	struct iovec iov = { (void *)data, n };
	struct msghdr message = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct cmsghdr *c;
	ssize_t sent;

	if (n_fds > 0) {
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(n_fds * sizeof(*fds));
		c = CMSG_FIRSTHDR(&message);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(n_fds * sizeof(*fds));
		memcpy(CMSG_DATA(c), fds, n_fds * sizeof(*fds));
	}
	do
		sent = sendmsg(socket, &message, MSG_NOSIGNAL);
	while (sent < 0 && errno == EINTR);
	return sent < 0 ? -errno : 0;
}

ssize_t message_receive(int socket, void *ret_data, size_t n, int ret_fds[2])
{
	union control control;
	struct iovec iov = { ret_data, n };
	struct msghdr message = { .msg_iov = &iov,
				  .msg_iovlen = 1,
				  .msg_control = &control,
				  .msg_controllen = sizeof(control) };
	const struct cmsghdr *c;
	ssize_t got;

	ret_fds[0] = ret_fds[1] = -1;
	do
		got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
	while (got < 0 && errno == EINTR);
	c = got < 0 ? NULL : CMSG_FIRSTHDR(&message);
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
		memcpy(ret_fds, CMSG_DATA(c), c->cmsg_len - CMSG_LEN(0));
	return got < 0 ? -errno : got;
}

/* ---- datagrams ---- */

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
