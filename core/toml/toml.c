/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "base/budget.h"
#include "toml/internal.h"

#define MAX_STEPS (2 * TOML_MAX_KEY_PARTS + TOML_MAX_DEPTH)

/* A prefix of the path. */
struct plan_entry {
	size_t steps;
	size_t keys; /* the steps that are keys, not indices */
};

/* An open […] or {…}. */
struct frame {
	bool table;
	struct toml_node *node;	 /* {…}: parent of its keys, the node of the key before it */
	struct plan_entry place; /* of the array or table itself */
};

struct toml {
	struct toml_lexer lex;
	struct toml_keys keys;
	struct buf key; /* the current part of a key */
	char scalar[TOML_MAX_NUMBER + 1];
	locale_t c_locale;
	const struct toml_events *events;
	void *ctx;

	struct toml_node *table; /* of the last header */
	struct plan_entry table_place;
	struct plan_entry place;
	struct toml_step steps[MAX_STEPS];
	struct frame frames[TOML_MAX_DEPTH];
	size_t depth;
};

/* ---- the path ---- */

static int add_key(struct toml *t, const struct toml_node *node)
{
	if (t->place.keys == TOML_MAX_KEY_PARTS)
		return toml_fail(&t->lex, -EFBIG, "a path of too many keys");
	t->place.keys++;
	t->steps[t->place.steps++] = (struct toml_step){ .key = node->name, .len = node->len };
	return 0;
}

/* Cannot overflow: at most one index for each [[…]] key and each open array. */
static void add_index(struct toml *t, size_t index)
{
	t->steps[t->place.steps++] = (struct toml_step){ .index = index };
}

static int begin(struct toml *t, enum toml_type type)
{
	struct toml_path path = { t->steps, t->place.steps };

	return t->events->begin ? t->events->begin(t->ctx, &path, type, t->lex.in.line) : 0;
}

static int end(struct toml *t, enum toml_type type)
{
	struct toml_path path = { t->steps, t->place.steps };

	return t->events->end ? t->events->end(t->ctx, &path, type) : 0;
}

/* ---- keys ---- */

/* Looks up or adds t->key in table `in`, and appends it to the path. */
static int enter(struct toml *t, struct toml_node *in, enum toml_kind kind, bool *ret_new,
		 struct toml_node **ret)
{
	const char *name = t->key.len ? t->key.data : "";
	int r = toml_keys_get(&t->keys, in, name, t->key.len, ret);

	if (r < 0)
		return toml_limit(&t->lex, r, "too many keys");
	*ret_new = (*ret)->kind == TOML_KIND_NEW;
	if (*ret_new)
		(*ret)->kind = kind;
	return add_key(t, *ret);
}

static int redefined(struct toml *t, const struct toml_node *node, const char *how)
{
	return toml_fail(&t->lex, -EBADMSG, "key \"%.64s\" %s", node->name, how);
}

/* Reads the key of a key/value pair in `table`, up to and including the '='. */
static int pair_key(struct toml *t, struct toml_node *table, struct toml_node **ret)
{
	struct toml_node *node;
	bool new;
	int c, r;

	for (;; table = node) {
		c = toml_key_part(&t->lex, &t->key);
		if (c < 0)
			return c;
		if (c != '.' && c != '=')
			return toml_unexpected(&t->lex, c, "'=' after the key");
		t->lex.in.p++;
		r = enter(t, table, c == '.' ? TOML_KIND_DOTTED : TOML_KIND_VALUE, &new, &node);
		if (r < 0)
			return r;
		if (c == '=')
			break;
		if (node->kind == TOML_KIND_IMPLICIT)
			node->kind = TOML_KIND_DOTTED;
		if (node->kind != TOML_KIND_DOTTED)
			return redefined(t, node, "has been defined and cannot be added to here");
		c = toml_skip_blanks(&t->lex);
		if (c < 0)
			return c;
	}
	if (!new)
		return redefined(t, node, "is defined twice");
	*ret = node;
	return 0;
}

/* Reads the key of a header, up to and including the first ']'. */
static int header_key(struct toml *t, enum toml_kind kind, bool *ret_new, struct toml_node **ret)
{
	struct toml_node *table = t->keys.root;
	bool last;
	int c, r;

	for (;; table = *ret) {
		c = toml_skip_blanks(&t->lex);
		if (c >= 0)
			c = toml_key_part(&t->lex, &t->key);
		if (c < 0)
			return c;
		if (c != '.' && c != ']')
			return toml_unexpected(&t->lex, c, "']'");
		t->lex.in.p++;
		last = c == ']';
		r = enter(t, table, last ? kind : TOML_KIND_IMPLICIT, ret_new, ret);
		if (r < 0 || last)
			return r;
		if ((*ret)->kind == TOML_KIND_VALUE)
			return redefined(t, *ret, "is not a table");
		if ((*ret)->kind == TOML_KIND_TABLES)
			add_index(t, (*ret)->index);
	}
}

