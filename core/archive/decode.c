/* SPDX-License-Identifier: Apache-2.0 */
#include "archive/decode.h"

#include <inttypes.h>
#include <stdlib.h>
#define ZSTD_STATIC_LINKING_ONLY /* ZSTD_createDStream_advanced(), ZSTD_getFrameHeader() */
#include <zstd.h>
#include <zstd_errors.h>

#include "archive/container.h"
#include "archive/inflate.h"
#include "base/budget.h"
#include "base/util.h"

#define IN_BLOCK (256 * KIB)

struct decoder {
	struct stream stream;
	struct stream *in;
	const char *name;
	unsigned method;
	uint64_t stored; /* bytes of `in` */
	uint64_t fed;	 /* of them, read so far */
	uint64_t size;	 /* bytes that they must decode to */
	uint64_t made;	 /* of them, returned so far */

	struct budget *budget; /* counts the window; NULL: not counted */
	size_t refused;	       /* bytes that the budget had no room for; 0: none yet */
	ZSTD_DStream *zstd;
	bool frame_open; /* inside a zstd frame */
	struct inflate *inflate;

	ZSTD_inBuffer block; /* of `buf`: what is not decoded yet */

	size_t buf_size;
	char buf[]; /* compressed bytes; no larger than the entry: most are small */
};

bool decode_knows(unsigned method)
{
	return method == METHOD_STORED || method == METHOD_DEFLATE || method == METHOD_ZSTD;
}

const char *decode_name(unsigned method)
{
	switch (method) {
	case METHOD_STORED:
		return "stored";
	case METHOD_DEFLATE:
		return "deflate";
	case METHOD_ZSTD:
		return "zstd";
	default:
		return "unknown";
	}
}

/* Reads on, once all that was read is decoded; not beyond the end. 0, or the error of `in`. */
static int refill(struct decoder *d)
{
	size_t want = (size_t)MIN(d->stored - d->fed, d->buf_size);
	ssize_t got;

	if (d->block.pos < d->block.size || want == 0)
		return 0;
	got = stream_read(d->in, d->buf, want);
	if (got <= 0)
		return got < 0 ? (int)got : -EBADMSG;
	d->fed += (uint64_t)got;
	d->block = (ZSTD_inBuffer){ d->buf, (size_t)got, 0 };
	return 0;
}

static int bad(const struct decoder *d, const char *what)
{
	return log_error(-EBADMSG, d->name,
			 "bad %s data: %s (%" PRIu64 " of %" PRIu64 " bytes decoded)",
			 decode_name(d->method), what, d->made, d->size);
}

/* ---- Stored ---- */

static ssize_t stored_read(struct stream *s, void *ret_buf, size_t n)
{
	struct decoder *d = container_of(s, struct decoder, stream);
	ssize_t got;

	n = (size_t)MIN(n, d->size - d->made);
	if (n == 0)
		return 0;
	got = stream_read(d->in, ret_buf, n);
	if (got == 0)
		return bad(d, "it ends too early");
	if (got > 0)
		d->made += (uint64_t)got;
	return got;
}

/* ---- zstd ---- */

/* Each block of memory begins with how many bytes the budget has counted for it. */
#define SIZE_BEFORE 16

static void *zstd_alloc(void *ctx, size_t n)
{
	struct decoder *d = ctx;
	uint64_t *block;

	if (!budget_hold(d->budget, n)) {
		d->refused = n;
		return NULL;
	}
	block = n < SIZE_MAX - SIZE_BEFORE ? malloc(SIZE_BEFORE + n) : NULL;
	if (!block) {
		budget_drop(d->budget, n);
		return NULL;
	}
	*block = d->budget ? n : 0;
	return (char *)block + SIZE_BEFORE;
}

static void zstd_free(void *ctx, void *p)
{
	const struct decoder *d = ctx;
	uint64_t *block = p ? (uint64_t *)((char *)p - SIZE_BEFORE) : NULL;

	if (block)
		budget_drop(d->budget, *block);
	free(block);
}

