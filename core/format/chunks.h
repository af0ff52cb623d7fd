/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The chunk index: the sha256 of each chunk of large files, so that a part of a file can be
 * verified without the rest. cartonfs-chunks(5) has the format. A carton has it as CHUNKS_PATH, an
 * ordinary file that MANIFEST lists: a reader verifies the index first, by its sha256 in MANIFEST.
 *
 * Only the list of files is in memory; the hashes of chunks are read from the index, at
 * chunks_hash_at().
 *
 * Threads: an index is immutable once parsed; a hasher or a writer belongs to one thread at a time.
 */
#ifndef CARTON_FORMAT_CHUNKS_H
#define CARTON_FORMAT_CHUNKS_H

#include <stddef.h>
#include <stdint.h>

#include "base/budget.h"
#include "base/digest.h"

#define CHUNKS_PATH "misc/.cartonfs/chunks"

/* ---- reading ---- */

struct chunks_file {
	uint8_t sha256[SHA256_SIZE];
	uint64_t size; /* bytes */
	/* a power of two from MIN_CHUNK to MAX_CHUNK; the last chunk may be shorter */
	uint64_t chunk_size;
	uint64_t first; /* its first chunk, counted over all files */
};

struct chunks {
	struct chunks_file *files; /* sorted by sha256 */
	size_t n;
	uint64_t n_chunks; /* of all files */
};

/* Reads exactly `n` bytes at `off`: 0 or -errno. */
typedef int chunks_read_fn(void *ctx, void *ret_buf, size_t n, uint64_t off);

/*
 * Reads the header and the files of an index of `size` bytes. A malformed index is logged with the
 * byte of the fault. 0; -EBADMSG; -EOPNOTSUPP for another version (logged); -EFBIG over MAX_ENTRIES
 * or the budget (NULL: none) (logged); -ENOMEM; or what `read` returned.
 */
int chunks_parse(uint64_t size, chunks_read_fn *read, void *ctx, struct budget *budget,
		 struct chunks **ret);

/* The file of that hash, or NULL. */
const struct chunks_file *chunks_find(const struct chunks *c, const uint8_t sha256[SHA256_SIZE]);

/* How many chunks a file has. */
uint64_t chunks_count(const struct chunks_file *f);

/*
 * The offset in the index of the sha256 of chunk `i` of a file; those of the next chunks follow it.
 */
uint64_t chunks_hash_at(const struct chunks *c, const struct chunks_file *f, uint64_t i);

/* NULL-safe. */
void chunks_free(struct chunks *c);

/* ---- writing ---- */

/* Smaller files need no chunks: they are hashed in a millisecond. */
#define CHUNKS_MIN_FILE (1024 * 1024)

/*
 * The chunk size for a file of that size: 256 KiB up to 4 GiB, then twice as much for each four
 * times the size, so that the hashes of a file do not outweigh a chunk of it.
 */
uint64_t chunks_size_for(uint64_t file_size);

/*
 * Hashes each chunk of a file, whose bytes come in order. Zeroed but for the chunk size, to start
 * with.
 */
struct chunks_hasher {
	uint64_t chunk_size;
	uint64_t size;			/* bytes so far */
	uint8_t (*hashes)[SHA256_SIZE]; /* of the complete chunks; owned */
	size_t n, cap;
	struct sha256 *open; /* of the incomplete chunk; or NULL */
};

/* Hashes the next bytes. 0, -ENOMEM or -EIO. */
int chunks_hasher_feed(struct chunks_hasher *h, const void *data, size_t n);

/* Ends the last chunk. 0, -ENOMEM or -EIO. */
int chunks_hasher_end(struct chunks_hasher *h);

/* Frees the hashes; at any time. */
void chunks_hasher_finish(struct chunks_hasher *h);

/* The files of an index that is being made; zeroed, to start with. */
struct chunks_writer {
	struct chunks_written *files;
	size_t n, cap;
};

/*
 * Adds a file, in any order, from a hasher that has ended, which is empty afterwards. A file
 * without bytes, or that was added before, is left out. 0 or -ENOMEM.
 */
int chunks_writer_add(struct chunks_writer *w, const uint8_t sha256[SHA256_SIZE],
		      struct chunks_hasher *h);

/* Makes the bytes of the index, which the caller frees. 0 or -ENOMEM. */
int chunks_writer_end(struct chunks_writer *w, uint8_t **ret_data, size_t *ret_size);

void chunks_writer_finish(struct chunks_writer *w);

#endif
