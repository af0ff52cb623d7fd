/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading a chunk, which may be of 16 MiB, and a part of it for who asked; and its slot in the
 * index. Threads: any.
 */
#ifndef CARTON_CONTENT_CHUNK_READ_H
#define CARTON_CONTENT_CHUNK_READ_H

#include <pthread.h>

#include "base/hasher.h"
#include "content/chunked.h"

/* chunks whose slots are read from the index at once: of 8 MiB and more */
#define CHUNK_SLOTS 32

/* How long chunk `i` is; where its tags are among all; and how many bytes they take. */
size_t chunk_len(const struct chunks_file *f, uint64_t i);
uint64_t chunk_first_tag(const struct chunks_file *f, uint64_t i);
uint64_t chunk_tags_cost(const struct chunks_file *f, uint64_t i);

/* Has the file no data at all where chunk `i` belongs? */
bool chunk_is_hole(const struct chunked_bytes *b, const struct chunks_file *f, uint64_t i);

/* Bytes of a chunk that are copied on the way: where they begin in the chunk. */
struct chunk_part {
	char *to;
	size_t off, n;
};

/* The slots of a file's chunks, read from the index as they are needed. */
struct chunk_slots {
	const struct chunk_index *index;
	const struct chunks_file *file;
	pthread_mutex_t lock; /* guards what follows */
	uint64_t block;	      /* which block is there; UINT64_MAX: none */
	/* from the one before the first chunk of the block on, which chunk 0 has not */
	uint8_t slots[1 + CHUNK_SLOTS][SHA256_SIZE];
};

/* `index` and `file` outlive it. */
void chunk_slots_init(struct chunk_slots *h, const struct chunk_index *index,
		      const struct chunks_file *file);
void chunk_slots_finish(struct chunk_slots *h);

/* A chunk that is to be compared. */
struct chunk_check {
	uint64_t i;
	struct chunk_part part; /* is copied */
	int r;			/* the result */
};

/*
 * Reads up to HASHERS chunks, and hashes just these bytes, each from the slot before it, all of
 * them together. The result of each: 0, and it has its tags; 1: that does not give its slot;
 * -ENODATA: the file ends before it; -ENOMEM; -EIO; or why the index could not be read.
 */
void chunk_compare(const struct chunked_bytes *b, struct chunk_slots *h, struct chunk_check *list,
		   size_t n);

#endif
