/* SPDX-License-Identifier: Apache-2.0 */
#include "archive/encode.h"

#include <stdlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "base/util.h"

#define OUT_BLOCK (256 * KIB)
#define JOB_SIZE (8 * MIB) /* of a stream; with another size the compressed bytes differ */

struct encoder {
	ZSTD_CCtx *zstd;
	encode_write_fn *write;
	void *ctx;
	char out[OUT_BLOCK];
};

static int fault(size_t code)
{
	switch (ZSTD_getErrorCode(code)) {
	case ZSTD_error_memory_allocation:
		return -ENOMEM;
	case ZSTD_error_srcSize_wrong:
		return -EBADMSG;
	default:
		return -EIO;
	}
}

static bool set(struct encoder *e, ZSTD_cParameter parameter, int value)
{
	return !ZSTD_isError(ZSTD_CCtx_setParameter(e->zstd, parameter, value));
}

int encoder_new(unsigned level, unsigned threads, struct encoder **ret)
{
	struct encoder *e = malloc(sizeof(*e));

	if (!e)
		return -ENOMEM;
	e->zstd = ZSTD_createCCtx();
	if (!e->zstd || !set(e, ZSTD_c_compressionLevel, (int)level)) {
		encoder_free(e);
		return -ENOMEM;
	}
	/* one thread must make the same bytes as many, so it works in jobs too */
	if (threads &&
	    (!set(e, ZSTD_c_nbWorkers, (int)threads) || !set(e, ZSTD_c_jobSize, (int)JOB_SIZE))) {
		carton_log(CARTON_LOG_ERROR, NULL,
			   "libzstd was built without threads; --compress=store needs none");
		encoder_free(e);
		return -EOPNOTSUPP;
	}
	*ret = e;
	return 0;
}

void encoder_free(struct encoder *e)
{
	if (!e)
		return;
	ZSTD_freeCCtx(e->zstd);
	free(e);
}

uint64_t encode_bound(uint64_t n)
{
	return n + n / 256 + 64 * KIB;
}

uint64_t encode_memory(unsigned level)
{
	/* a window and its tables, and the buffers of a job */
	return (level < 10 ? 16 * MIB : 96 * MIB) + 3 * JOB_SIZE;
}

int encoder_block(struct encoder *e, const void *data, size_t n, void *ret_data, size_t *ret_n)
{
	size_t r = ZSTD_compress2(e->zstd, ret_data, (size_t)encode_bound(n), data, n);

	if (ZSTD_isError(r))
		return fault(r);
	*ret_n = r;
	return 0;
}

int encoder_begin(struct encoder *e, uint64_t size, encode_write_fn *write, void *ctx)
{
	size_t r = ZSTD_CCtx_reset(e->zstd, ZSTD_reset_session_only);

	e->write = write;
	e->ctx = ctx;
	if (!ZSTD_isError(r))
		r = ZSTD_CCtx_setPledgedSrcSize(e->zstd, size);
	return ZSTD_isError(r) ? fault(r) : 0;
}

int encoder_feed(struct encoder *e, const void *data, size_t n, bool last)
{
	ZSTD_inBuffer in = { data, n, 0 };
	size_t left;

	do {
		ZSTD_outBuffer out = { e->out, sizeof(e->out), 0 };
		int r;

		left = ZSTD_compressStream2(e->zstd, &out, &in,
					    last ? ZSTD_e_end : ZSTD_e_continue);
		if (ZSTD_isError(left))
			return fault(left);
		r = out.pos ? e->write(e->ctx, e->out, out.pos) : 0;
		if (r < 0)
			return r;
	} while (last ? left != 0 : in.pos < in.size);
	return 0;
}
