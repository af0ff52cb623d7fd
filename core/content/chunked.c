/* SPDX-License-Identifier: Apache-2.0 */
#include "content/chunked.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/util.h"
#include "cache/claims.h"
#include "content/chunk_read.h"

/* chunk i has lock i % STRIPES: of two readers of a chunk, one waits while the other hashes it */
#define STRIPES 16

struct chunked {
	const struct chunk_index *index;
	const struct chunks_file *file;
	struct chunked_bytes bytes;
	const char *name;
	uint64_t n_chunks;
	const struct chunk_filler *filler; /* NULL: all are in the file */
	void *filler_ctx;
	_Atomic uint64_t left;	       /* chunks that are not verified */
	_Atomic uint64_t doubts;       /* how often a chunk was found changed: chunked_doubt() */
	atomic_bool told;	       /* chunked_completed() has returned true */
	atomic_bool failed;	       /* a chunk had other bytes; logged */
	atomic_bool bad;	       /* see chunked_fail() */
	atomic_bool refused;	       /* there is no memory for a chunk; logged */
	bool reserved;		       /* see chunked_reserve() */
	_Atomic uint64_t counted;      /* of the budget, as tables */
	pthread_mutex_t lock[STRIPES]; /* of each chunk, guards its tags until its bit is set */
	struct chunk_slots slots;
	atomic_uchar *claimed;	 /* as `verified`, behind it; set under the chunk's lock; */
	atomic_uchar *doubted;	 /* and behind that, likewise: it was, once */
	atomic_uchar verified[]; /* a bit for each chunk: it has its tags */
};

static bool chunk_bit(const atomic_uchar *bits, uint64_t i)
{
	return atomic_load_explicit(&bits[i / 8], memory_order_acquire) >> (i % 8) & 1;
}

/* Its lock is held, and it is not verified yet. 1: it was the last one. */
static int set_verified(struct chunked *c, uint64_t i)
{
	atomic_fetch_or_explicit(&c->verified[i / 8], (unsigned char)(1 << (i % 8)),
				 memory_order_release);
	return atomic_fetch_sub(&c->left, 1) == 1;
}

int chunked_new(const struct chunk_index *index, const struct chunks_file *file,
		const struct chunked_bytes *bytes, const char *name, struct chunked **ret)
{
	uint64_t n = chunks_count(file);
	size_t bits = (size_t)(n / 8) + 1, size = sizeof(struct chunked) + 3 * bits;
	struct chunked *c;

	if (!budget_try(index->budget, size))
		return -EFBIG;
	c = calloc(1, size);
	if (!c) {
		budget_give(index->budget, size);
		return -ENOMEM;
	}
	c->counted = size;
	c->index = index;
	c->file = file;
	c->bytes = *bytes;
	c->name = name;
	c->n_chunks = n;
	c->left = n;
	c->claimed = c->verified + bits;
	c->doubted = c->claimed + bits;
	for (size_t i = 0; i < STRIPES; i++)
		pthread_mutex_init(&c->lock[i], NULL);
	chunk_slots_init(&c->slots, index, file);
	*ret = c;
	return 0;
}

void chunked_free(struct chunked *c)
{
	if (!c)
		return;
	for (size_t i = 0; i < STRIPES; i++)
		pthread_mutex_destroy(&c->lock[i]);
	chunk_slots_finish(&c->slots);
	if (c->filler)
		c->filler->free(c->filler_ctx);
	budget_give(c->index->budget, c->counted);
	free(c);
}

static void report(const struct chunked *c, enum carton_log_level level, uint64_t i,
		   const char *what)
{
	uint64_t start = i * c->file->chunk_size;

	carton_log(level, c->name, "bytes %llu to %llu %s", (unsigned long long)start,
		   (unsigned long long)(start + chunk_len(c->file, i) - 1), what);
}

/* ---- the memory of tags ---- */

