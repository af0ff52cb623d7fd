/* SPDX-License-Identifier: Apache-2.0 */
#include "index.h"

#include <stdio.h>
#include <stdlib.h>

#include "util.h"

#define INDEX "tensor_data/index.toml"

ssize_t index_read(void *reader, void *ret_buf, size_t n)
{
	struct index_reader *rd = reader;
	uint64_t size = object_size(rd->object);
	int r;

	n = (size_t)MIN(n, size - rd->off);
	if (n == 0)
		return 0;
	r = object_read(rd->object, ret_buf, n, rd->off, false);
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

static int set_problem(struct index *x, size_t line, const char *text)
{
	x->problem = strdup(text);
	x->problem_line = line;
	return x->problem ? 0 : -ENOMEM;
}

static int parse(const struct tree *t, struct object *o, struct index *x)
{
	struct index_reader reader = { o, 0 };
	struct toml_error error = { 0 };
	int r;

	if (object_size(o) > MAX_INDEX_TOML)
		return set_problem(x, 0, "index.toml is too large");
	r = tensors_parse(index_read, &reader, &x->tensors, &error);
	if ((r == -EBADMSG || r == -EFBIG) && error.message[0])
		return set_problem(x, error.line, error.message);
	return r < 0 ? r : tensors_check(x->tensors, size_of, (void *)t);
}

int index_load(const struct tree *t, struct index *ret)
{
	const struct node *dir = tree_find(t, "tensor_data"), *n = tree_find(t, INDEX);
	struct index x = { 0 };
	struct object *o;
	int r = 0;

	n = tree_resolve((struct node *)n);
	o = n ? node_object(n) : NULL;
	if (!o && dir)
		r = set_problem(&x, 0,
				"there is no index.toml: nothing says which tensors there are");
	if (o) {
		r = object_get_wait(o);
		if (r == 0) {
			r = parse(t, o, &x);
			object_put(o);
		}
		/* its bytes are not what MANIFEST says: that was logged, and stays so */
		if (r == -EBADMSG)
			r = set_problem(&x, 0, "index.toml is damaged");
	}
	if (r < 0) {
		index_free(&x);
		return r;
	}
	*ret = x;
	return 0;
}

void index_free(struct index *x)
{
	tensors_free(x->tensors);
	free(x->problem);
	*x = (struct index){ 0 };
}

struct node *index_file(const struct tree *t, const struct tensor *tensor)
{
	char path[MAX_PATH_LEN + 32];
	struct node *n;

	if (!tensor->file)
		return NULL;
	snprintf(path, sizeof(path), "tensor_data/%s", tensor->file);
	n = tree_resolve(tree_find(t, path));
	return n && n->kind == NODE_FILE && node_object(n) ? n : NULL;
}

int index_measure(const struct tree *t, struct tensor *tensor, struct strings_size *ret)
{
	struct node *n = index_file(t, tensor);
	struct index_reader reader = { n ? node_object(n) : NULL, 0 };
	struct strings_error error = { 0 };
	int r;

	if (!n)
		return tensor_fault(tensor, "there is no file \"%s\"", tensor->file), -EBADMSG;
	r = object_get_wait(reader.object);
	if (r == -EBADMSG)
		return tensor_fault(tensor, "its file \"%s\" is damaged", tensor->file), r;
	if (r < 0)
		return r;
	r = strings_measure(index_read, &reader, tensor->info.count, ret, &error);
	object_put(reader.object);
	if ((r == -EBADMSG || r == -EFBIG) && error.message[0]) {
		r = tensor_fault(tensor, "%s: %s", tensor->file, error.message);
		return r < 0 ? r : -EBADMSG;
	}
	return r;
}
