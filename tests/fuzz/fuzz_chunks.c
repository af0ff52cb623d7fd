/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a chunk index: what is accepted has each file found, and each hash within the bytes.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "format/chunks.h"

#include "fuzz.h"

struct input {
	const uint8_t *data;
	size_t n;
};

static int read_input(void *ctx, void *ret_buf, size_t n, uint64_t off)
{
	const struct input *in = ctx;

	if (off > in->n || n > in->n - off)
		abort();
	memcpy(ret_buf, in->data + off, n);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct input in = { data, n };
	struct chunks *c;
	uint64_t at = 0;
	int r = chunks_parse(n, read_input, &in, NULL, &c);

	if (r < 0) {
		if (r != -EBADMSG && r != -EOPNOTSUPP && r != -EFBIG)
			abort();
		return 0;
	}
	for (size_t i = 0; i < c->n; i++) {
		const struct chunks_file *f = &c->files[i];
		uint64_t last = chunks_count(f) - 1;

		if (chunks_find(c, f->sha256) != f)
			abort();
		if (i > 0 && chunks_hash_at(c, f, 0) != at)
			abort();
		at = chunks_hash_at(c, f, last) + SHA256_SIZE;
		if (at > n || (f->size - 1) / f->chunk_size != last)
			abort();
	}
	if (c->n > 0 && at != n)
		abort();
	chunks_free(c);
	return 0;
}
