/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes of a local file that are verified chunk by chunk, by the chunk index (chunks.h), when they
 * are first read. A chunk that passed has the tags that it would have if all had been hashed at
 * once.
 *
 * The file may lack chunks: then it is filled by a filler, and what is there from before is used
 * once it passes.
 *
 * The sha256 of the whole is compared later (hash_job.h). Until then only the index says that what
 * was read is right.
 *
 * Threads: any.
 */
#ifndef CARTON_CONTENT_CHUNKED_H
#define CARTON_CONTENT_CHUNKED_H

#include <stdbool.h>

#include "base/digest.h"
#include "base/source.h"
#include "format/chunks.h"

/* The index of a carton, verified, and how its bytes are read. */
struct chunk_index {
	struct chunks *chunks;
	chunks_read_fn *read; /* any thread */
	void *ctx;
	struct budget *budget; /* counts what chunks take once they are verified; NULL: no limit */
};

/* The bytes: where they begin in a local source, and room for their tags. */
struct chunked_bytes {
	struct source *source;
	uint64_t off;
	uint8_t (*tags)[TAG_SIZE];
	const struct tagger *tagger;
};

struct chunked;

struct object_wait;

/* Where chunks come from that the file lacks. Any thread. */
struct chunk_filler {
	/*
	 * Has the first of the chunks [i, end) fetched that is not verified, and perhaps more: it
	 * claims them, and calls chunked_fetched(). 0: all are verified; -EINPROGRESS: `wait` gets
	 * the result; -ENOTCONN; -ENOMEM.
	 */
	int (*fetch)(void *ctx, uint64_t i, uint64_t end, struct object_wait *wait);
	/* Chunks [i, end) were read: perhaps others will be, and can be fetched by then. */
	void (*read)(void *ctx, uint64_t i, uint64_t end);
	/* Nobody has the object pinned any more but fills of chunks. */
	void (*unpinned)(void *ctx);
	/* All chunks have been verified: called once, by a reader, before its read is answered. */
	void (*complete)(void *ctx);
	/* The whole has been hashed and is right. */
	void (*hashed)(void *ctx);
	void (*free)(void *ctx);
};

/*
 * No chunk is verified. `index`, `file`, the source and the tags of `bytes`, and `name` (for the
 * log) outlive it. 0, -ENOMEM, or -EFBIG over the budget.
 */
int chunked_new(const struct chunk_index *index, const struct chunks_file *file,
		const struct chunked_bytes *bytes, const char *name, struct chunked **ret);

/* The file lacks chunks: `ctx` is freed with the bytes. Before they are read. */
void chunked_set_filler(struct chunked *c, const struct chunk_filler *filler, void *ctx);

/* The `ctx` of its filler; NULL: none. */
void *chunked_filler(const struct chunked *c);

/* See fetch(): where [off, off+n) has bytes that are not verified. -EFBIG as chunked_read(). */
int chunked_fetch(struct chunked *c, uint64_t off, size_t n, struct object_wait *wait);

/* Bytes of it were read, see read(). */
void chunked_was_read(struct chunked *c, uint64_t off, size_t n);

/*
 * How often a chunk was doubted. Who reads verified bytes asks before chunked_span() says that they
 * are, for chunked_doubt().
 */
uint64_t chunked_doubts(const struct chunked *c);

/*
 * The chunk at `off` was verified, and its bytes no longer fit its tags: another process has
 * written to the file since. True: the caller reads again, because the chunk is no longer verified
 * and will be fetched, or because a reader has doubted a chunk since there were `before` doubts.
 * False: the chunk is damaged for good, because no server has it, all chunks are verified, or the
 * chunk was doubted before.
 */
bool chunked_doubt(struct chunked *c, uint64_t off, uint64_t before);

/* Are all chunks verified, by this mount? */
bool chunked_is_complete(const struct chunked *c);

/* Has no chunk to be fetched? They are verified, or have the tags of a seal. */
bool chunked_is_here(const struct chunked *c);

/* Bytes of chunks that are verified. */
uint64_t chunked_verified_bytes(const struct chunked *c);

