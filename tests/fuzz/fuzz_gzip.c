/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a gzip body of several members: what is decoded is what zlib decodes member by
 * member, however the bytes are divided (by the first one), and an error is the same one. What
 * refuses bytes ends the decoding at once.
 */
#include <errno.h>
#include <string.h>
#include <zlib.h>

#include "base/util.h"
#include "archive/gunzip.h"

#include "fuzz.h"

#define ROOM (1 << 17) /* more is not wanted */

struct out {
	unsigned char data[ROOM];
	size_t n;
	bool over;
};

static int put(void *ctx, const void *data, size_t n)
{
	struct out *o = ctx;

	CHECK(!o->over && n <= 64 << 10);
	if (n > ROOM - o->n) {
		o->over = true;
		return -EFBIG;
	}
	memcpy(o->data + o->n, data, n);
	o->n += n;
	return 0;
}

/* 0, -EBADMSG or -EFBIG. */
static int decode(const uint8_t *data, size_t n, size_t step, struct out *o)
{
	struct gunzip *g;
	int r = 0;

	o->n = 0;
	o->over = false;
	CHECK(gunzip_new(put, o, &g) == 0);
	for (size_t at = 0; r == 0 && at < n; at += step)
		r = gunzip_feed(g, data + at, MIN(step, n - at));
	if (r == 0)
		r = gunzip_end(g);
	gunzip_free(g);
	CHECK(r == 0 || r == -EBADMSG || r == -EFBIG);
	return r;
}

static bool are_zeros(const uint8_t *data, size_t n)
{
	while (n > 0 && data[n - 1] == 0)
		n--;
	return n == 0;
}

/* The same with one call for each member; zeros may follow the last one. */
static int expected(const uint8_t *data, size_t n, struct out *o)
{
	int r = Z_STREAM_END;
	bool full = false;

	o->n = 0;
	if (n == 0)
		return -EBADMSG;
	while (n > 0 && r == Z_STREAM_END) {
		z_stream z = { .next_in = (uint8_t *)data,
			       .avail_in = (uInt)n,
			       .next_out = o->data + o->n,
			       .avail_out = (uInt)(ROOM - o->n) };

		CHECK(inflateInit2(&z, 31) == Z_OK);
		r = inflate(&z, Z_SYNC_FLUSH);
		/* is there one byte more? */
		if (r == Z_OK && z.avail_out == 0) {
			z.next_out = &(unsigned char){ 0 };
			z.avail_out = 1;
			r = inflate(&z, Z_SYNC_FLUSH);
			full = z.avail_out == 0;
			z.avail_out = 0;
		}
		o->n = ROOM - z.avail_out;
		data += n - z.avail_in;
		n = z.avail_in;
		inflateEnd(&z);
		if (full)
			return -EFBIG;
		if (r == Z_STREAM_END && are_zeros(data, n))
			n = 0;
	}
	return r == Z_STREAM_END ? 0 : -EBADMSG;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static struct out want, whole, parts;
	int r, ref;

	if (n < 1)
		return 0;
	ref = expected(data + 1, n - 1, &want);
	r = decode(data + 1, n - 1, n, &whole);
	/* of two faults the one is found first that is nearer to where a block ends */
	CHECK((r < 0) == (ref < 0));
	CHECK((decode(data + 1, n - 1, (size_t)data[0] + 1, &parts) < 0) == (r < 0));
	if (r != 0)
		return 0;
	CHECK(whole.n == want.n && memcmp(whole.data, want.data, want.n) == 0);
	CHECK(parts.n == want.n && memcmp(parts.data, want.data, want.n) == 0);
	return 0;
}
