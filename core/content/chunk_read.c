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

bool chunks_have_hole(const struct chunked_bytes *b, const struct chunks_file *f)
{
	off_t hole = lseek(b->source->fd, (off_t)b->off, SEEK_HOLE);

	return hole < 0 || hole < (off_t)(b->off + f->size);
}

static void copy_part(const struct chunk_part *x, const char *data, size_t n, size_t at)
{
	size_t from = MAX(x->off, at), end = MIN(x->off + x->n, at + n);

	if (from < end)
		memcpy(x->to + (from - x->off), data + (from - at), end - from);
}

/* Chunk `i`, and its slot and the one before, which chunk 0 has not. */
struct chunk {
	const struct chunks_file *file;
	uint64_t i;
	uint8_t before[SHA256_SIZE], slot[SHA256_SIZE];
};

/*
 * Reads the chunk piece by piece: hashes and tags just these bytes, and copies of them. 0, -ENOMEM,
 * or as source_pread(). The caller frees the tags.
 */
static int chunk_read(const struct chunked_bytes *b, const struct chunk *c,
		      const struct chunk_part *part, struct ingested *ret)
{
	uint64_t at = c->i * c->file->chunk_size;
	size_t len = chunk_len(c->file, c->i), n;
	char *data = malloc(PIECE);
	struct hasher h = { 0 };
	int r = data ? hasher_begin(&h, b->tagger, true) : -ENOMEM;

	if (r == 0)
		hasher_resume(&h, c->before, at);
	for (size_t done = 0; done < len && r == 0; done += n) {
		n = MIN(PIECE, len - done);
		r = source_pread(b->source, data, n, b->off + at + done);
		if (r == 0)
			r = hasher_feed(&h, data, n);
		if (r == 0)
			copy_part(part, data, n, done);
	}
	free(data);
	if (r == 0)
		return at + len == c->file->size ? hasher_end(&h, ret) : hasher_end_state(&h, ret);
	hasher_abort(&h);
	return r;
}

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
	return r;
}

/* Finds the slots of a chunk. 0 or why the index could not be read. */
static int find_slots(struct chunk_slots *h, struct chunk *c)
{
	const uint8_t(*at)[SHA256_SIZE] = h->slots + c->i % CHUNK_SLOTS;
	int r;

	pthread_mutex_lock(&h->lock);
	r = read_slots(h, c->i);
	if (r == 0) {
		memcpy(c->before, at[0], SHA256_SIZE);
		memcpy(c->slot, at[1], SHA256_SIZE);
	}
	pthread_mutex_unlock(&h->lock);
	return r;
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

int chunk_compare(const struct chunked_bytes *b, struct chunk_slots *h, uint64_t i,
		  const struct chunk_part *part)
{
	struct chunk c = { .file = h->file, .i = i };
	struct ingested found = { 0 };
	int r = find_slots(h, &c);

	if (r == 0)
		r = chunk_read(b, &c, part, &found);
	if (r == 0 && h->index->hashed)
		atomic_fetch_add(h->index->hashed, found.size);
	if (r == 0)
		r = memcmp(c.slot, found.sha256, SHA256_SIZE) != 0;
	if (r == 0)
		set_tags(b, h->file, i, found.tags);
	free(found.tags);
	return r;
}