/* Counts the tags of chunk `i`, before its lock is taken. 0 or -EFBIG. */
static int take_tags(struct chunked *c, uint64_t i)
{
	struct budget *b = c->index->budget;

	if (c->reserved || budget_try(b, chunk_tags_cost(c->file, i)))
		return 0;
	if (atomic_exchange(&c->refused, true))
		return error_again(-EFBIG, c->name, "its tables take more memory than the limit");
	return log_error(-EFBIG, c->name,
			 "no further chunk of it can be read: with what checks them, all tables "
			 "take more memory than the limit, %llu MiB; allow more with memory=SIZE",
			 (unsigned long long)(b->limit / MIB));
}

static void give_tags(struct chunked *c, uint64_t i)
{
	if (!c->reserved)
		budget_give(c->index->budget, chunk_tags_cost(c->file, i));
}

/* They stay until the end if the chunk was verified just now (r >= 0). */
static void keep_tags(struct chunked *c, uint64_t i, int r)
{
	if (r < 0)
		give_tags(c, i);
	else if (!c->reserved)
		atomic_fetch_add(&c->counted, chunk_tags_cost(c->file, i));
}

int chunked_reserve(struct chunked *c)
{
	uint64_t cost = ((c->file->size - 1) / TAG_BLOCK + 1) * TAG_SIZE;

	if (!budget_try(c->index->budget, cost))
		return -EFBIG;
	c->counted += cost;
	c->reserved = true;
	return 0;
}

void chunked_set_filler(struct chunked *c, const struct chunk_filler *filler, void *ctx)
{
	c->filler = filler;
	c->filler_ctx = ctx;
}

void *chunked_filler(const struct chunked *c)
{
	return c->filler_ctx;
}

int chunked_fetch(struct chunked *c, uint64_t off, size_t n, struct object_wait *wait)
{
	uint64_t size = c->file->chunk_size;
	int r = take_tags(c, off / size);

	/* what cannot be kept need not be fetched; it is counted when it is there */
	if (r < 0)
		return r;
	give_tags(c, off / size);
	return c->filler->fetch(c->filler_ctx, off / size, (off + n - 1) / size + 1, wait);
}

void chunked_was_read(struct chunked *c, uint64_t off, size_t n)
{
	uint64_t size = c->file->chunk_size;

	if (c->filler && n > 0)
		c->filler->read(c->filler_ctx, off / size, (off + n - 1) / size + 1);
}

bool chunked_is_complete(const struct chunked *c)
{
	return atomic_load(&c->left) == 0;
}

uint64_t chunked_count(const struct chunked *c)
{
	return c->n_chunks;
}

size_t chunked_len(const struct chunked *c, uint64_t i)
{
	return chunk_len(c->file, i);
}

uint64_t chunked_verified_bytes(const struct chunked *c)
{
	uint64_t n = c->n_chunks - atomic_load(&c->left);

	return MIN(n * c->file->chunk_size, c->file->size); /* the last chunk may be shorter */
}

bool chunked_completed(struct chunked *c)
{
	return chunked_is_complete(c) && !atomic_load(&c->told) && !atomic_exchange(&c->told, true);
}

void chunked_unpinned(struct chunked *c)
{
	c->filler->unpinned(c->filler_ctx);
}

bool chunked_is_verified(const struct chunked *c, uint64_t i)
{
	return chunk_bit(c->verified, i);
}

bool chunked_claim(struct chunked *c, uint64_t i)
{
	bool claimed;

	/* waits for a reader that looks at what an earlier mount has left there */
	pthread_mutex_lock(&c->lock[i % STRIPES]);
	claimed = !chunked_is_verified(c, i);
	if (claimed)
		atomic_fetch_or(&c->claimed[i / 8], (unsigned char)(1 << (i % 8)));
	pthread_mutex_unlock(&c->lock[i % STRIPES]);
	return claimed;
}

void chunked_unclaim(struct chunked *c, uint64_t i)
{
	atomic_fetch_and(&c->claimed[i / 8], (unsigned char)~(1 << (i % 8)));
}

uint64_t chunked_doubts(const struct chunked *c)
{
	return atomic_load(&c->doubts);
}

