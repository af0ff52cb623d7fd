/* SPDX-License-Identifier: Apache-2.0 */
/* Datagrams to another process, which may have stopped reading: no sender waits long for it. */
#ifndef FS_DATAGRAM_H
#define FS_DATAGRAM_H

#include <stddef.h>

/*
 * Sends `n` bytes to a connected socket. Waits for room at most a second, and not again until the
 * other side reads: then the datagram is lost. Any thread. 0, -EAGAIN: lost; or -errno.
 */
int datagram_send(int fd, const void *data, size_t n);

#endif
