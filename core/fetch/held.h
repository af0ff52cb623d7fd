/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stretches of a remote file that are held in memory: what opening a carton reads of it, so that it
 * costs few requests, and can be saved.
 *
 * Threads: any.
 */
#ifndef CARTON_FETCH_HELD_H
#define CARTON_FETCH_HELD_H

#include <stdbool.h>

#include "base/util.h"

struct held;

/* May hold `max` bytes: older stretches give way. NULL: out of memory. */
struct held *held_new(uint64_t max);
void held_free(struct held *h); /* NULL-safe */

/* Holds `data` (malloc'ed; taken over, also on failure). 0 or -ENOMEM. */
int held_add(struct held *h, char *data, uint64_t n, uint64_t off);

/* Copies [off, off + n) (`ret_buf` NULL: does not); false: no one stretch has all of it. */
bool held_read(struct held *h, void *ret_buf, uint64_t n, uint64_t off);

/* From now on holds at most `max` bytes. */
void held_trim(struct held *h, uint64_t max);

/*
 * Appends (le64 offset, le64 length, bytes) for each stretch, in their order. 0; -EFBIG: some had to
 * give way, or the buffer is full; -ENOMEM.
 */
int held_save(struct held *h, struct buf *to);

/* The reverse. 0; -EBADMSG: it is no such text; -ENOMEM. */
int held_load(struct held *h, const void *text, size_t n);

#endif
