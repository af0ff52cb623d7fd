/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A part of a remote carton that a get (get.h) needs before it has the bytes of an entry: the
 * entry's header, or all of an entry that has to be decoded; and decoding it.
 *
 * Threads: as for the get. All return 0 or -errno.
 */
#ifndef CARTON_CONTENT_ENTRY_PART_H
#define CARTON_CONTENT_ENTRY_PART_H

#include "content/get.h"

/* Opens g->part_file for `n` bytes: in memory, or where there is room. */
int part_open(struct get *g, uint64_t n);

/* Was the entry fetched with the container's directory, or others? Then a mirror saves nothing. */
bool part_is_cached(const struct get *g);

/*
 * Copies [off, off + n) of the carton to g->part_file, if it is in g->span, which is then left, or
 * opening the carton has left it in memory. -ENOENT: neither.
 */
int part_copy_cached(struct get *g, uint64_t off, uint64_t n);

/*
 * The part's `n` bytes are there: compares the header with the central directory; where in g->part
 * the data begins.
 */
int part_locate(struct get *g, uint64_t n, uint64_t *ret_off);

/* Decodes the data of the fill's entry, at `off` there, to its file, and verifies it. */
int entry_decode(struct fill *f, struct source *from, uint64_t off, struct ingested *ret);

/* Gives the part back, if there is one. */
void part_leave(struct get *g);

#endif
