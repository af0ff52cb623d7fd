/* SPDX-License-Identifier: Apache-2.0 */
#include "object/bytes.h"

#include <stdlib.h>

#include "base/ingest.h"
#include "base/util.h"

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
		 uint64_t chunk)
{
	uint8_t tag[TAG_SIZE];
	int r = tagger_tag(tagger, data, n, tag);

	if (r == 0 && memcmp(tag, b->tags[chunk], TAG_SIZE) != 0)
		r = -EBADMSG;
	return r;
}

/* A part of one chunk: all of the chunk has to be read to check it. */
static int read_part(const struct bytes *b, const struct tagger *tagger, uint64_t size, char *out,
		     size_t n, uint64_t off, bool nowait)
{
	uint64_t chunk = off / CHUNK_SIZE, start = chunk * CHUNK_SIZE;
	size_t len = (size_t)MIN(CHUNK_SIZE, size - start);
	char *data = malloc(len);
	int r;

	if (!data)
		return -ENOMEM;
	r = fetch(b, data, len, start, nowait);
	if (r == 0)
		r = check(b, tagger, data, len, chunk);
	if (r == 0)
		memcpy(out, data + (off - start), n);
	free(data);
	return r;
}

/* Whole chunks, read straight to where they belong. The last one of all may be short. */
static int read_whole(const struct bytes *b, const struct tagger *tagger, char *out, size_t n,
		      uint64_t off, bool nowait)
{
	int r = fetch(b, out, n, off, nowait);

	for (size_t i = 0; i < n && r == 0; i += CHUNK_SIZE)
		r = check(b, tagger, out + i, MIN(CHUNK_SIZE, n - i), (off + i) / CHUNK_SIZE);
	return r;
}

int bytes_read(const struct bytes *b, const struct tagger *tagger, uint64_t size, void *ret_buf,
	       size_t n, uint64_t off, bool nowait)
{
	char *out = ret_buf;
	int r = 0;

	if (b->kind == BYTES_MEMORY) {
		memcpy(out, b->memory + off, n);
		return 0;
	}
	if (!b->tags)
		return n ? fetch(b, out, n, off, nowait) : 0;
	while (n > 0 && r == 0) {
		uint64_t end = off + n;
		size_t step;

		if (off % CHUNK_SIZE == 0 && (n >= CHUNK_SIZE || end == size)) {
			step = end == size ? n : n - n % CHUNK_SIZE;
			r = read_whole(b, tagger, out, step, off, nowait);
		} else {
			step = MIN(n, CHUNK_SIZE - (size_t)(off % CHUNK_SIZE));
			r = read_part(b, tagger, size, out, step, off, nowait);
		}
		out += step;
		off += step;
		n -= step;
	}
	return r;
}

void bytes_free(struct bytes *b)
{
	free(b->memory);
	source_unref(b->source);
	free(b->tags);
	*b = (struct bytes){ .kind = BYTES_NONE };
}