static int zstd_fault(struct decoder *d, size_t code)
{
	switch (ZSTD_getErrorCode(code)) {
	case ZSTD_error_frameParameter_windowTooLarge:
		return log_error(
			-EOPNOTSUPP, d->name,
			"zstd window is larger than 2^%d bytes; compress it without --long",
			MAX_ZSTD_WINDOW_LOG);
	case ZSTD_error_dictionary_wrong:
		return log_error(-EOPNOTSUPP, d->name, "zstd frame needs a dictionary");
	case ZSTD_error_memory_allocation:
		if (!d->refused)
			return -ENOMEM;
		return log_error(
			-EFBIG, d->name,
			"decoding takes %zu MiB of memory, and the limit for all of this carton "
			"is %" PRIu64 " MiB; if it is trusted, allow more with memory=SIZE",
			(size_t)(d->refused / MIB) + 1, (uint64_t)(d->budget->limit / MIB));
	default:
		return bad(d, ZSTD_getErrorName(code));
	}
}

/*
 * The first byte of a frame or a skippable one (RFC 8878, 3.1). libzstd may have been built to read
 * older formats as well, which other readers refuse.
 */
static bool begins_frame(uint8_t first)
{
	return first == 0x28 || first >> 4 == 5;
}

/* Each of these decodes a step into `out`. Returns 1 to go on, 0 at the end, or -errno. */

static int zstd_step(struct decoder *d, ZSTD_outBuffer *out)
{
	size_t left;

	if (!d->frame_open && d->block.pos == d->block.size)
		return 0;
	if (!d->frame_open && !begins_frame((uint8_t)d->buf[d->block.pos]))
		return bad(d, "a frame is of no known format");
	left = ZSTD_decompressStream(d->zstd, out, &d->block);
	if (ZSTD_isError(left))
		return zstd_fault(d, left);
	d->frame_open = left != 0;
	return 1;
}

static int zstd_open(struct decoder *d)
{
	const ZSTD_customMem memory = { zstd_alloc, zstd_free, d };

	d->zstd = ZSTD_createDStream_advanced(memory);
	if (!d->zstd ||
	    ZSTD_isError(ZSTD_DCtx_setParameter(d->zstd, ZSTD_d_windowLogMax, MAX_ZSTD_WINDOW_LOG)))
		return -ENOMEM;
	return 0;
}

/* ---- Deflate ---- */

static int deflate_step(struct decoder *d, ZSTD_outBuffer *out)
{
	const char *why;
	int r = inflate_step(d->inflate, &d->block, out, &why);

	if (r == -EBADMSG)
		return bad(d, why);
	if (r == 0 && (d->fed < d->stored || d->block.pos < d->block.size))
		return bad(d, "other bytes follow it");
	return r;
}

/* ---- all ---- */

static void decoder_close(struct stream *s)
{
	struct decoder *d = container_of(s, struct decoder, stream);

	stream_close(d->in);
	ZSTD_freeDStream(d->zstd);
	inflate_free(d->inflate);
	free(d);
}

/* zstd_step() or deflate_step(), of data that ends as it should. */
static int step(struct decoder *d, ZSTD_outBuffer *out)
{
	size_t out_before = out->pos, in_before;
	int r = refill(d);

	if (r < 0)
		return r;
	in_before = d->block.pos;
	r = d->zstd ? zstd_step(d, out) : deflate_step(d, out);
	/* without input, a decoder may still have output left to give */
	if (r == 1 && d->block.pos == in_before && out->pos == out_before)
		return bad(d, "it ends too early");
	return r;
}

/* Once the last byte is returned and the end checked, reads give 0. */
static ssize_t decoder_read(struct stream *s, void *ret_buf, size_t n)
{
	struct decoder *d = container_of(s, struct decoder, stream);
	bool last = n >= d->size - d->made;
	ZSTD_outBuffer out = { ret_buf, (size_t)MIN(n, d->size - d->made), 0 };
	char extra;
	int r = 1;

	if (d->made == d->size && d->size > 0)
		return 0;
	while (r == 1 && out.pos < out.size)
		r = step(d, &out);
	if (r < 0)
		return r;
	d->made += out.pos;
	if (out.pos < out.size)
		return bad(d, "it decodes to less than its declared size");
	/* all declared bytes are decoded: there may be no more, neither compressed nor decoded */
	for (ZSTD_outBuffer more = { &extra, 1, 0 }; last && r == 1;) {
		r = step(d, &more);
		if (more.pos > 0)
			return log_error(-EBADMSG, d->name,
					 "bad %s data: it decodes to more than its declared size, "
					 "%" PRIu64 " bytes",
					 decode_name(d->method), d->size);
	}
	return r < 0 ? r : (ssize_t)out.pos;
}