/* Reads a header line, at its '['. */
static int header(struct toml *t)
{
	enum toml_kind kind = TOML_KIND_HEADER;
	struct toml_node *node;
	bool new;
	int c, r;

	t->place = (struct plan_entry){ 0, 0 };
	t->lex.in.p++;
	c = toml_peek(&t->lex);
	if (c < 0)
		return c;
	if (c == '[') {
		kind = TOML_KIND_TABLES;
		t->lex.in.p++;
	}
	r = header_key(t, kind, &new, &node);
	if (r < 0)
		return r;
	c = kind == TOML_KIND_TABLES ? toml_peek(&t->lex) : ']';
	if (c != ']')
		return c < 0 ? c : toml_unexpected(&t->lex, c, "']]'");
	t->lex.in.p += kind == TOML_KIND_TABLES;
	if (!new &&kind == TOML_KIND_TABLES && node->kind == kind) {
		toml_keys_empty(&t->keys, node);
		node->index++;
	} else if (!new &&kind == TOML_KIND_HEADER && node->kind == TOML_KIND_IMPLICIT) {
		node->kind = kind;
	} else if (!new) {
		return redefined(t, node, "is defined twice");
	}
	if (new &&kind == TOML_KIND_TABLES)
		r = begin(t, TOML_ARRAY);
	if (kind == TOML_KIND_TABLES)
		add_index(t, node->index);
	t->table = node;
	t->table_place = t->place;
	if (!r)
		r = begin(t, TOML_TABLE);
	return r ? r : toml_end_of_line(&t->lex);
}

/* ---- values ---- */

static int report(struct toml *t, const struct toml_value *value)
{
	struct toml_path path = { t->steps, t->place.steps };

	return t->events->value ? t->events->value(t->ctx, &path, value) : 0;
}

/* A value that is not a string, array or table. */
static int scalar(struct toml *t)
{
	struct toml_value value = { .line = t->lex.in.line };
	const char *fault;
	size_t n = 0;
	int c = toml_scalar_bytes(&t->lex, t->scalar, &n);

	if (c == ' ' && n == 10 && t->scalar[4] == '-' && t->scalar[7] == '-') {
		t->lex.in.p++; /* a date: a time may follow the blank */
		c = toml_peek(&t->lex);
		if (c >= '0' && c <= '9') {
			t->scalar[n++] = ' ';
			c = toml_scalar_bytes(&t->lex, t->scalar, &n);
		}
	}
	if (c < 0)
		return c;
	if (!n)
		return toml_unexpected(&t->lex, c, "a value");
	t->scalar[n] = '\0';
	fault = toml_scalar_parse(t->scalar, n, t->c_locale, &value);
	if (fault)
		return toml_fail(&t->lex, -EBADMSG, "%s", fault);
	return report(t, &value);
}

static int text(struct toml *t)
{
	struct toml_value value = { .type = TOML_STRING, .line = t->lex.in.line };
	char *s;
	int r = toml_string(&t->lex, true, &s, &value.len);

	value.str = s;
	return r < 0 ? r : report(t, &value);
}

/* Opens an array or inline table, at its '[' or '{'. */
static int open_frame(struct toml *t, struct toml_node *node)
{
	bool table = *t->lex.in.p == '{';

	if (t->depth == TOML_MAX_DEPTH)
		return toml_fail(&t->lex, -EFBIG, "arrays and tables nested too deeply");
	t->frames[t->depth++] = (struct frame){ table, node, t->place };
	t->lex.in.p++;
	return begin(t, table ? TOML_TABLE : TOML_ARRAY);
}

/* Closes the innermost array or inline table, at its ']' or '}'. */
static int close_frame(struct toml *t)
{
	struct frame *frame = &t->frames[--t->depth];

	t->lex.in.p++;
	t->place = frame->place;
	if (frame->table) /* an inline table cannot be extended: its keys are not needed any more */
		toml_keys_empty(&t->keys, frame->node);
	return end(t, frame->table ? TOML_TABLE : TOML_ARRAY);
}