/* The same as chunked_is_complete() of a file that lacked none, but true only once. */
bool chunked_completed(struct chunked *c);

/*
 * Takes the `tags` that an earlier mount has left, for each block of the file: a chunk that has
 * some (not all zero) is verified, as far as the budget allows. Called before the bytes are read.
 * Of a file with a filler, either all chunks are verified so, or none, if one has no tags or no
 * bytes any more; and each can be doubted until the whole was hashed. False: no tags were used.
 */
bool chunked_use_tags(struct chunked *c, uint8_t (*tags)[TAG_SIZE]);

/*
 * Compares the tags of a seal with `tags`, those that the hash of the whole has just made. Doubts
 * each chunk whose tags differ. True: some do, or a chunk is being fetched, so the hash says
 * nothing of the whole. False: all agree, and from now on every chunk is verified for good; or no
 * chunk has its tags from a seal.
 */
bool chunked_doubt_sealed(struct chunked *c, uint8_t (*tags)[TAG_SIZE]);

/* Has it chunks with the tags of a seal, and has the whole not agreed with them yet? */
bool chunked_is_sealed(const struct chunked *c);

/*
 * The tags of all chunks that are verified, zero for others; the caller frees them. NULL: none was
 * verified since the last call or chunked_use_tags(); it has a filler, and not all were verified by
 * this mount; one was verified by chunked_set_tags(); no memory. Not beside readers, unless all
 * chunks are verified.
 */
uint8_t (*chunked_new_tags(struct chunked *c))[TAG_SIZE];

/* See unpinned(). */
void chunked_unpinned(struct chunked *c);

bool chunked_is_verified(const struct chunked *c, uint64_t i);

/* Is there nothing in the file where chunk `i` belongs? */
bool chunked_is_hole(const struct chunked *c, uint64_t i);

/*
 * Claims chunk `i` for who writes it: no reader looks at it until then. False: it is verified by
 * now.
 */
bool chunked_claim(struct chunked *c, uint64_t i);
void chunked_unclaim(struct chunked *c, uint64_t i);

/*
 * Chunk `i` was written to the file by who claimed it: verifies it. 0; 1: likewise, and now all are
 * verified; -EBADMSG: other bytes (not logged); or the errors of chunked_read().
 */
int chunked_fetched(struct chunked *c, uint64_t i);

/* NULL-safe. */
void chunked_free(struct chunked *c);

/*
 * How many bytes of [off, off+n), from its start, are verified, or else lie in one chunk that is
 * not: *ret_verified says which. While some are still to be fetched it is one chunk in any case, as
 * each may be doubted. -EBADMSG after chunked_fail(). 0 < *ret_n <= n.
 */
int chunked_span(const struct chunked *c, uint64_t off, size_t n, size_t *ret_n,
		 bool *ret_verified);

/*
 * Verifies the chunk that holds [off, off+n), leaves its tags, and copies these bytes. 0; 1:
 * another thread has just verified it; -EBADMSG: other bytes, which is logged once, or the index
 * has become unreadable; -ENOMEM; -EIO; -EFBIG: its tags would be over the budget, which is logged
 * once; -EINPROGRESS: it has to be fetched.
 */
int chunked_read(struct chunked *c, void *ret_buf, size_t n, uint64_t off);

/*
 * All bytes have passed the sha256 of the whole, and these are their tags: all chunks are verified.
 * -EBADMSG: a chunk that was verified before had other bytes. 0 otherwise.
 */
int chunked_set_tags(struct chunked *c, uint8_t (*tags)[TAG_SIZE]);

/*
 * Was each chunk compared with the index, now or by an earlier mount? chunked_set_tags() takes
 * those for verified that nobody has read, whatever the index says of them.
 */
bool chunked_all_by_index(const struct chunked *c);

/* The whole was hashed, and nothing is wrong. */
void chunked_hashed(struct chunked *c);

/* The whole has another sha256: from now on there are no bytes. */
void chunked_fail(struct chunked *c);

/* Has a chunk, or the whole, had other bytes? It was logged. */
bool chunked_failed(const struct chunked *c);

#endif