static const struct stream_ops stored_ops = { stored_read, decoder_close };
static const struct stream_ops decoder_ops = { decoder_read, decoder_close };

int decode_open(struct stream *in, const struct entry *e, struct budget *budget,
		struct stream **ret)
{
	const unsigned method = e->method;
	size_t n = method == METHOD_STORED ? 0 : (size_t)MIN(e->stored, IN_BLOCK);
	struct decoder *d = malloc(sizeof(*d) + n);
	int r = -EOPNOTSUPP;

	if (!d) {
		stream_close(in);
		return -ENOMEM;
	}
	*d = (struct decoder){
		.stream.ops = method == METHOD_STORED ? &stored_ops : &decoder_ops,
		.in = in,
		.name = e->name,
		.method = method,
		.stored = e->stored,
		.size = e->size,
		.buf_size = n,
	};
	if (method == METHOD_STORED)
		r = e->stored == e->size ? 0 : bad(d, "its two sizes differ");
	else if (e->stored == 0 && decode_knows(method))
		r = bad(d, "it has no bytes, so it ends too early");
	else if (method == METHOD_ZSTD)
		r = zstd_open(d);
	else if (method == METHOD_DEFLATE)
		r = inflate_new(&d->inflate);
	/* from now on: what every stream takes is there even when nothing is left of the budget */
	d->budget = budget;
	if (r < 0)
		decoder_close(&d->stream);
	else
		*ret = &d->stream;
	return r;
}

/* ---- in memory ---- */

/* inflate_step() until `out` is full, or nothing moves. */
static int inflate_to(struct inflate *f, ZSTD_inBuffer *in, ZSTD_outBuffer *out)
{
	const char *why;
	size_t before;
	int r;

	do {
		before = in->pos + out->pos;
		r = inflate_step(f, in, out, &why);
	} while (r == 1 && out->pos < out->size && in->pos + out->pos > before);
	return r;
}

/* Exactly `size` bytes, and nothing behind them? */
static bool inflate_memory(const void *data, size_t stored, void *ret, size_t size)
{
	char extra;
	ZSTD_inBuffer in = { data, stored, 0 };
	ZSTD_outBuffer out = { ret, size, 0 }, more = { &extra, 1, 0 };
	struct inflate *f = NULL;
	int r = inflate_new(&f) < 0 ? -ENOMEM : 1;

	if (r == 1 && size > 0)
		r = inflate_to(f, &in, &out);
	if (r == 1)
		r = inflate_to(f, &in, &more);
	inflate_free(f);
	return r == 0 && out.pos == size && more.pos == 0 && in.pos == in.size;
}

/* Is it one frame whose window is not too large? */
static bool is_plain_frame(const void *in, size_t stored)
{
	ZSTD_frameHeader h;

	return ZSTD_getFrameHeader(&h, in, stored) == 0 &&
	       h.windowSize <= 1ULL << MAX_ZSTD_WINDOW_LOG &&
	       ZSTD_findFrameCompressedSize(in, stored) == stored;
}

int decode_memory(const void *in, size_t stored, unsigned method, void *ret, size_t size)
{
	bool done = false;

	if (method == METHOD_STORED && stored == size) {
		memcpy(ret, in, size);
		done = true;
	} else if (method == METHOD_ZSTD && is_plain_frame(in, stored)) {
		/* an error is larger than any size */
		done = ZSTD_decompress(ret, size, in, stored) == size;
	} else if (method == METHOD_DEFLATE && stored > 0) {
		done = inflate_memory(in, stored, ret, size);
	}
	return done ? 0 : -EAGAIN;
}