/* One chunk more is not verified. False: all are, and that is final. */
static bool one_more_left(struct chunked *c)
{
	uint64_t n = atomic_load(&c->left);

	while (n > 0 && !atomic_compare_exchange_weak(&c->left, &n, n + 1)) {
	}
	return n > 0;
}

bool chunked_doubt(struct chunked *c, uint64_t off, uint64_t before)
{
	uint64_t i = off / c->file->chunk_size;
	unsigned char bit = (unsigned char)(1 << (i % 8));
	bool again, mine;

	if (!c->filler)
		return false;
	pthread_mutex_lock(&c->lock[i % STRIPES]);
	again = atomic_load(&c->doubts) != before;
	/* once, so that who writes all the time, or a bad disk, keeps no reader for ever */
	mine = !again && !chunk_bit(c->doubted, i) && one_more_left(c);
	if (mine) {
		atomic_fetch_or(&c->doubted[i / 8], bit);
		atomic_fetch_and(&c->verified[i / 8], (unsigned char)~bit);
		/* last: who finds it verified after this has seen it verified anew */
		before = atomic_fetch_add(&c->doubts, 1);
		atomic_fetch_sub(&c->counted, chunk_tags_cost(c->file, i));
	}
	pthread_mutex_unlock(&c->lock[i % STRIPES]);
	if (mine)
		give_tags(c, i);
	if (mine && before == 0)
		report(c, CARTON_LOG_WARNING, i,
		       "were changed in the cache since they were verified; they are fetched "
		       "again, once; find out which program writes to the cache, or whether the "
		       "disk is bad");
	return again || mine;
}

bool chunked_is_hole(const struct chunked *c, uint64_t i)
{
	return chunk_is_hole(&c->bytes, c->file, i);
}

int chunked_span(const struct chunked *c, uint64_t off, size_t n, size_t *ret_n, bool *ret_verified)
{
	uint64_t size = c->file->chunk_size, i = off / size, end = off + n;
	bool single = c->filler && !chunked_is_complete(c);

	if (atomic_load(&c->bad))
		return -EBADMSG;
	*ret_verified = chunked_is_verified(c, i);
	do
		i++;
	while (*ret_verified && !single && i * size < end && chunked_is_verified(c, i));
	*ret_n = (size_t)(MIN(i * size, end) - off);
	return 0;
}

/*
 * Of each: 0, and it has its tags; 1: it does not give its slot; -EBADMSG: the file ends before it,
 * and nobody fetches the rest; or why that is not known. Their locks are held: tags count once
 * their chunk is verified.
 */
static void compare(struct chunked *c, struct chunk_check *list, size_t n)
{
	chunk_compare(&c->bytes, &c->slots, list, n);
	/* it was cut off since; what is fetched can come again */
	for (size_t i = 0; i < n; i++)
		if (list[i].r == -ENODATA)
			list[i].r = c->filler ? 1 : -EBADMSG;
}

static int report_bad(struct chunked *c, uint64_t i)
{
	if (atomic_exchange(&c->failed, true))
		return error_again(-EBADMSG, c->name, "is damaged, as was found before");
	report(c, CARTON_LOG_ERROR, i,
	       "do not have the sha256 that " CHUNKS_PATH " says; get the carton again");
	return -EBADMSG;
}

/*
 * Reads chunk `i` and verifies it. 1: it was the last one; -EINPROGRESS: it has to be fetched. Lock
 * held.
 */
static int verify(struct chunked *c, uint64_t i, const struct chunk_part *x)
{
	uint64_t at = c->bytes.off + i * c->file->chunk_size;
	struct chunk_check check = { i, *x, 0 };
	int r;

	/* hashing a hole, or what is on its way, is of no use */
	if (c->filler && (chunk_bit(c->claimed, i) || chunked_is_hole(c, i) ||
			  claim_is_taken(c->bytes.source->fd, at, chunk_len(c->file, i))))
		return -EINPROGRESS;
	compare(c, &check, 1);
	r = check.r;
	/* what an earlier mount has left may be damaged, or not all there */
	if (r == 1)
		r = c->filler ? -EINPROGRESS : report_bad(c, i);
	return r == 0 ? set_verified(c, i) : r;
}

