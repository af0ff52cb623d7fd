/* SPDX-License-Identifier: Apache-2.0 */
/*
 * toml-decode: TOML on stdin, toml-test's tagged JSON on stdout. Exit 1, with the reason on
 * stderr, for a document that is not TOML 1.0. The events of toml/toml.h become a tree here,
 * because TOML may come back to a table and JSON cannot.
 *
 * toml-decode many: stdin has any number of documents, each behind a line with its length. stdout
 * has for each a line "STATUS LENGTH" and LENGTH bytes: the JSON (0), or the reason (1).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "toml/toml.h"
#include "base/util.h"

struct item {
	struct item *parent;
	struct item *first, *last; /* of a table or array */
	struct item *next;
	char *key; /* of a table's item */
	size_t key_len;
	enum toml_type type;
	char *value; /* of a scalar, as text */
	size_t value_len;
};

static struct item *item_new(struct item *parent, const struct toml_step *step)
{
	struct item *item = calloc(1, sizeof(*item));

	if (!item)
		return NULL;
	item->parent = parent;
	item->type = TOML_TABLE;
	if (step->key) {
		item->key = malloc(step->len + 1);
		if (!item->key) {
			free(item);
			return NULL;
		}
		memcpy(item->key, step->key, step->len + 1);
		item->key_len = step->len;
	}
	if (parent->last)
		parent->last->next = item;
	else
		parent->first = item;
	parent->last = item;
	return item;
}

/* Events come back to the last element of an array only, and mostly to the last key. */
static struct item *item_find(struct item *parent, const struct toml_step *step)
{
	struct item *item = parent->last;

	if (!item || !step->key)
		return item;
	if (item->key_len == step->len && !memcmp(item->key, step->key, step->len))
		return item;
	for (item = parent->first; item; item = item->next)
		if (item->key_len == step->len && !memcmp(item->key, step->key, step->len))
			return item;
	return NULL;
}

/* A value's item; `again`: of a table that may have been made on the way to another. */
static struct item *item_at(struct item *item, const struct toml_path *path, bool again)
{
	const struct toml_step *step;
	struct item *found;
	size_t i;

	for (i = 0; i < path->n && item; i++) {
		step = &path->steps[i];
		found = i + 1 == path->n && (!again || !step->key) ? NULL : item_find(item, step);
		item = found ? found : item_new(item, step);
	}
	return item;
}

static int on_begin(void *ctx, const struct toml_path *path, enum toml_type type, size_t line)
{
	struct item *item = item_at(ctx, path, true);

	(void)line;
	if (!item)
		return -ENOMEM;
	item->type = type;
	return 0;
}

/* The shortest digits that read back as the same number, with an exponent where it is large. */
static void format_float(double v, char *ret, size_t n)
{
	int precision = 0, exponent;

	if (v != v || v - v != 0) {
		snprintf(ret, n, "%s", v != v ? "nan" : v > 0 ? "inf" : "-inf");
		return;
	}
	do
		snprintf(ret, n, "%.*e", precision, v);
	while (precision++ < 17 && strtod(ret, NULL) != v);
	exponent = atoi(strchr(ret, 'e') + 1);
	if (exponent >= -4 && exponent < 16)
		snprintf(ret, n, "%.*f", MAX(precision - 1 - exponent, 1), v);
}

static int on_value(void *ctx, const struct toml_path *path, const struct toml_value *value)
{
	struct item *item = item_at(ctx, path, false);
	const char *text = value->str;
	size_t n = value->len;
	char number[64];

	if (!item)
		return -ENOMEM;
	item->type = value->type;
	if (value->type == TOML_INTEGER)
		snprintf(number, sizeof(number), "%lld", (long long)value->integer);
	else if (value->type == TOML_FLOAT)
		format_float(value->real, number, sizeof(number));
	else if (value->type == TOML_BOOL)
		snprintf(number, sizeof(number), "%s", value->boolean ? "true" : "false");
	if (!text) {
		text = number;
		n = strlen(number);
	}
	item->value = malloc(n + 1);
	if (!item->value)
		return -ENOMEM;
	memcpy(item->value, text, n + 1);
	item->value_len = n;
	return 0;
}

static const char *type_name(enum toml_type type)
{
	switch (type) {
	case TOML_STRING:
		return "string";
	case TOML_INTEGER:
		return "integer";
	case TOML_FLOAT:
		return "float";
	case TOML_BOOL:
		return "bool";
	case TOML_OFFSET_DATETIME:
		return "datetime";
	case TOML_LOCAL_DATETIME:
		return "datetime-local";
	case TOML_LOCAL_DATE:
		return "date-local";
	case TOML_LOCAL_TIME:
		return "time-local";
	default:
		return "?";
	}
}

