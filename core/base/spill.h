/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A second file for what the disk of a sparse file has no room for. A part of `unit` bytes lies in
 * the one or in the other, each at its own offset.
 *
 * A NULL spill has no part. References are counted. Threads: any; who adds a part has nobody read
 * or write it meanwhile.
 */
#ifndef CARTON_BASE_SPILL_H
#define CARTON_BASE_SPILL_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct spill {
	atomic_uint refs;
	atomic_int fd; /* the second file; -1: there is none yet */
	uint64_t unit;
	atomic_uchar parts[]; /* a bit for each: it is in the second file */
};

/* For a file of `size` bytes. NULL: no memory. */
struct spill *spill_new(uint64_t size, uint64_t unit);
struct spill *spill_ref(struct spill *s);
void spill_unref(struct spill *s);

/* From now on [off, off+n), which has whole parts, lies in the second file. */
void spill_add(struct spill *s, uint64_t off, uint64_t n);

/*
 * The file that has the byte at `off`, `fd` or the second one. *n becomes how many of the bytes
 * from there on are in it for certain, at least 1 of 1.
 */
int spill_fd(const struct spill *s, int fd, uint64_t off, size_t *n);

#endif