/* In an array: moves to the next element, or closes the array. */
static int next_element(struct toml *t, const struct frame *frame, bool first, bool *ret_closed)
{
	int c = toml_skip_space(&t->lex);
	size_t index = 0;

	if (!first && c == ',') {
		t->lex.in.p++;
		index = t->steps[frame->place.steps].index + 1;
		c = toml_skip_space(&t->lex);
		first = true;
	}
	if (c < 0)
		return c;
	*ret_closed = c == ']';
	if (*ret_closed)
		return close_frame(t);
	if (!first)
		return toml_unexpected(&t->lex, c, "',' or ']'");
	t->place = frame->place;
	add_index(t, index);
	return 0;
}

/* In an inline table: moves to the next value, of key *ret, or closes the table. */
static int next_pair(struct toml *t, const struct frame *frame, bool first, bool *ret_closed,
		     struct toml_node **ret)
{
	int c = toml_skip_blanks(&t->lex);

	if (c < 0)
		return c;
	*ret_closed = c == '}';
	if (*ret_closed)
		return close_frame(t);
	if (!first) {
		if (c != ',')
			return toml_unexpected(&t->lex, c, "',' or '}'");
		t->lex.in.p++;
		c = toml_skip_blanks(&t->lex);
		if (c < 0)
			return c;
	}
	t->place = frame->place;
	return pair_key(t, frame->node, ret);
}

/* The value of key `node`, nested values included. */
static int value(struct toml *t, struct toml_node *node)
{
	const struct frame *frame;
	bool first, closed;
	int c, r;

	for (;;) {
		c = toml_skip_blanks(&t->lex);
		if (c < 0)
			return c;
		first = c == '[' || c == '{';
		if (first)
			r = open_frame(t, node);
		else
			r = c == '"' || c == '\'' ? text(t) : scalar(t);
		if (r)
			return r;
		do { /* close the arrays and tables that end here, then move to the next value */
			if (!t->depth)
				return 0;
			frame = &t->frames[t->depth - 1];
			node = frame->node;
			r = frame->table ? next_pair(t, frame, first, &closed, &node) :
					   next_element(t, frame, first, &closed);
			if (r)
				return r;
			first = false;
		} while (closed);
	}
}

/* ---- the document ---- */

static int document(struct toml *t)
{
	struct toml_node *node;
	int c, r;

	while ((c = toml_skip_space(&t->lex)) > 0) {
		if (c == '[') {
			r = header(t);
		} else {
			t->place = t->table_place;
			r = pair_key(t, t->table, &node);
			if (!r)
				r = value(t, node);
			if (!r)
				r = toml_end_of_line(&t->lex);
		}
		if (r)
			return r;
	}
	return c;
}

int toml_parse(toml_read_fn *read, void *read_ctx, const struct toml_events *events, void *ctx,
	       struct reason *ret_error)
{
	struct toml *t = malloc(sizeof(*t));
	int r;

	if (ret_error)
		*ret_error = (struct reason){ .line = 0 };
	if (!t)
		return -ENOMEM;
	toml_input_init(&t->lex.in, read, read_ctx);
	t->lex.text = buf_init((size_t)MIN(budget_left(events->budget), TOML_MAX_STRING));
	t->key = buf_init(TOML_MAX_KEY);
	t->events = events;
	t->ctx = ctx;
	t->place = t->table_place = (struct plan_entry){ 0, 0 };
	t->depth = 0;
	t->lex.error = (struct reason){ .line = 0 };
	t->c_locale = newlocale(LC_ALL_MASK, "C", NULL);
	r = t->c_locale ? toml_keys_init(&t->keys, events->budget) : -ENOMEM;
	if (!r) {
		t->table = t->keys.root;
		r = document(t);
		if (r && ret_error)
			*ret_error = t->lex.error;
		toml_keys_finish(&t->keys);
	}
	if (t->c_locale)
		freelocale(t->c_locale);
	buf_finish(&t->lex.text);
	buf_finish(&t->key);
	free(t);
	return r;
}

int toml_parse_mem(const char *text, size_t n, const struct toml_events *events, void *ctx,
		   struct reason *ret_error)
{
	struct mem_text m = { text, n };

	return toml_parse(mem_text_read, &m, events, ctx, ret_error);
}

bool toml_path_is(const struct toml_path *path, const char *pattern)
{
	const struct toml_step *step;
	size_t i, len;

	for (i = 0; i < path->n; i++) {
		step = &path->steps[i];
		if (!step->key) {
			if (pattern[0] != '[' || pattern[1] != ']')
				return false;
			pattern += 2;
			continue;
		}
		if (i && *pattern++ != '.')
			return false;
		len = strcspn(pattern, ".[");
		if (!(len == 1 && *pattern == '*') &&
		    (len != step->len || memcmp(pattern, step->key, len)))
			return false;
		pattern += len;
	}
	return !*pattern;
}
