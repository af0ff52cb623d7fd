/* SPDX-License-Identifier: Apache-2.0 */
#include "content/bytes.h"

#include <stdlib.h>

#include "base/ingest.h"
#include "base/budget.h"
#include "base/util.h"

/* a smaller file is read before that is of use */
#define AHEAD_MIN (4 * MIB)

int bytes_use_chunks(struct bytes *b, const struct chunk_index *index, const struct chunks_file *f,
		     const struct tagger *tagger, const char *name)
{
	struct chunked_bytes bytes = { b->source, b->off, .tagger = tagger };

	/* pages that are never written to are never allocated */
	b->tags = calloc((size_t)((f->size - 1) / TAG_BLOCK) + 1, TAG_SIZE);
	bytes.tags = b->tags;
	return b->tags ? chunked_new(index, f, &bytes, name, &b->chunks) : -ENOMEM;
}

struct range {
	size_t n;
	uint64_t off;
};

static int fetch(const struct bytes *b, void *ret_buf, size_t n, uint64_t off, bool nowait)
{
	int r;

	if (nowait)
		return source_pread_nowait(b->source, ret_buf, n, b->off + off);
	r = source_pread(b->source, ret_buf, n, b->off + off);
	/* a file that ends too early was cut off since */
	return r == -ENODATA ? -EBADMSG : r;
}

static int check(const struct bytes *b, const struct tagger *tagger, const void *data, size_t n,
		 uint64_t block)
{
	uint8_t tag[TAG_SIZE];
	int r = tagger_tag(tagger, data, n, tag);

	if (r == 0 && memcmp(tag, b->tags[block], TAG_SIZE) != 0)
		r = -EBADMSG;
	return r;
}

/* A part of one block: all of the block has to be read to check it. */
static int read_part(const struct bytes *b, const struct tagger *tagger, uint64_t size, char *out,
		     size_t n, uint64_t off, bool nowait)
{
	uint64_t block = off / TAG_BLOCK, start = block * TAG_BLOCK;
	size_t len = (size_t)MIN(TAG_BLOCK, size - start);
	char *data = malloc(len);
	int r;

	if (!data)
		return -ENOMEM;
	r = fetch(b, data, len, start, nowait);
	if (r == 0)
		r = check(b, tagger, data, len, block);
	if (r == 0)
		memcpy(out, data + (off - start), n);
	free(data);
	return r;
}

/* Whole blocks, read straight to where they belong. The last one of all may be short. */
static int read_whole(const struct bytes *b, const struct tagger *tagger, char *out, size_t n,
		      uint64_t off, bool nowait)
{
	int r = fetch(b, out, n, off, nowait);

	for (size_t i = 0; i < n && r == 0; i += TAG_BLOCK)
		r = check(b, tagger, out + i, MIN(TAG_BLOCK, n - i), (off + i) / TAG_BLOCK);
	return r;
}

static int read_tagged(const struct bytes *b, const struct tagger *tagger, uint64_t size, char *out,
		       struct range at, bool nowait)
{
	int r = 0;

	while (at.n > 0 && r == 0) {
		uint64_t end = at.off + at.n;
		size_t step;

		if (at.off % TAG_BLOCK == 0 && (at.n >= TAG_BLOCK || end == size)) {
			step = end == size ? at.n : at.n - at.n % TAG_BLOCK;
			r = read_whole(b, tagger, out, step, at.off, nowait);
		} else {
			step = MIN(at.n, TAG_BLOCK - (size_t)(at.off % TAG_BLOCK));
			r = read_part(b, tagger, size, out, step, at.off, nowait);
		}
		out += step;
		at.off += step;
		at.n -= step;
	}
	return r;
}

/* Some chunks may not have been read before. */
static int read_chunks(const struct bytes *b, const struct tagger *tagger, uint64_t size, char *out,
		       struct range at, bool nowait)
{
	int r = 0;

	while (at.n > 0 && r >= 0) {
		struct range part = { .off = at.off };
		uint64_t doubts = chunked_doubts(b->chunks);
		bool verified;

		r = chunked_span(b->chunks, at.off, at.n, &part.n, &verified);
		if (r < 0)
			break;
		if (verified)
			r = read_tagged(b, tagger, size, out, part, nowait);
		else if (nowait)
			r = -EAGAIN;
		else
			r = chunked_read(b->chunks, out, part.n, part.off);
		if (r == -EBADMSG && verified && chunked_doubt(b->chunks, part.off, doubts))
			r = 1;
		if (r == 1)
			continue;
		out += part.n;
		at.off += part.n;
		at.n -= part.n;
	}
	return r;
}

void bytes_read_ahead(struct bytes *b, uint64_t size)
{
	/* where chunks are fetched as they are read, they are no earlier on the disk */
	if (b->source && source_is_local(b->source) && size >= AHEAD_MIN &&
	    !(b->chunks && chunked_filler(b->chunks)))
		b->ahead = disk_ahead_new();
}

struct disk_range bytes_ahead(const struct bytes *b, uint64_t size, size_t n, uint64_t off)
{
	struct disk_range next = { 0 };

	if (b->ahead && n > 0)
		next = disk_ahead_read(b->ahead, size, off, n);
	if (next.n > 0)
		source_will_need(b->source, b->off + next.off, next.n);
	return next;
}

int bytes_read(const struct bytes *b, const struct tagger *tagger, uint64_t size, void *ret_buf,
	       size_t n, uint64_t off, bool nowait)
{
	struct range at = { n, off };

	if (b->kind == BYTES_MEMORY) {
		memcpy(ret_buf, b->memory + off, n);
		return 0;
	}
	if (!b->tags)
		return n ? fetch(b, ret_buf, n, off, nowait) : 0;
	if (b->chunks)
		return read_chunks(b, tagger, size, ret_buf, at, nowait);
	return read_tagged(b, tagger, size, ret_buf, at, nowait);
}

void bytes_count(struct bytes *b, uint64_t size, struct budget *budget)
{
	/* those of chunks are made as they are read */
	if (!b->tags || b->chunks || b->counted)
		return;
	b->budget = budget;
	b->counted = ((size + TAG_BLOCK - 1) / TAG_BLOCK) * TAG_SIZE;
	if (!budget_hold(budget, b->counted))
		budget_charge(budget, b->counted);
}

void bytes_finish(struct bytes *b)
{
	budget_drop(b->budget, b->counted);
	free(b->memory);
	source_unref(b->source);
	free(b->tags);
	chunked_free(b->chunks);
	disk_ahead_free(b->ahead);
	*b = (struct bytes){ .kind = BYTES_NONE };
}
