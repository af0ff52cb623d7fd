/* SPDX-License-Identifier: Apache-2.0 */
#include "content/chunk_read.h"

#include <stdlib.h>

#include "base/util.h"

/* read at once; a multiple of TAG_BLOCK */
#define PIECE ((size_t)(128 * KIB))

static void copy_part(const struct chunk_part *x, const char *data, size_t n, size_t at)
{
	size_t from = MAX(x->off, at), end = MIN(x->off + x->n, at + n);

	if (from < end)
		memcpy(x->to + (from - x->off), data + (from - at), end - from);
}

int chunk_read(const struct chunked_bytes *b, uint64_t at, size_t len,
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
