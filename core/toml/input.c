/* SPDX-License-Identifier: Apache-2.0 */
#include "toml/internal.h"

void toml_input_init(struct toml_input *in, toml_read_fn *read, void *read_ctx)
{
	in->read = read;
	in->read_ctx = read_ctx;
	in->line = 1;
	in->fault = NULL;
	in->started = in->ended = false;
	in->n_tail = 0;
	in->buf[0] = '\0';
	in->p = in->buf;
}

/* The length of the non-printable or non-ASCII character at `from`; 0: incomplete; -1: fault. */
static int accept(struct toml_input *in, const unsigned char *from, const unsigned char *end,
		  bool *ret_drop)
{
	size_t left = (size_t)(end - from), n;

	*ret_drop = false;
	if (*from == '\n' || *from == '\t')
		return 1;
	if (*from == '\r') {
		if (left < 2)
			return 0;
		*ret_drop = true;
		if (from[1] == '\n')
			return 1;
		in->fault = "a carriage return without a newline";
		return -1;
	}
	if (*from < 0x80) {
		in->fault = "a control character";
		return -1;
	}
	n = utf8_step((const char *)from, left);
	if (n > 0 || left < 4)
		return (int)n;
	in->fault = "ill-formed UTF-8";
	return -1;
}

/* Checks and cleans the first n bytes of buf in place: they become the window. */
static void clean(struct toml_input *in, size_t n)
{
	unsigned char *from = (unsigned char *)in->buf, *to = from, *end = from + n;
	bool drop;
	size_t run;
	int len;

	in->n_tail = 0;
	while (from < end) {
		run = ascii_run((const char *)from, (size_t)(end - from));
		if (to != from)
			memmove(to, from, run);
		from += run;
		to += run;
		if (from == end)
			break;
		len = accept(in, from, end, &drop);
		if (len < 0)
			break;
		if (!len) {
			in->n_tail = (unsigned)(end - from);
			memcpy(in->tail, from, in->n_tail);
			break;
		}
		for (; len; len--, from++)
			if (!drop)
				*to++ = *from;
	}
	*to = '\0';
	in->p = in->buf;
}

int toml_input_fill(struct toml_input *in)
{
	ssize_t got;

	while (!*in->p) {
		if (in->fault)
			return -EBADMSG;
		if (in->ended) {
			if (!in->n_tail)
				return 0;
			in->fault = in->tail[0] == '\r' ? "a carriage return without a newline" :
							  "ill-formed UTF-8";
			continue;
		}
		memcpy(in->buf, in->tail, in->n_tail);
		got = in->read(in->read_ctx, in->buf + in->n_tail, TOML_BUFFER - in->n_tail);
		if (got <= 0) {
			in->buf[0] = '\0';
			in->p = in->buf;
			in->ended = got == 0;
			if (got < 0)
				return (int)got;
			continue;
		}
		clean(in, in->n_tail + (size_t)got);
		if (!in->started && *in->p) {
			in->started = true;
			if (!strncmp(in->p, "\xef\xbb\xbf", 3))
				in->p += 3;
		}
	}
	return 1;
}