int chunked_verify(struct chunked *c, uint64_t i)
{
	struct chunk_check check = { .i = i };
	bool there;
	int r = take_tags(c, i);

	if (r < 0)
		return r;
	pthread_mutex_lock(&c->lock[i % STRIPES]);
	there = chunked_is_verified(c, i);
	if (!there) {
		compare(c, &check, 1);
		r = check.r == 1 ? -EBADMSG : check.r;
	}
	if (r == 0 && !there)
		r = set_verified(c, i);
	pthread_mutex_unlock(&c->lock[i % STRIPES]);
	keep_tags(c, i, there ? -EALREADY : r);
	return r;
}

/*
 * Locks up to HASHERS chunks of [i, end) that are not verified: the first in any case, and those
 * behind it until one at which somebody else looks. Returns how many, and which is the next chunk.
 */
static size_t lock_several(struct chunked *c, uint64_t i, uint64_t end, struct chunk_check *ret,
			   uint64_t *ret_next)
{
	/* of more chunks than stripes, two have one lock */
	const uint64_t stop = MIN(end, i + STRIPES);
	size_t n = 0;

	for (; i < stop && n < HASHERS; i++) {
		pthread_mutex_t *lock = &c->lock[i % STRIPES];

		if (chunked_is_verified(c, i))
			continue;
		/* nobody waits for a lock who has one, so no two wait for each other */
		if (n == 0)
			pthread_mutex_lock(lock);
		else if (pthread_mutex_trylock(lock) != 0)
			break;
		if (chunked_is_verified(c, i))
			pthread_mutex_unlock(lock);
		else
			ret[n++].i = i;
	}
	*ret_next = i;
	return n;
}

int chunked_verify_several(struct chunked *c, uint64_t i, uint64_t end, uint64_t *ret_next)
{
	struct chunk_check list[HASHERS] = { 0 };
	size_t n = lock_several(c, i, end, list, ret_next);
	int r = 0;

	compare(c, list, n);
	for (size_t k = 0; k < n; k++) {
		int one = list[k].r == 1 ? -EBADMSG : list[k].r;

		if (one == 0)
			set_verified(c, list[k].i);
		pthread_mutex_unlock(&c->lock[list[k].i % STRIPES]);
		if (r == 0 || one == -EBADMSG)
			r = one;
	}
	return r;
}

void chunked_verify_range(struct chunked *c, uint64_t off, uint64_t n)
{
	uint64_t size = c->file->chunk_size, i = off / size, end = (off + n - 1) / size + 1;
	int r = 0;

	while (i < end && r == 0)
		r = chunked_verify_several(c, i, end, &i);
}

int chunked_read(struct chunked *c, void *ret_buf, size_t n, uint64_t off)
{
	uint64_t i = off / c->file->chunk_size;
	const struct chunk_part x = { ret_buf, (size_t)(off % c->file->chunk_size), n };
	bool there;
	int r;

	if (chunked_is_verified(c, i))
		return 1;
	r = take_tags(c, i);
	if (r < 0)
		return r;
	pthread_mutex_lock(&c->lock[i % STRIPES]);
	there = chunked_is_verified(c, i);
	if (!there)
		r = verify(c, i, &x);
	pthread_mutex_unlock(&c->lock[i % STRIPES]);
	keep_tags(c, i, there ? -EALREADY : r);
	if (r == 1 && c->filler)
		c->filler->complete(c->filler_ctx);
	return r < 0 ? r : there;
}

void chunked_proven(struct chunked *c)
{
	if (c->filler)
		c->filler->proven(c->filler_ctx);
}

void chunked_fail(struct chunked *c)
{
	atomic_store(&c->failed, true);
	atomic_store(&c->bad, true);
}

bool chunked_failed(const struct chunked *c)
{
	return atomic_load(&c->failed);
}
