/* SPDX-License-Identifier: Apache-2.0 */
#include "tensor/strings.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/util.h"

#define OUT_SIZE (64 * KIB)

/* One pass over a file: counts, measures and, with `to`, converts. */
struct pass {
	struct strings_size size;
	struct reason reason;
	bool data;			 /* the key `data` was found */
	const struct strings_output *to; /* NULL: measure only */
	uint8_t *out;			 /* OUT_SIZE bytes */
	size_t n_out;
};

#define fault(p, ...) reason_set(&(p)->reason, -EBADMSG, __VA_ARGS__)

/* ---- output ---- */

static int flush(struct pass *p)
{
	int r = p->n_out ? p->to->write(p->to->ctx, p->out, p->n_out) : 0;

	p->n_out = 0;
	return r;
}

static int put(struct pass *p, const void *data, size_t n)
{
	int r = 0;

	while (n && !r) {
		size_t part = MIN(n, OUT_SIZE - p->n_out);

		memcpy(p->out + p->n_out, data, part);
		p->n_out += part;
		data = (const char *)data + part;
		n -= part;
		if (p->n_out == OUT_SIZE)
			r = flush(p);
	}
	return r;
}

static int put_u32(struct pass *p, uint32_t v)
{
	uint8_t le[4];

	put_le32(le, v);
	return put(p, le, sizeof(le));
}

static int emit_ucs4(struct pass *p, const char *s, size_t n, uint64_t points)
{
	int r = 0;

	if (points > p->to->width)
		return fault(p,
			     "element %" PRIu64 " has %" PRIu64 " code points, more than %" PRIu64,
			     p->size.count, points, p->to->width);
	for (size_t i = 0, step; i < n && !r; i += step) {
		step = utf8_step(s + i, n - i);
		if (!step)
			return fault(p, "element %" PRIu64 " is not UTF-8", p->size.count);
		r = put_u32(p, utf8_code(s + i, step));
	}
	for (uint64_t i = points; i < p->to->width && !r; i++)
		r = put_u32(p, 0);
	return r;
}

static int emit(struct pass *p, const char *s, size_t n, uint64_t points)
{
	int r;

	if (p->to->width)
		return emit_ucs4(p, s, n, points);
	r = put_u32(p, (uint32_t)n);
	return r ? r : put(p, s, n);
}

/* ---- events ---- */

static int element(struct pass *p, const struct toml_value *v)
{
	uint64_t points;
	int r = 0;

	if (v->type != TOML_STRING)
		return fault(p, "line %zu: an element of data is not a string", v->line);
	if (p->to && p->size.count == p->to->count)
		return fault(p,
			     "line %zu: data has more than the %" PRIu64 " elements of its shape",
			     v->line, p->to->count);
	if (v->len > UINT32_MAX ||
	    __builtin_add_overflow(p->size.bytes, 4 + v->len, &p->size.bytes))
		return fault(p, "line %zu: an element is too long", v->line);
	points = utf8_count(v->str, v->len);
	if (p->to)
		r = emit(p, v->str, v->len, points);
	p->size.count++;
	p->size.width = MAX(p->size.width, points);
	if (v->len && !v->str[v->len - 1])
		p->size.trailing_nul = true;
	return r;
}

static bool is_data(const struct toml_path *path)
{
	return toml_is_key(&path->steps[0], "data");
}

static int on_begin(void *ctx, const struct toml_path *path, enum toml_type type, size_t line)
{
	struct pass *p = ctx;

	if (!path->n)
		return 0;
	if (!is_data(path))
		return fault(p, "line %zu: unexpected key: only data is allowed", line);
	if (path->n > 1)
		return fault(p, "line %zu: an element of data is not a string", line);
	if (type != TOML_ARRAY)
		return fault(p, "line %zu: data is not an array", line);
	p->data = true;
	return 0;
}

static int on_value(void *ctx, const struct toml_path *path, const struct toml_value *v)
{
	struct pass *p = ctx;

	if (!is_data(path))
		return fault(p, "line %zu: unexpected key: only data is allowed", v->line);
	if (path->n != 2 || path->steps[1].key)
		return fault(p, "line %zu: data is not an array of strings", v->line);
	return element(p, v);
}

/* ---- a pass ---- */

static int run(struct pass *p, toml_read_fn *read, void *ctx)
{
	static const struct toml_events events = { .begin = on_begin, .value = on_value };
	struct reason toml = { 0 };
	int r = toml_parse(read, ctx, &events, p, &toml);

	if (r && !*p->reason.text && *toml.text)
		reason_set(&p->reason, r, "line %zu: %s", toml.line, toml.text);
	if (r)
		return r;
	if (!p->data)
		return fault(p, "it has no key data");
	if (p->to && p->size.count != p->to->count)
		return fault(p, "data has %" PRIu64 " elements, but its shape %" PRIu64,
			     p->size.count, p->to->count);
	return p->to ? flush(p) : 0;
}

int strings_measure(toml_read_fn *read, void *ctx, struct strings_size *ret, struct reason *reason)
{
	struct pass p = { .to = NULL };
	int r = run(&p, read, ctx);

	if (!r)
		*ret = p.size;
	else if (reason)
		*reason = p.reason;
	return r;
}

int strings_emit(toml_read_fn *read, void *ctx, const struct strings_output *out,
		 struct reason *reason)
{
	struct pass p = { .to = out, .out = malloc(OUT_SIZE) };
	int r = p.out ? run(&p, read, ctx) : -ENOMEM;

	free(p.out);
	if (r && reason)
		*reason = p.reason;
	return r;
}
