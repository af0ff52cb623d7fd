/* SPDX-License-Identifier: Apache-2.0 */
#include "views/index.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/budget.h"
#include "base/util.h"

#define INDEX "tensor_data/index.toml"
#define TOO_LARGE "index.toml is too large"

int index_need(struct object *o, struct waits *waits)
{
	int r = object_get_wait(o, waits);

	if (r < 0)
		return r;
	r = object_hash_all(o, waits);
	if (r < 0)
		object_put(o);
	return r;
}

ssize_t index_read(void *reader, void *ret_buf, size_t n)
{
	struct index_reader *rd = reader;
	uint64_t size = object_size(rd->object);
	int r;

	n = (size_t)MIN(n, size - rd->off);
	if (n == 0)
		return 0;
	r = waits_work(rd->waits, n);
	if (r == 0)
		r = object_read_wait(rd->object, ret_buf, n, rd->off, rd->waits);
	if (r < 0)
		return r;
	rd->off += n;
	return (ssize_t)n;
}

static int size_of(void *ctx, const char *path, uint64_t *ret_size)
{
	const struct tree *t = ctx;
	const struct node *n = tree_resolve(tree_find(t, path));

	if (!n)
		return -ENOENT;
	if (n->kind != NODE_FILE)
		return -EISDIR;
	*ret_size = node_size(n);
	return *ret_size == OBJECT_NO_SIZE ? -EAGAIN : 0;
}

static int parse(const struct tree *t, struct object *o, struct waits *waits, struct index *x)
{
	struct index_reader reader = { o, waits, 0 };
	int r;

	if (object_size(o) > MAX_INDEX_TOML)
		return reason_set(&x->problem, 0, TOO_LARGE);
	r = index_toml_parse(index_read, &reader, t->budget, &x->tensors, &x->problem);
	if ((r == -EBADMSG || r == -EFBIG) && *x->problem.text)
		return 0;
	if (r == 0)
		r = index_toml_check_files(x->tensors, size_of, (void *)t);
	if (r != -EFBIG)
		return r;
	index_toml_free(x->tensors);
	x->tensors = NULL;
	return reason_set(&x->problem, 0, "index.toml takes more memory than this carton may");
}

static int by_object(const void *a, const void *b)
{
	const struct index_strings *x = a, *y = b;

	return (x->object > y->object) - (x->object < y->object);
}

/* Lists the files of strings; one that several tensors use is listed once. */
static int list_strings(struct index *x)
{
	struct index_toml *ts = x->tensors;
	size_t n = 0;
	int r;

	for (size_t i = 0; i < ts->n; i++)
		n += ts->list[i].info.dtype == dtype_string;
	x->strings_taken = n * sizeof(*x->strings);
	r = budget_take(x->tree->budget, x->strings_taken);
	if (r < 0) {
		x->strings_taken = 0;
		return r;
	}
	x->strings = calloc(n + 1, sizeof(*x->strings));
	if (!x->strings)
		return -ENOMEM;
	n = 0;
	for (size_t i = 0; i < ts->n; i++) {
		const struct tensor *t = &ts->list[i];
		const struct node *file = t->problem || t->info.dtype != dtype_string ?
						  NULL :
						  index_file(x->tree, t);

		if (file)
			x->strings[n++].object = node_object(file);
	}
	qsort(x->strings, n, sizeof(*x->strings), by_object);
	for (size_t i = 0; i < n; i++)
		if (i == 0 || by_object(&x->strings[i - 1], &x->strings[i]))
			x->strings[x->n_strings++].object = x->strings[i].object;
	return 0;
}

int index_load(const struct tree *t, struct waits *waits, struct index *ret)
{
	const struct node *dir = tree_find(t, "tensor_data"), *n = tree_find(t, INDEX);
	struct index x = { .tree = t };
	struct object *o;
	int r = 0;

	n = tree_resolve((struct node *)n);
	o = n ? node_object(n) : NULL;
	if (!o && dir)
		reason_set(&x.problem, 0, "index.toml is missing, so the tensors are unknown");
	if (o && object_size_is_certain(o) && object_size(o) > MAX_INDEX_TOML) {
		/* too large a file is not even hashed */
		reason_set(&x.problem, 0, TOO_LARGE);
	} else if (o) {
		r = index_need(o, waits);
		if (r == 0) {
			r = parse(t, o, waits, &x);
			object_put(o);
		}
		/* A wrong hash, already logged. It is permanent. */
		if (r == -EBADMSG)
			r = reason_set(&x.problem, 0, "index.toml is damaged");
	}
	if (r == 0 && x.tensors)
		r = list_strings(&x);
	if (r < 0)
		index_finish(&x);
	else
		*ret = x;
	return r;
}

void index_finish(struct index *x)
{
	index_toml_free(x->tensors);
	for (size_t i = 0; i < x->n_strings; i++)
		free(x->strings[i].problem);
	free(x->strings);
	if (x->strings_taken)
		budget_give(x->tree->budget, x->strings_taken);
	*x = (struct index){ 0 };
}

struct node *index_file(const struct tree *t, const struct tensor *tensor)
{
	char path[MAX_PATH_LEN + 32];
	struct node *n;

	if (tensor->info.dtype == dtype_nested || !tensor->file)
		return NULL;
	snprintf(path, sizeof(path), "tensor_data/%s", tensor->file);
	n = tree_resolve(tree_find(t, path));
	return n && n->kind == NODE_FILE && node_object(n) ? n : NULL;
}

struct index_strings *index_strings_of(const struct index *x, const struct tensor *tensor)
{
	struct node *n = tensor->info.dtype == dtype_string ? index_file(x->tree, tensor) : NULL;
	struct index_strings key = { .object = n ? node_object(n) : NULL };

	return bsearch(&key, x->strings, x->n_strings, sizeof(key), by_object);
}

int index_measure(struct index_strings *s, struct waits *waits)
{
	struct index_reader reader = { s->object, waits, 0 };
	struct reason reason = { 0 };
	int r = index_need(s->object, waits);

	if (r == 0) {
		r = strings_measure(index_read, &reader, &s->size, &reason);
		object_put(s->object);
	}
	if (r == -EBADMSG && !reason.text[0])
		reason_set(&reason, r, "it is damaged");
	if ((r == -EBADMSG || r == -EFBIG) && reason.text[0]) {
		s->problem = strdup(reason.text);
		r = s->problem ? 0 : -ENOMEM;
	}
	return r;
}

int index_size(struct index *x, struct tensor *tensor, const struct strings_size **ret)
{
	const struct index_strings *s = index_strings_of(x, tensor);
	int r = 0;

	if (!s || tensor->problem)
		return -EBADMSG;
	if (s->problem)
		r = index_toml_fault(x->tensors, tensor, "%s: %s", tensor->file, s->problem);
	else if (s->size.count != tensor_count(&tensor->info))
		r = index_toml_fault(x->tensors, tensor,
				     "%s: data has %" PRIu64 " elements, but its shape %" PRIu64,
				     tensor->file, s->size.count, tensor_count(&tensor->info));
	*ret = &s->size;
	return r < 0 ? r : tensor->problem ? -EBADMSG : 0;
}
