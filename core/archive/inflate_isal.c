/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <isa-l/igzip_lib.h>
#include <stdlib.h>

#include "archive/inflate.h"
#include "base/util.h"

struct inflate {
	struct inflate_state state;
};

int inflate_new(struct inflate **ret)
{
	struct inflate *f = malloc(sizeof(*f));

	if (!f)
		return -ENOMEM;
	/* this sets all fields but 80 KiB of tables and buffers, which need no start value */
	isal_inflate_init(&f->state);
	*ret = f;
	return 0;
}

static const char *fault(int code)
{
	switch (code) {
	case ISAL_INVALID_BLOCK:
		return "a block with a bad header";
	case ISAL_INVALID_SYMBOL:
		return "a symbol that has no meaning";
	case ISAL_INVALID_LOOKBACK:
		return "a distance to before the beginning";
	default:
		return "damaged";
	}
}

int inflate_step(struct inflate *f, ZSTD_inBuffer *in, ZSTD_outBuffer *out, const char **ret_why)
{
	struct inflate_state *s = &f->state;
	int code;

	if (s->block_state == ISAL_BLOCK_FINISH)
		return 0;
	s->next_in = (uint8_t *)in->src + in->pos; /* ISA-L only reads it */
	s->avail_in = (uint32_t)MIN(in->size - in->pos, (size_t)UINT32_MAX);
	s->next_out = (uint8_t *)out->dst + out->pos;
	s->avail_out = (uint32_t)MIN(out->size - out->pos, (size_t)UINT32_MAX);
	code = isal_inflate(s);
	in->pos = (size_t)(s->next_in - (const uint8_t *)in->src);
	out->pos = (size_t)(s->next_out - (uint8_t *)out->dst);
	if (code < 0) {
		*ret_why = fault(code);
		return -EBADMSG;
	}
	if (s->block_state != ISAL_BLOCK_FINISH)
		return 1;
	/* it has taken whole bytes behind the end; some may be of an earlier `in` */
	in->pos -= MIN(in->pos, (size_t)s->read_in_length / 8);
	return 0;
}

void inflate_free(struct inflate *f)
{
	free(f);
}
