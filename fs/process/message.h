/* SPDX-License-Identifier: Apache-2.0 */
/* Messages over unix sockets: with descriptors (SCM_RIGHTS), or that no sender waits long for. */
#ifndef FS_MESSAGE_H
#define FS_MESSAGE_H

#include <stddef.h>
#include <sys/types.h>

/* Sends `n` bytes and `n_fds` descriptors, 0 to 2, which the caller still owns. 0 or -errno. */
int message_send(int socket, const void *data, size_t n, const int *fds, size_t n_fds);

/*
 * The size of the next message, 0 at the end, or -errno. ret_fds: its descriptors, or -1; of more
 * than two the kernel closes the rest.
 */
ssize_t message_receive(int socket, void *ret_data, size_t n, int ret_fds[2]);

/*
 * Sends `n` bytes to a process that may have stopped reading. Waits for room at most a second, and
 * not again until the other side reads: then the datagram is lost. Any thread. 0, -EAGAIN: lost; or
 * -errno.
 */
int datagram_send(int fd, const void *data, size_t n);

#endif
