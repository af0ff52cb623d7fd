/* SPDX-License-Identifier: Apache-2.0 */
#include "archive/unpack.h"

#include <stdlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "archive/gunzip.h"
#include "base/util.h"

/* gzip is decoded in steps of so many coded bytes; each byte decodes to at most 1032 */
#define GZIP_STEP (4 * KIB)
#define GZIP_OUT (GZIP_STEP * 1032 + 64 * KIB)
#define IN_BLOCK (128 * KIB)
/* memory of a zstd decoder besides its window, which is counted once its size is known */
#define ZSTD_EXTRA (512 * KIB)

struct unpack {
	struct stream stream;
	struct stream *in;
	const char *name;
	struct budget *budget;
	uint64_t held; /* taken from the budget */
	bool over;     /* `in` has ended */
	bool open;     /* inside a zstd frame */
	size_t at, n;  /* `block` from `at` to `n` is not decoded yet */
	struct gunzip *gunzip;
	struct buf out; /* the decoded bytes of a gzip step */
	size_t given;	/* how many of them the reader has got */
	ZSTD_DStream *zstd;
	char block[IN_BLOCK];
};

enum unpack_coding unpack_coding(const void *head, size_t n)
{
	const uint8_t *p = head;

	if (n >= 2 && p[0] == 0x1f && p[1] == 0x8b)
		return UNPACK_GZIP;
	/* a zstd frame, or a skippable frame (RFC 8878, 3.1) */
	if (n >= UNPACK_MAGIC &&
	    (get_le32(p) == 0xfd2fb528 || (get_le32(p) & 0xfffffff0) == 0x184d2a50))
		return UNPACK_ZSTD;
	return UNPACK_NONE;
}

static int bad(const struct unpack *u, const char *what)
{
	return log_error(-EBADMSG, u->name, "cannot be unpacked: its %s data %s",
			 u->zstd ? "zstd" : "gzip", what);
}

/* Reads the next block, if all of the last one is decoded. */
static int refill(struct unpack *u)
{
	ssize_t got;

	if (u->at < u->n || u->over)
		return 0;
	got = stream_read(u->in, u->block, sizeof(u->block));
	if (got < 0)
		return (int)got;
	u->over = got == 0;
	u->at = 0;
	u->n = (size_t)got;
	return 0;
}

/* ---- gzip ---- */

static int put(void *ctx, const void *data, size_t n)
{
	struct unpack *u = ctx;

	return buf_add(&u->out, data, n);
}

/* Decodes the next step into u->out, whose bytes were all given. */
static int gzip_step(struct unpack *u)
{
	size_t n = MIN(u->n - u->at, (size_t)GZIP_STEP);
	int r;

	u->out.len = u->given = 0;
	r = u->over ? gunzip_end(u->gunzip) : gunzip_feed(u->gunzip, u->block + u->at, n);
	u->at += n;
	return r == -EBADMSG ? bad(u, u->over ? "ends too early" : "is damaged") : r;
}

static ssize_t gzip_read(struct unpack *u, void *ret_buf, size_t n)
{
	int r = 0;

	while (u->given == u->out.len && !u->over && r == 0) {
		r = refill(u);
		if (r == 0)
			r = gzip_step(u);
	}
	if (r < 0)
		return r;
	n = MIN(n, u->out.len - u->given);
	if (n > 0)
		memcpy(ret_buf, u->out.data + u->given, n);
	u->given += n;
	return (ssize_t)n;
}

/* ---- zstd ---- */

static int zstd_fault(const struct unpack *u, size_t code)
{
	switch (ZSTD_getErrorCode(code)) {
	case ZSTD_error_frameParameter_windowTooLarge:
		return log_error(-EOPNOTSUPP, u->name,
				 "zstd window is larger than 2^%d bytes; compress it without "
				 "--long",
				 MAX_ZSTD_WINDOW_LOG);
	case ZSTD_error_dictionary_wrong:
		return log_error(-EOPNOTSUPP, u->name, "zstd frame needs a dictionary");
	case ZSTD_error_memory_allocation:
		return -ENOMEM;
	default:
		return bad(u, ZSTD_getErrorName(code));
	}
}

/* Takes from the budget what the decoder has allocated for its current frame. */
static int count_window(struct unpack *u)
{
	uint64_t size = ZSTD_sizeof_DStream(u->zstd);

	if (size <= u->held)
		return 0;
	if (budget_take(u->budget, size - u->held) < 0)
		return -EFBIG;
	u->held = size;
	return 0;
}

static ssize_t zstd_read(struct unpack *u, void *ret_buf, size_t n)
{
	ZSTD_outBuffer out = { ret_buf, n, 0 };
	size_t left;
	int r;

	while (out.pos == 0) {
		ZSTD_inBuffer in;

		r = refill(u);
		if (r < 0)
			return r;
		if (u->over && !u->open)
			return 0;
		/* libzstd may have been built to read older formats as well */
		if (!u->open && (uint8_t)u->block[u->at] != 0x28 &&
		    (uint8_t)u->block[u->at] >> 4 != 5)
			return bad(u, "is followed by other bytes");
		in = (ZSTD_inBuffer){ u->block, u->n, u->at };
		left = ZSTD_decompressStream(u->zstd, &out, &in);
		if (ZSTD_isError(left))
			return zstd_fault(u, left);
		/* even without input, the decoder may have output left */
		if (u->over && out.pos == 0 && left != 0)
			return bad(u, "ends too early");
		u->at = in.pos;
		u->open = left != 0;
		r = count_window(u);
		if (r < 0)
			return r;
	}
	return (ssize_t)out.pos;
}

/* ---- the stream ---- */

static ssize_t unpack_read(struct stream *s, void *ret_buf, size_t n)
{
	struct unpack *u = container_of(s, struct unpack, stream);

	return u->zstd ? zstd_read(u, ret_buf, n) : gzip_read(u, ret_buf, n);
}

static void unpack_close(struct stream *s)
{
	struct unpack *u = container_of(s, struct unpack, stream);

	stream_close(u->in);
	gunzip_free(u->gunzip);
	ZSTD_freeDStream(u->zstd);
	buf_finish(&u->out);
	budget_give(u->budget, u->held);
	free(u);
}

static const struct stream_ops unpack_ops = { unpack_read, unpack_close };

static int begin(struct unpack *u, enum unpack_coding coding)
{
	u->held = coding == UNPACK_ZSTD ? ZSTD_EXTRA : GZIP_OUT;
	if (budget_take(u->budget, u->held) < 0) {
		u->held = 0;
		return -EFBIG;
	}
	if (coding == UNPACK_GZIP)
		return gunzip_new(put, u, &u->gunzip);
	u->zstd = ZSTD_createDStream();
	if (!u->zstd ||
	    ZSTD_isError(ZSTD_DCtx_setParameter(u->zstd, ZSTD_d_windowLogMax, MAX_ZSTD_WINDOW_LOG)))
		return -ENOMEM;
	return 0;
}

int unpack_open(struct stream *in, const char *name, enum unpack_coding coding,
		struct budget *budget, struct stream **ret)
{
	struct unpack *u = calloc(1, sizeof(*u));
	int r;

	if (!u) {
		stream_close(in);
		return -ENOMEM;
	}
	u->stream.ops = &unpack_ops;
	u->in = in;
	u->name = name;
	u->budget = budget;
	u->out = buf_init(GZIP_OUT);
	r = begin(u, coding);
	if (r < 0)
		unpack_close(&u->stream);
	else
		*ret = &u->stream;
	return r;
}
