/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a chunk index: what is accepted has each file found, each slot within the bytes, and
 * the sha256 of each file in its last slot.
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

size_t LLVMFuzzerMutate(uint8_t *data, size_t n, size_t max);

/* Half of them get the last slots that their records ask for: few would come so far by chance. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t n, size_t max, unsigned int seed)
{
	uint64_t n_files, at;

	n = LLVMFuzzerMutate(data, n, max);
	if (n < 40 || seed % 2)
		return n;
	n_files = MIN(get_le64(data + 24), (n - 40) / 56);
	for (uint64_t i = 0; i < n_files; i++) {
		const uint8_t *p = data + 40 + 56 * i;
		uint64_t size = get_le64(p + 32), chunk = get_le64(p + 40);

		if (!size || !chunk)
			continue;
		at = 40 + 56 * n_files + SHA256_SIZE * (get_le64(p + 48) + (size - 1) / chunk);
		if (at >= 40 + 56 * n_files && at <= n - SHA256_SIZE)
			memcpy(data + at, p, SHA256_SIZE);
	}
	return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct input in = { data, n };
	struct chunks *c;
	uint64_t at = 0;
	int r = chunks_parse(n, read_input, &in, NULL, &c);

	if (r == 0 && !c)
		return 0;
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
		if (i > 0 && chunks_slot_at(c, f, 0) != at)
			abort();
		at = chunks_slot_at(c, f, last) + SHA256_SIZE;
		if (at > n || (f->size - 1) / f->chunk_size != last)
			abort();
		if (memcmp(data + at - SHA256_SIZE, f->sha256, SHA256_SIZE) != 0)
			abort();
	}
	if (c->n > 0 && at != n)
		abort();
	chunks_free(c);
	return 0;
}
