/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <zlib.h>

#include "archive/inflate.h"
#include "base/util.h"

#define RAW_WINDOW (-15) /* the largest window; no header */

struct inflate {
	z_stream z;
};

int inflate_new(struct inflate **ret)
{
	struct inflate *f = calloc(1, sizeof(*f));

	if (!f || inflateInit2(&f->z, RAW_WINDOW) != Z_OK) {
		free(f);
		return -ENOMEM;
	}
	*ret = f;
	return 0;
}

int inflate_step(struct inflate *f, ZSTD_inBuffer *in, ZSTD_outBuffer *out, const char **ret_why)
{
	z_stream *z = &f->z;
	int code;

	z->next_in = (Bytef *)in->src + in->pos;
	z->avail_in = (uInt)MIN(in->size - in->pos, (size_t)UINT_MAX);
	z->next_out = (Bytef *)out->dst + out->pos;
	z->avail_out = (uInt)MIN(out->size - out->pos, (size_t)UINT_MAX);
	code = inflate(z, Z_NO_FLUSH);
	in->pos = (size_t)(z->next_in - (const Bytef *)in->src);
	out->pos = (size_t)(z->next_out - (Bytef *)out->dst);
	if (code == Z_OK || code == Z_BUF_ERROR)
		return 1;
	*ret_why = z->msg ? z->msg : "damaged";
	return code == Z_STREAM_END ? 0 : code == Z_MEM_ERROR ? -ENOMEM : -EBADMSG;
}

void inflate_free(struct inflate *f)
{
	if (f)
		inflateEnd(&f->z);
	free(f);
}
