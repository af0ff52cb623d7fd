/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A part of a remote carton that a get (get.h) needs before it has the bytes of an entry: the
 * entry's header, or all of an entry that has to be decoded.
 *
 * Threads: as for the get. All return 0 or -errno.
 */
#ifndef CARTON_OBJECT_SCRATCH_H
#define CARTON_OBJECT_SCRATCH_H

#include "object/get.h"

/* Opens g->scratch for `n` bytes: in memory, or where there is room. */
int scratch_open(struct get *g, uint64_t n);

/*
 * Copies [off, off + n) of the carton to g->scratch, if opening the carton has left it in memory.
 * -ENOENT: it has not.
 */
int scratch_copy_cached(struct get *g, uint64_t off, uint64_t n);

/* Compares the header in g->part with the central directory; where in the part the data begins. */
int scratch_locate(struct get *g, uint64_t *ret_off);

/* Decodes the data at `off` of g->part to g->dest, and verifies it. */
int scratch_decode(struct get *g, uint64_t off, struct ingested *ret);

/* Gives g->part back. */
void scratch_leave(struct get *g);

#endif
