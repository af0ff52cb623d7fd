/* SPDX-License-Identifier: Apache-2.0 */
#include "writer/choose.h"

#include "archive/decode.h"

bool choose_shrinks(uint64_t size, uint64_t packed)
{
	return packed <= size - (size + 19) / 20;
}

enum choice choose(enum compression how, bool level_given, uint64_t size, const struct entry *e)
{
	bool packed = e && e->method != METHOD_STORED;

	if (how == COMPRESS_KEEP && e)
		return CHOOSE_COPY;
	if (size < (how == COMPRESS_ZSTD ? 1 : CHOOSE_SMALL))
		how = COMPRESS_STORE;
	if (how == COMPRESS_KEEP || how == COMPRESS_AUTO) {
		if (!packed && size < CHOOSE_LARGE)
			return CHOOSE_SHRINK;
		how = size < CHOOSE_LARGE && choose_shrinks(size, e->stored) ? COMPRESS_ZSTD :
									       COMPRESS_STORE;
	}
	if (how == COMPRESS_STORE)
		return e && !packed ? CHOOSE_COPY : CHOOSE_STORE;
	return e && e->method == METHOD_ZSTD && !level_given ? CHOOSE_COPY : CHOOSE_ZSTD;
}
