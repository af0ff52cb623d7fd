/* SPDX-License-Identifier: Apache-2.0 */
#include "content/chunk_read.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/util.h"

/* read at once; a multiple of TAG_BLOCK */
#define PIECE ((size_t)(128 * KIB))

size_t chunk_len(const struct chunks_file *f, uint64_t i)
{
	return (size_t)MIN(f->chunk_size, f->size - i * f->chunk_size);
}

uint64_t chunk_first_tag(const struct chunks_file *f, uint64_t i)
{
	return i * (f->chunk_size / TAG_BLOCK);
}

uint64_t chunk_tags_cost(const struct chunks_file *f, uint64_t i)
{
	return ((chunk_len(f, i) - 1) / TAG_BLOCK + 1) * TAG_SIZE;
}

bool chunk_is_hole(const struct chunked_bytes *b, const struct chunks_file *f, uint64_t i)
{
	off_t start = (off_t)(b->off + i * f->chunk_size);
	size_t len = chunk_len(f, i), part = len;
	off_t data = lseek(source_fd_at(b->source, (uint64_t)start, &part), start, SEEK_DATA);

	return data < 0 ? errno == ENXIO : data >= start + (off_t)len;
}

static void copy_part(const struct chunk_part *x, const char *data, size_t n, size_t at)
{
	size_t from = MAX(x->off, at), end = MIN(x->off + x->n, at + n);

	if (from < end)
		memcpy(x->to + (from - x->off), data + (from - at), end - from);
}

/* A chunk that is being read: its bytes, a piece at a time, and its slot and the one before. */
struct reading {
	struct chunk_check *of;
	uint8_t before[SHA256_SIZE], slot[SHA256_SIZE]; /* chunk 0 has none before */
	char *data;
	size_t len, done;
	struct hasher hasher;
};

void chunk_slots_init(struct chunk_slots *h, const struct chunk_index *index,
		      const struct chunks_file *file)
{
	h->index = index;
	h->file = file;
	h->block = UINT64_MAX;
	pthread_mutex_init(&h->lock, NULL);
}

void chunk_slots_finish(struct chunk_slots *h)
{
	pthread_mutex_destroy(&h->lock);
}

/* Reads the block of chunk `i`. 0 or why the index could not be read. Lock held. */
static int read_slots(struct chunk_slots *h, uint64_t i)
{
	uint64_t block = i / CHUNK_SLOTS, first = block * CHUNK_SLOTS, before = first ? 1 : 0, n;
	int r;

	if (h->block == block)
		return 0;
	h->block = UINT64_MAX;
	n = MIN(CHUNK_SLOTS, chunks_count(h->file) - first) + before;
	r = h->index->read(h->index->ctx, h->slots[1 - before], (size_t)n * SHA256_SIZE,
			   chunks_slot_at(h->index->chunks, h->file, first - before));
	if (r == 0)
		h->block = block;
	/* that the index is damaged says nothing of the chunk */
	return r == -EBADMSG ? -EIO : r;
}

/* Finds the slots of a chunk. 0 or why the index could not be read. */
static int find_slots(struct chunk_slots *h, struct reading *c)
{
	const uint8_t(*at)[SHA256_SIZE] = h->slots + c->of->i % CHUNK_SLOTS;
	int r;

	pthread_mutex_lock(&h->lock);
	r = read_slots(h, c->of->i);
	if (r == 0) {
		memcpy(c->before, at[0], SHA256_SIZE);
		memcpy(c->slot, at[1], SHA256_SIZE);
	}
	pthread_mutex_unlock(&h->lock);
	return r;
}

static int begin(const struct chunked_bytes *b, struct chunk_slots *h, struct reading *c)
{
	int r = find_slots(h, c);

	if (r < 0)
		return r;
	c->len = chunk_len(h->file, c->of->i);
	c->data = malloc(PIECE);
	r = c->data ? hasher_begin(&c->hasher, b->tagger, true) : -ENOMEM;
	if (r == 0)
		hasher_resume(&c->hasher, c->before, c->of->i * h->file->chunk_size);
	return r;
}

/*
 * Reads the next piece of each chunk, and hashes and tags just these bytes, those of all chunks
 * together. False: all have ended.
 */
static bool read_pieces(const struct chunked_bytes *b, const struct chunks_file *f,
			struct reading *list, size_t n)
{
	struct hasher_part parts[HASHERS] = { 0 };
	struct reading *of[HASHERS];
	size_t k = 0;
	int r;

	for (size_t i = 0; i < n; i++) {
		struct reading *c = &list[i];
		uint64_t at = c->of->i * f->chunk_size + c->done;
		size_t len = MIN(PIECE, c->len - c->done);

		if (c->of->r == 0 && len > 0)
			c->of->r = source_pread(b->source, c->data, len, b->off + at);
		if (c->of->r < 0 || len == 0)
			continue;
		of[k] = c;
		parts[k++] = (struct hasher_part){ &c->hasher, c->data, len };
	}
	r = hasher_feed_several(parts, k);
	for (size_t i = 0; i < k; i++) {
		of[i]->of->r = r;
		copy_part(&of[i]->of->part, of[i]->data, parts[i].n, of[i]->done);
		of[i]->done += parts[i].n;
	}
	return k > 0;
}

/* A chunk that was doubted has them, and others may be reading them still. */
static void set_tags(const struct chunked_bytes *b, const struct chunks_file *f, uint64_t i,
		     uint8_t (*tags)[TAG_SIZE])
{
	uint8_t(*at)[TAG_SIZE] = b->tags + chunk_first_tag(f, i);
	size_t n = chunk_tags_cost(f, i);

	if (memcmp(at, tags, n) != 0)
		memcpy(at, tags, n);
}

/* Compares what was read. As chunk_compare(). */
static int end(const struct chunked_bytes *b, struct chunk_slots *h, struct reading *c)
{
	struct ingested found = { 0 };
	bool last = c->of->i == chunks_count(h->file) - 1;
	int r = c->of->r;

	free(c->data);
	if (r < 0)
		hasher_abort(&c->hasher);
	else
		r = last ? hasher_end(&c->hasher, &found) : hasher_end_state(&c->hasher, &found);
	if (r == 0 && h->index->hashed)
		atomic_fetch_add(h->index->hashed, found.size);
	if (r == 0)
		r = memcmp(c->slot, found.sha256, SHA256_SIZE) != 0;
	if (r == 0)
		set_tags(b, h->file, c->of->i, found.tags);
	free(found.tags);
	return r;
}

void chunk_compare(const struct chunked_bytes *b, struct chunk_slots *h, struct chunk_check *list,
		   size_t n)
{
	struct reading all[HASHERS] = { 0 };

	for (size_t i = 0; i < n; i++) {
		all[i].of = &list[i];
		list[i].r = begin(b, h, &all[i]);
	}
	while (read_pieces(b, h->file, all, n)) {
	}
	for (size_t i = 0; i < n; i++)
		list[i].r = end(b, h, &all[i]);
}
