/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A second file, for those parts of a sparse file for which its disk has no room. Each part, of
 * `unit` bytes, is in one of the two files, at the same offset in either.
 *
 * A NULL spill has no part. References are counted. Threads: any; nobody reads or writes a part
 * while it is added.
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
	atomic_uchar parts[]; /* a bit for each part: it is in the second file */
};

/* For a file of `size` bytes. NULL: no memory. */
struct spill *spill_new(uint64_t size, uint64_t unit);
struct spill *spill_ref(struct spill *s);
void spill_unref(struct spill *s);

/* Says that [off, off+n), which has whole parts, is in the second file from now on. */
void spill_add(struct spill *s, uint64_t off, uint64_t n);

/*
 * Returns the file that has the byte at `off`: `fd` or the second one. Lowers *n, at least 1, to a
 * number of bytes from there on that are in the same file.
 */
int spill_fd(const struct spill *s, int fd, uint64_t off, size_t *n);

#endif
