/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a chunk, which may be of 16 MiB, and a part of it for who asked. Threads: any. */
#ifndef CARTON_CONTENT_CHUNK_READ_H
#define CARTON_CONTENT_CHUNK_READ_H

#include "base/hasher.h"
#include "content/chunked.h"

/* Bytes of a chunk that are copied on the way: where they begin in the chunk. */
struct chunk_part {
	char *to;
	size_t off, n;
};

/*
 * Reads the `len` bytes at `at` piece by piece: hashes and tags just these bytes, and copies of
 * them. 0, -ENOMEM, or as source_pread(). The caller frees the tags.
 */
int chunk_read(const struct chunked_bytes *b, uint64_t at, size_t len,
	       const struct chunk_part *part, struct ingested *ret);

#endif
