/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes of a local file that are verified chunk by chunk, by the chunk index (chunks.h), when they
 * are first read. A chunk that passed has the tags that it would have if all had been hashed at
 * once. When each has passed, from state to state, the sha256 of the whole is proven.
 *
 * The file may lack chunks: then it is filled by a filler, and what is there from before is used
 * once it passes.
 *
 * Chunks that nobody reads are verified later, if they are all there (hash_job.h). Until then only
 * the index says that what was read is right.
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
	_Atomic uint64_t *hashed; /* bytes of chunks, to be added to; or NULL */
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
	 * claims them, and calls chunked_verify(). 0: all are verified; -EINPROGRESS: `wait` gets
	 * the result; -ENOTCONN; -ENOMEM.
	 */
	int (*fetch)(void *ctx, uint64_t i, uint64_t end, struct object_wait *wait);
	/* Chunks [i, end) were read: perhaps others will be, and can be fetched by then. */
	void (*read)(void *ctx, uint64_t i, uint64_t end);
	/* Nobody has the object pinned any more but fills of chunks. */
	void (*unpinned)(void *ctx);
	/* All chunks have been verified: called once, by a reader, before its read is answered. */
	void (*complete)(void *ctx);
	/* The whole is proven. */
	void (*proven)(void *ctx);
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

/* How many chunks there are; and bytes of chunk `i`. */
uint64_t chunked_count(const struct chunked *c);
size_t chunked_len(const struct chunked *c, uint64_t i);

/* Bytes of chunks that are verified. */
uint64_t chunked_verified_bytes(const struct chunked *c);

/*
 * chunked_is_complete(), but true only once: the caller makes known that the whole is proven. Its
 * tags are those of all chunks.
 */
bool chunked_completed(struct chunked *c);

/*
 * Counts the tags of all chunks now, so that none is refused for lack of memory. Before the bytes
 * are read. 0 or -EFBIG.
 */
int chunked_reserve(struct chunked *c);

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
 * Verifies chunk `i`, which its claimant has just written to the file. 0; 1: likewise, and now all
 * are verified; -EBADMSG: other bytes (not logged), or the file ends before it; or the errors of
 * chunked_read().
 */
int chunked_verify(struct chunked *c, uint64_t i);

/*
 * The same for up to HASHERS chunks of [i, end) that are not verified, which are hashed together;
 * it is not said which was the last. *ret_next: the first chunk that was not looked at; chunks
 * behind the first are left to who looks at them already. -EBADMSG if one has other bytes, whatever
 * became of the others. After chunked_reserve().
 */
int chunked_verify_several(struct chunked *c, uint64_t i, uint64_t end, uint64_t *ret_next);

/* Verifies the chunks of [off, off+n), n > 0, up to the first failure, which a reader will meet. */
void chunked_verify_range(struct chunked *c, uint64_t off, uint64_t n);

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

/* The whole is proven: its filler is told. */
void chunked_proven(struct chunked *c);

/* A chunk does not fit the index: from now on there are no bytes. */
void chunked_fail(struct chunked *c);

/* Has a chunk had other bytes? It was logged. */
bool chunked_failed(const struct chunked *c);

#endif
