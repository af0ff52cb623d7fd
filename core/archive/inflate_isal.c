/* SPDX-License-Identifier: Apache-2.0 */
#include <isa-l/igzip_lib.h>
#include <stdlib.h>

#include "archive/inflate.h"
#include "base/util.h"

struct inflate {
	struct inflate_input input;
	const char *why;
	struct inflate_state state;
};

int inflate_new(const struct inflate_input *input, struct inflate **ret)
{
	struct inflate *f = malloc(sizeof(*f));

	if (!f)
		return -ENOMEM;
	f->input = *input;
	f->why = "damaged";
	/* this sets all fields but 80 KiB of tables and buffers, which need no start value */
	isal_inflate_init(&f->state);
	*ret = f;
	return 0;
}

static int fault(struct inflate *f, int code)
{
	switch (code) {
	case ISAL_INVALID_BLOCK:
		f->why = "a block with a bad header";
		break;
	case ISAL_INVALID_SYMBOL:
		f->why = "a symbol that has no meaning";
		break;
	case ISAL_INVALID_LOOKBACK:
		f->why = "a distance to before the beginning";
		break;
	default:
		f->why = "damaged";
	}
	return -EBADMSG;
}

ssize_t inflate_read(struct inflate *f, void *ret_buf, size_t n)
{
	struct inflate_state *s = &f->state;

	s->next_out = ret_buf;
	s->avail_out = (uint32_t)MIN(n, (size_t)UINT32_MAX);
	n = s->avail_out;
	while (s->avail_out > 0 && s->block_state != ISAL_BLOCK_FINISH) {
		uint32_t room = s->avail_out;
		bool fed = s->avail_in > 0;
		int code;

		if (!fed) {
			const void *block;
			ssize_t got = f->input.feed(f->input.ctx, &block);

			if (got < 0)
				return got;
			s->next_in = (uint8_t *)block; /* ISA-L only reads it */
			s->avail_in = (uint32_t)got;
			fed = got > 0;
		}
		code = isal_inflate(s);
		if (code < 0)
			return fault(f, code);
		/* without input, it may still have output left to give */
		if (!fed && s->avail_out == room && s->block_state != ISAL_BLOCK_FINISH) {
			f->why = "it ends too early";
			return -EBADMSG;
		}
	}
	return (ssize_t)(n - s->avail_out);
}

size_t inflate_unused(const struct inflate *f)
{
	return f->state.avail_in + (size_t)f->state.read_in_length / 8;
}

const char *inflate_why(const struct inflate *f)
{
	return f->why;
}

void inflate_free(struct inflate *f)
{
	free(f);
}
