/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as what is kept of a carton: what is accepted is written as it was, byte for byte, and
 * can be read at each place that it says, and at none beside.
 */
#include <errno.h>
#include <string.h>

#include "base/limits.h"
#include "base/util.h"
#include "fetch/snapshot.h"

#include "fuzz.h"

#define HEADER 24
#define RECORD 16
#define SMALL 100

static void check_ranges(const struct snapshot *s, const uint8_t *data, size_t n)
{
	char got[SMALL];
	uint64_t first = 0;

	for (size_t at = HEADER; at < n; first += first < 1) {
		uint64_t off = get_le64(data + at), len = get_le64(data + at + 8);

		at += RECORD;
		CHECK(len <= n - at && cached_ranges_read(s->ranges, NULL, len, off));
		/* of two that overlap either may be read: only the first is compared */
		if (first == 0 && len > 0 && len <= SMALL) {
			CHECK(cached_ranges_read(s->ranges, got, len, off));
			CHECK(memcmp(got, data + at, len) == 0);
		}
		at += len;
	}
	CHECK(!cached_ranges_read(s->ranges, NULL, n, 0) || n == 0);
	CHECK(!cached_ranges_read(s->ranges, NULL, UINT64_MAX, 1) &&
	      !cached_ranges_read(s->ranges, NULL, n, UINT64_MAX));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct snapshot s = { .ranges = cached_ranges_new(MAX_SNAPSHOT) };
	struct buf text = buf_init(MAX_SNAPSHOT);
	struct source *source;
	uint8_t sha256[SHA256_SIZE];
	char path[32];
	int r, fd = fuzz_file(data, n, path);

	CHECK(s.ranges && source_from_fd(fd, &source) == 0 && sha256_mem(data, n, sha256) == 0);
	r = snapshot_read(source, sha256, &s);
	source_unref(source);
	CHECK(r == 0 || r == -EBADMSG || r == -ENODATA || r == -EIO);
	if (r == 0) {
		CHECK(n >= HEADER && snapshot_write(&s, &text) == 0);
		CHECK(text.len == n && memcmp(text.data, data, n) == 0);
		check_ranges(&s, data, n);
		/* a larger one is refused, and nothing is written behind the end */
		buf_finish(&text);
		text = buf_init(n - 1);
		CHECK(snapshot_write(&s, &text) == -EFBIG);
	}
	buf_finish(&text);
	cached_ranges_free(s.ranges);
	return 0;
}
