/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading a local file ahead of its readers, from the disk to the page cache. A mapping's reader
 * has the kernel send small READs, which threads answer in any order: read like that, a disk waits
 * for each of them. Here the streams (ahead.h) of an object are seen, and the kernel is told of the
 * MiBs behind them. Streams towards the start count, too: memcpy(3) of glibc begins at the end if
 * source and target are at the same place in their pages. Nothing is verified here: object.c
 * verifies the chunks of these MiBs, and a later read of them is still compared with their tags.
 *
 * Threads: any.
 */
#ifndef CARTON_CONTENT_DISK_AHEAD_H
#define CARTON_CONTENT_DISK_AHEAD_H

#include <stddef.h>
#include <stdint.h>

struct disk_ahead;

/* NULL: no memory, then nothing is read ahead. */
struct disk_ahead *disk_ahead_new(void);

/* Bytes [off, off+n); n is 0: none. */
struct disk_range {
	uint64_t off, n;
};

/*
 * Somebody reads [off, off+n), of `size` bytes in all, n > 0. Returns what is to be read ahead now:
 * source_will_need().
 */
struct disk_range disk_ahead_read(struct disk_ahead *d, uint64_t size, uint64_t off, size_t n);

void disk_ahead_free(struct disk_ahead *d); /* NULL-safe */

#endif
