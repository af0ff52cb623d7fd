/* SPDX-License-Identifier: Apache-2.0 */
#include "writer/choose.h"

#include <stdlib.h>

#include "archive/decode.h"

#define SAMPLE ((size_t)(128 * KIB))
#define SAMPLES 8

bool choose_shrinks(uint64_t size, uint64_t packed)
{
	return packed <= size - (size + 19) / 20;
}

enum choice choose(enum compression how, bool level_given, uint64_t size, const struct entry *e)
{
	bool packed = e && e->method != METHOD_STORED;

	if (how == COMPRESS_KEEP && e)
		return CHOOSE_COPY;
	if (size == 0)
		how = COMPRESS_STORE;
	if (how == COMPRESS_KEEP || how == COMPRESS_AUTO) {
		if (!packed)
			return CHOOSE_SHRINK;
		how = choose_shrinks(size, e->stored) ? COMPRESS_ZSTD : COMPRESS_STORE;
	}
	if (how == COMPRESS_STORE)
		return e && !packed ? CHOOSE_COPY : CHOOSE_STORE;
	return e && e->method == METHOD_ZSTD && !level_given ? CHOOSE_COPY : CHOOSE_ZSTD;
}

int choose_by_samples(struct encoder *e, uint64_t size, choose_read_fn *read, void *ctx, bool *ret)
{
	char *data = malloc(SAMPLE), *packed = malloc((size_t)encode_bound(SAMPLE));
	uint64_t total = 0;
	size_t n;
	int r = data && packed ? 0 : -ENOMEM;

	for (unsigned i = 0; r == 0 && i < SAMPLES; i++) {
		r = read(ctx, data, SAMPLE, (size - SAMPLE) / (SAMPLES - 1) * i);
		if (r == 0)
			r = encoder_block(e, data, SAMPLE, packed, &n);
		if (r == 0)
			total += n;
	}
	if (r == 0)
		*ret = choose_shrinks(SAMPLES * SAMPLE, total);
	free(data);
	free(packed);
	return r;
}
