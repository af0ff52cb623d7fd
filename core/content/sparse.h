/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A large object of which only those chunks are fetched that are read, into a file of the cache
 * (room.h): a Stored entry of a remote carton, or what LINKS names. All processes that have the
 * same index of it fill this file together, and the next mount finds what is there, chunk by chunk,
 * by its slot. When one of them has verified all chunks, it becomes a cache entry, with a seal.
 *
 * Bytes are in the file before they are hashed, by any of these processes. One that was stopped
 * while it had a claim, whose chunk others have fetched meanwhile, writes what its server sends
 * over that chunk when it goes on, as anybody may who can write to the file. Where these are other
 * bytes, who has verified the chunk has its tags: each read compares them, in the buffer that the
 * reader gets. The first time it then doubts the chunk (chunked_doubt()), which is looked at and
 * fetched as if it had not been verified; the second time, or once all chunks are verified, it
 * fails (-EBADMSG). A process that has not verified the chunk hashes it before the first read. So
 * wrong bytes never get out, and no claim is needed for that; nor from the entry, as its seal has
 * the tags of what was verified.
 *
 * Chunks come from the places of the object's plan (chunk_fill.h), those that a reader wants and
 * those ahead of readers who go on in order (chunk_ahead.h).
 *
 * A chunk that is fetched costs no thread: its readers wait for a fill of it, as who opens an
 * object waits for a fill of all. Once the last of them has given up, the fill is cancelled. A fill
 * that nobody has waited for yet goes on as long as anyone has the object open; of an object that
 * follows another, which is read (object_follow()), to its end.
 */
#ifndef CARTON_CONTENT_SPARSE_H
#define CARTON_CONTENT_SPARSE_H

#include "content/bytes.h"
#include "content/plan.h"

/* Smaller ones are fetched whole. */
#define SPARSE_MIN (8 * MIB)

struct chunks_file;

/*
 * The bytes of the plan's object, as `file` says. The plan's entry, if it has one, is
 * plan_is_direct(). 0, -ENOMEM, -ENOSPC, or -errno.
 */
int sparse_open(struct plan *plan, const struct chunks_file *file, struct bytes *ret);

#endif