/* Where the JSON goes. */
static FILE *out;

static int print_text(const char *s, size_t n)
{
	struct buf b = buf_init(GIB);
	int r = buf_add_json(&b, s, n);

	if (!r)
		fwrite(b.data, 1, b.len, out);
	buf_finish(&b);
	return r;
}

static int print_start(const struct item *item)
{
	int r = item->key ? print_text(item->key, item->key_len) : 0;

	if (item->key)
		putc(':', out);
	if (item->type == TOML_TABLE || item->type == TOML_ARRAY) {
		putc(item->type == TOML_TABLE ? '{' : '[', out);
	} else if (!r) {
		fprintf(out, "{\"type\":\"%s\",\"value\":", type_name(item->type));
		r = print_text(item->value, item->value_len);
		putc('}', out);
	}
	return r;
}

static int print(const struct item *root)
{
	const struct item *item = root;
	int r = print_start(item);

	while (!r) {
		if (item->first) {
			item = item->first;
			r = print_start(item);
			continue;
		}
		if (item->type == TOML_TABLE || item->type == TOML_ARRAY)
			putc(item->type == TOML_TABLE ? '}' : ']', out);
		while (item != root && !item->next) {
			item = item->parent;
			putc(item->type == TOML_TABLE ? '}' : ']', out);
		}
		if (item == root)
			break;
		item = item->next;
		putc(',', out);
		r = print_start(item);
	}
	putc('\n', out);
	return r;
}

static void item_free_below(struct item *root)
{
	struct item *item = root->first, *next;

	root->first = NULL;
	while (item) {
		next = item->first;
		if (next) {
			item->first = NULL;
			item = next;
			continue;
		}
		next = item->next;
		if (!next && item->parent != root)
			next = item->parent;
		free(item->key);
		free(item->value);
		free(item);
		item = next;
	}
}

static ssize_t read_stdin(void *ctx, void *ret_buf, size_t n)
{
	ssize_t got;

	(void)ctx;
	do
		got = read(STDIN_FILENO, ret_buf, n);
	while (got < 0 && errno == EINTR);
	return got < 0 ? -errno : got;
}

/* The same, of a document whose end is `ctx` bytes away. */
static ssize_t read_part(void *ctx, void *ret_buf, size_t n)
{
	size_t *left = ctx, got = fread(ret_buf, 1, MIN(n, *left), stdin);

	*left -= got;
	return (ssize_t)got;
}

/* 0: the JSON is in `out`. 1: the reason is in `ret_reason`. */
static int decode(toml_read_fn *read_fn, void *ctx, char *ret_reason, size_t n)
{
	static const struct toml_events events = { .begin = on_begin, .value = on_value };
	struct item root = { .type = TOML_TABLE };
	struct reason error;
	int r = toml_parse(read_fn, ctx, &events, &root, &error);

	if (r) {
		snprintf(ret_reason, n, "line %zu: %s", error.line,
			 *error.text ? error.text : strerror(-r));
	} else {
		r = print(&root);
		if (!r && (fflush(out) || ferror(out)))
			r = -EIO;
		if (r)
			snprintf(ret_reason, n, "%s", strerror(-r));
	}
	item_free_below(&root);
	return r ? 1 : 0;
}

static int decode_many(void)
{
	char reason[512], *line = NULL, *json;
	size_t cap = 0, left, n;

	while (getline(&line, &cap, stdin) > 0) {
		int status;

		left = strtoul(line, NULL, 10);
		out = open_memstream(&json, &n);
		status = decode(read_part, &left, reason, sizeof(reason));
		fclose(out);
		printf("%d %zu\n", status, status ? strlen(reason) : n);
		fwrite(status ? reason : json, 1, status ? strlen(reason) : n, stdout);
		free(json);
		/* a document that was refused was not read to its end */
		while (left > 0 && getchar() != EOF)
			left--;
		if (fflush(stdout))
			return 2;
	}
	free(line);
	return 0;
}

int main(int argc, char **argv)
{
	char reason[512];
	int status;

	if (argc > 1 && !strcmp(argv[1], "many"))
		return decode_many();
	out = stdout;
	status = decode(read_stdin, NULL, reason, sizeof(reason));
	if (status)
		fprintf(stderr, "toml-decode: %s\n", reason);
	return status;
}
