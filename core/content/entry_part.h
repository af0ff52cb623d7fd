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

/*
 * Goes on with the first *ret_have of `n` bytes of the carton, which an earlier fill of this very
 * version has left in the file; or empties the file.
 */
int part_resume(const struct get *g, struct file *d, uint64_t n, uint64_t *ret_have);

/*
 * Opens g->part_file for `n` bytes: in memory; for all of a large entry as a partial of the cache,
 * under a name that is no sha256 of content, with *ret_have bytes as part_resume(); or where there
 * is room, last in memory.
 */
int part_open(struct get *g, uint64_t n, uint64_t *ret_have);

/* Was the entry fetched with the container's directory, or others? Then a mirror saves nothing. */
bool part_is_cached(const struct get *g);

/*
 * Copies [off, off + n) of the carton to g->part_file, if it is in this span (or NULL), or opening
 * the carton has left it in memory. -ENOENT: neither.
 */
int part_copy_cached(struct get *g, const struct span *span, uint64_t off, uint64_t n);

/*
 * The part is there: compares the header with the central directory; where in g->part the data
 * begins.
 */
int part_locate(struct get *g, uint64_t *ret_off);

/*
 * Empties the fill's file, and makes room in it for all of the content: before a byte of the entry
 * is fetched or decoded, which would have to be done again for another file.
 */
int entry_make_room(struct fill *f);

/*
 * Decodes the data of the fill's entry, at `off` there, to its file, if there is one, and verifies
 * it.
 */
int entry_decode(struct fill *f, struct source *from, uint64_t off, struct ingested *ret);

/* As object_to_fetch(), of an entry all of which has to be decoded. */
uint64_t part_to_fetch(const struct object *o, const struct entry *e);

/* Ends g->part and g->part_file: after a `result` that may pass, a later fill can go on. */
void part_leave(struct get *g, int result);

#endif
