/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The chunk index: the states of SHA-256 between the chunks of large files, so that a part of a
 * file can be verified without the rest. cartonfs-chunks(5) has the format. A carton has it as
 * CHUNKS_PATH, an ordinary file that MANIFEST lists: a reader verifies the index first, by its
 * sha256 in MANIFEST.
 *
 * Each chunk has a slot of 32 bytes: the state after it (base/sha256.h), and the last chunk of a
 * file the sha256 of the file. A chunk is right if hashing it from the slot before gives its slot;
 * the state before the first chunk is the constant of FIPS 180-4, whatever the index says. If all
 * are right, the file has that sha256.
 *
 * Only the list of files is in memory; slots are read from the index, at chunks_slot_at().
 *
 * Threads: an index is immutable once parsed; a writer belongs to one thread at a time.
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
 * Reads the header and the files of an index of `size` bytes, and checks that the last slot of each
 * file is its sha256. A malformed index is logged with the byte of the fault. 0; -EBADMSG;
 * -EOPNOTSUPP for a later version (logged); -EFBIG over MAX_ENTRIES or the budget (NULL: none)
 * (logged); -ENOMEM; or the error of `read`. An index of version 1 counts as none: 0 and *ret is
 * NULL (logged).
 */
int chunks_parse(uint64_t size, chunks_read_fn *read, void *ctx, struct budget *budget,
		 struct chunks **ret);

/* The file of that hash, or NULL. */
const struct chunks_file *chunks_find(const struct chunks *c, const uint8_t sha256[SHA256_SIZE]);

/* How many chunks a file has. */
uint64_t chunks_count(const struct chunks_file *f);

/* The offset in the index of the slot of chunk `i` of a file; those of the next ones follow it. */
uint64_t chunks_slot_at(const struct chunks *c, const struct chunks_file *f, uint64_t i);

/* NULL-safe. */
void chunks_free(struct chunks *c);

/* ---- writing ---- */

/* Smaller files need no chunks: they are hashed in a millisecond. */
#define CHUNKS_MIN_FILE (1024 * 1024)

/*
 * The chunk size for a file of that size: 256 KiB up to 4 GiB, then twice as much for each four
 * times the size, so that the slots of a file do not outweigh a chunk of it.
 */
uint64_t chunks_size_for(uint64_t file_size);

/* What an index says of a file: `slots` as hasher_keep_states() makes them, with its chunk size. */
struct chunks_made {
	uint64_t size, chunk_size;     /* bytes */
	uint8_t (*slots)[SHA256_SIZE]; /* owned; NULL: the file has no bytes */
};

/* Frees the slots. */
void chunks_made_finish(struct chunks_made *m);

/* The files of an index that is being made; zeroed, to start with. */
struct chunks_writer {
	struct chunks_made *files;
	size_t n, cap;
};

/*
 * Adds a file, in any order, and takes its slots. A file without bytes, or that was added before,
 * is left out. 0 or -ENOMEM.
 */
int chunks_writer_add(struct chunks_writer *w, struct chunks_made *file);

/* Makes the bytes of the index, which the caller frees. 0 or -ENOMEM. */
int chunks_writer_end(struct chunks_writer *w, uint8_t **ret_data, size_t *ret_size);

void chunks_writer_finish(struct chunks_writer *w);

#endif
