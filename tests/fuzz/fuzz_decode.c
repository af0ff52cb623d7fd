/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as Deflate data: what is decoded is what zlib decodes, and the error, if any, comes at
 * the same place, whatever the sizes of the reads and of the input's blocks. The first four bytes
 * are these sizes and the length of the result that is declared.
 *
 * One difference is known: ISA-L decodes a block whose Huffman codes do not use all bit patterns,
 * as long as none of the unused ones occurs; zlib refuses most of these. It can be read in one way
 * only.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "archive/container.h"
#include "archive/decode.h"
#include "base/util.h"

#include "fuzz.h"

#define ROOM (1 << 16)

struct part {
	struct stream stream;
	const uint8_t *data;
	size_t left, block;
};

static ssize_t part_read(struct stream *s, void *ret_buf, size_t n)
{
	struct part *p = container_of(s, struct part, stream);

	n = MIN(MIN(n, p->left), p->block);
	memcpy(ret_buf, p->data, n);
	p->data += n;
	p->left -= n;
	return (ssize_t)n;
}

static void part_close(struct stream *s)
{
	free(container_of(s, struct part, stream));
}

/*
 * Decodes `n` bytes with zlib to exactly `size` bytes. Is that what they are? *ret_codes: zlib
 * refuses the codes.
 */
static bool expected(const uint8_t *data, size_t n, uint8_t *out, size_t size, bool *ret_codes)
{
	z_stream z = { .next_in = (uint8_t *)data,
		       .avail_in = (uInt)n,
		       .next_out = out,
		       .avail_out = ROOM + 1 };
	int r;

	CHECK(inflateInit2(&z, -15) == Z_OK);
	r = inflate(&z, Z_FINISH);
	bool ok = r == Z_STREAM_END && z.avail_in == 0 && z.total_out == size;

	*ret_codes = r == Z_DATA_ERROR && (strcmp(z.msg, "invalid distances set") == 0 ||
					   strcmp(z.msg, "invalid literal/lengths set") == 0);
	inflateEnd(&z);
	return ok;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static const struct stream_ops ops = { .read = part_read, .close = part_close };
	static uint8_t want[ROOM + 1], out[ROOM + 16];
	struct stream *s;
	struct part *p;
	size_t size, step, done = 0;
	ssize_t got = 1;

	if (n < 5)
		return 0;
	size = get_le16(data);
	step = (size_t)data[2] * 64 + 1;
	p = malloc(sizeof(*p));
	CHECK(p);
	*p = (struct part){ { &ops }, data + 4, n - 4, (size_t)data[3] * 16 + 1 };
	const struct entry e = {
		.name = "x", .method = METHOD_DEFLATE, .stored = n - 4, .size = size
	};

	CHECK(decode_open(&p->stream, &e, NULL, &s) == 0);
	while (got > 0 && (done < size || size == 0)) {
		size_t room = MIN(step, size - done + 1);

		memset(out + done + room, 0xa5, 8);
		got = stream_read(s, out + done, room);
		for (int i = 0; i < 8; i++)
			CHECK(out[done + room + (size_t)i] == 0xa5);
		CHECK(got <= (ssize_t)room);
		if (got > 0)
			done += (size_t)got;
	}
	stream_close(s);
	bool codes, ok = expected(data + 4, n - 4, want, size, &codes);

	if (codes)
		return 0;
	CHECK(ok == (got >= 0));
	CHECK(got < 0 || (done == size && memcmp(out, want, size) == 0));
	return 0;
}
