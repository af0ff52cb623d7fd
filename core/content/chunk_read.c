/* SPDX-License-Identifier: Apache-2.0 */
#include "content/chunk_read.h"

#include <errno.h>
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

/*
 * Reads the `len` bytes at `at` piece by piece: hashes and tags just these bytes, and copies of
 * them. 0, -ENOMEM, or as source_pread(). The caller frees the tags.
 */
static int chunk_read(const struct chunked_bytes *b, uint64_t at, size_t len,
		      const struct chunk_part *part, struct ingested *ret)
{
	char *data = malloc(PIECE);
	struct hasher h = { 0 };
	size_t n;
	int r = data ? hasher_begin(&h, b->tagger, true) : -ENOMEM;

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
		return hasher_end(&h, ret);
	hasher_abort(&h);
	return r;
}

void chunk_hashes_init(struct chunk_hashes *h, const struct chunk_index *index,
		       const struct chunks_file *file)
{
	h->index = index;
	h->file = file;
	h->block = UINT64_MAX;
	pthread_mutex_init(&h->lock, NULL);
}

void chunk_hashes_finish(struct chunk_hashes *h)
{
	pthread_mutex_destroy(&h->lock);
}

/* The hash of chunk `i`. 0 or why the index could not be read. */
static int wanted(struct chunk_hashes *h, uint64_t i, uint8_t ret[SHA256_SIZE])
{
	uint64_t block = i / CHUNK_HASHES, first = block * CHUNK_HASHES;
	int r = 0;

	pthread_mutex_lock(&h->lock);
	if (h->block != block) {
		h->block = UINT64_MAX;
		r = h->index->read(h->index->ctx, h->hashes,
				   (size_t)MIN(CHUNK_HASHES, chunks_count(h->file) - first) *
					   SHA256_SIZE,
				   chunks_hash_at(h->index->chunks, h->file, first));
	}
	if (r == 0) {
		h->block = block;
		memcpy(ret, h->hashes[i % CHUNK_HASHES], SHA256_SIZE);
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

int chunk_compare(const struct chunked_bytes *b, struct chunk_hashes *h, uint64_t i,
		  const struct chunk_part *part)
{
	uint8_t want[SHA256_SIZE] = { 0 };
	struct ingested found = { 0 };
	int r = chunk_read(b, i * h->file->chunk_size, chunk_len(h->file, i), part, &found);

	if (r == 0)
		r = wanted(h, i, want);
	if (r == 0)
		r = memcmp(want, found.sha256, SHA256_SIZE) != 0;
	if (r == 0)
		set_tags(b, h->file, i, found.tags);
	free(found.tags);
	return r;
}
