/* SPDX-License-Identifier: Apache-2.0 */
/* views/tensor_data/ and views/tensor_data.safetensors: the tensors of tensor_data/index.toml. */
#include <stdio.h>
#include <stdlib.h>

#include "base/budget.h"
#include "tensor/npy.h"
#include "tensor/safetensors.h"
#include "views/internal.h"

/* ---- one tensor ---- */

/* numpy's form of a string tensor, unless it would be too large or lose a trailing NUL. */
static int string_npy(struct views *v, struct tensor *t, const struct strings_size *size,
		      char descr[16], struct view_tensor *vt)
{
	uint64_t width = MAX(size->width, (uint64_t)1), bytes;
	struct object *o;
	int r;

	if (size->trailing_nul || __builtin_mul_overflow(width, tensor_count(&t->info), &bytes) ||
	    __builtin_mul_overflow(bytes, (uint64_t)4, &bytes) || bytes > MAX_STRING_NPY ||
	    npy_string_descr(width, descr) < 0)
		return 0;
	r = view_add_strings(v, t, width, bytes, &o);
	if (r < 0)
		return r;
	vt->descr = descr;
	vt->npy_data = (struct extent){ .object = o, .len = bytes };
	return 0;
}

static int add_plain(struct views *v, struct node *dir, struct tensor *t, struct view_headers *h)
{
	struct view_tensor vt = { .info = &t->info };
	char stem[TENSOR_FILENAME_SIZE], descr[16];
	const struct strings_size *size;
	int r = view_data_any(v, t, &vt.data);

	if (r == -EBADMSG)
		return 0;
	if (r == 0 && t->info.dtype == dtype_string && vt.data.len != OBJECT_NO_SIZE) {
		r = index_size(&v->index, t, &size);
		if (r == 0)
			r = string_npy(v, t, size, descr, &vt);
	} else if (r == 0 && t->info.dtype != dtype_string) {
		vt.descr = t->info.dtype->npy;
		vt.npy_data = vt.data;
	}
	if (r < 0)
		return r;
	r = tensor_filename(t->info.name, t->info.name_len, false, stem);
	return r < 0 ? r : view_add_tensor(v, dir, stem, &vt, h);
}

static int add_nested(struct views *v, struct node *parent, struct tensor *t)
{
	char name[TENSOR_FILENAME_SIZE];
	struct node *dir;
	int r = tensor_filename(t->info.name, t->info.name_len, true, name);

	if (r == 0)
		r = tree_add(v->options.tree, parent, name, NODE_DIR, &dir);
	if (r < 0)
		return r;
	dir->nested = true;
	for (size_t i = 0; i < t->n_inner && r == 0; i++) {
		struct tensor *inner = t->inner[i].tensor;
		struct extent data;
		char file[32];

		r = view_data_any(v, inner, &data);
		snprintf(file, sizeof(file), "%zu.bin", i);
		if (r == 0)
			r = view_add_file(v, dir, file, &data, &inner->info);
	}
	return r;
}

/* ---- index.json ---- */

static int list_plain(struct view_json *j, const struct node *dir, const struct tensor *t,
		      uint64_t bytes)
{
	const struct view_json_tensor shown = { .info = &t->info,
						.dtype = t->info.dtype->name,
						.bytes = bytes };
	char stem[TENSOR_FILENAME_SIZE], npy[MAX_COMPONENT + 1];
	int r = tensor_filename(t->info.name, t->info.name_len, false, stem);

	if (r < 0)
		return r;
	snprintf(npy, sizeof(npy), "%s.npy", stem);
	return view_list_tensor(j, &shown, stem, tree_child(dir, npy) != NULL);
}

static int list_nested(struct views *v, struct view_json *j, const struct tensor *t)
{
	struct view_json_text *files = calloc(2 * t->n_inner + 1, sizeof(*files));
	struct view_json_text *inner;
	struct view_json_tensor shown = {
		.info = &t->info,
		.dtype = t->info.dtype->name,
		.files = files,
	};
	char dir[TENSOR_FILENAME_SIZE];
	int r;

	if (!files)
		return -ENOMEM;
	shown.inner = inner = files + t->n_inner;
	r = tensor_filename(t->info.name, t->info.name_len, true, dir);
	for (size_t i = 0; i < t->n_inner && r == 0; i++) {
		struct extent data;
		char *path = NULL;

		r = view_data_any(v, t->inner[i].tensor, &data);
		if (r == 0 && asprintf(&path, "%s/%zu.bin", dir, i) < 0)
			r = -ENOMEM;
		if (r < 0)
			break;
		files[shown.n_files++] = (struct view_json_text){ path, strlen(path) };
		inner[shown.n_inner++] = (struct view_json_text){ t->inner[i].name,
								  t->inner[i].len };
		if (data.len == OBJECT_NO_SIZE || shown.bytes == VIEW_JSON_UNKNOWN)
			shown.bytes = VIEW_JSON_UNKNOWN;
		else if (__builtin_add_overflow(shown.bytes, data.len, &shown.bytes))
			shown.bytes = VIEW_JSON_UNKNOWN;
	}
	if (r == 0)
		r = view_json_tensor(j, &shown);
	for (size_t i = 0; i < shown.n_files; i++)
		free((char *)files[i].s);
	free(files);
	return r;
}

/* Lists a problem of the whole index. Logs it while the text is counted, which happens once. */
static int list_whole(struct view_json *j, size_t line, const char *problem)
{
	char where[32] = "";

	if (!problem || !*problem)
		return 0;
	if (line)
		snprintf(where, sizeof(where), "line %zu: ", line);
	if (!j->write)
		carton_log(CARTON_LOG_WARNING, "tensor_data/index.toml", "%s%s", where, problem);
	return view_json_problem(j, (struct view_json_text){ 0 }, line, problem);
}

/* `later`: why its size was not known when tensor_data/ was filled, or NULL. */
static int list_problem(struct view_json *j, const struct tensor *t, const char *later)
{
	const char *problem = later ? later : t->problem;
	struct view_json_text name = { 0 };

	if (!problem)
		return 0;
	if (t->info.name)
		name = (struct view_json_text){ t->info.name, t->info.name_len };
	if (!j->write)
		carton_log(CARTON_LOG_WARNING, "tensor_data/index.toml",
			   "line %u: tensor \"%s\" %s: %s", t->line,
			   t->info.name ? t->info.name : "",
			   later ? "has an unknown size" : "has no view", problem);
	return view_json_problem(j, name, t->line, problem);
}

static int list_problems(struct views *v, struct view_json *j)
{
	const struct index_toml *tensors = v->index.tensors;
	int r = list_whole(j, v->index.problem.line, v->index.problem.text);

	if (r == 0 && tensors)
		r = list_whole(j, tensors->problem_line, tensors->problem);
	for (size_t i = 0; tensors && i < tensors->n && r == 0; i++)
		r = list_problem(j, &tensors->list[i], view_later(v, &tensors->list[i]));
	return r;
}

/* The text of index.json. Problems found later, by other views, do not change it. */
static int write_index(struct views *v, struct fill *fill, void *ctx, struct view_json *j)
{
	const struct lazy_dir *lazy = ctx;
	struct index_toml *tensors = v->index.tensors;
	int r = 0;

	for (size_t i = 0; tensors && i < tensors->n && r == 0; i++) {
		struct tensor *t = &tensors->list[i];
		struct extent data;

		r = view_cancelled(fill);
		if (r < 0 || (t->problem && !view_later(v, t)))
			continue;
		if (t->info.dtype == dtype_nested) {
			r = list_nested(v, j, t);
			continue;
		}
		r = view_data_any(v, t, &data);
		if (r == 0)
			r = list_plain(j, lazy->dir, t,
				       data.len == OBJECT_NO_SIZE ? VIEW_JSON_UNKNOWN : data.len);
		else if (r == -EBADMSG)
			r = 0;
	}
	return r < 0 ? r : list_problems(v, j);
}

static int add_index(struct views *v, struct node *dir, struct fill *fill)
{
	const struct view_index index = { .write = write_index, .ctx = dir->lazy, .lock = true };
	struct view_json j;
	int r;

	tree_sort(dir);
	view_json_init(&j, NULL, NULL);
	r = write_index(v, fill, dir->lazy, &j);
	if (r == 0)
		r = view_json_end(&j);
	view_json_finish(&j);
	return r < 0 ? r : view_add_index(v, dir, &index, j.size);
}

/* Has each file of strings measured. What cannot be had now hides nothing else. */
static int measure_all(struct views *v, struct fill *fill)
{
	const struct index_toml *tensors = v->index.tensors;
	int r = 0;

	for (size_t i = 0; i < v->index.n_strings; i++)
		v->index.strings[i].error = -EAGAIN;
	for (size_t i = 0; tensors && i < tensors->n && r == 0; i++) {
		struct index_strings *s = index_strings_of(&v->index, &tensors->list[i]);

		/* one for several tensors is waited for once */
		if (!s || s->error != -EAGAIN)
			continue;
		s->error = view_measure(v, fill, &tensors->list[i]);
		r = view_unreachable(s->error) ? 0 : s->error;
	}
	return r;
}

/*
 * If the file is bad, every tensor that uses it has a problem. If it cannot be fetched now, only
 * the size of the tensor is unknown.
 */
static int take_size(struct views *v, struct tensor *t)
{
	const struct index_strings *file = index_strings_of(&v->index, t);
	const struct strings_size *size;
	struct view_strings *s;
	int r;

	if (!file || t->problem)
		return 0;
	s = &v->strings[t - v->index.tensors->list];
	free(s->later);
	s->later = NULL;
	if (file->error == 0) {
		r = index_size(&v->index, t, &size);
		return r == -EBADMSG ? 0 : r;
	}
	if (asprintf(&s->later, "its file \"%s\" cannot be read now, so its size is not known: %s",
		     t->file, strerror(-file->error)) < 0) {
		s->later = NULL;
		return -ENOMEM;
	}
	return 0;
}

/* With the lock, once the files of strings were measured. */
static int make_nodes(struct views *v, struct node *dir, struct fill *fill)
{
	struct view_headers headers = { 0 };
	struct index_toml *tensors = v->index.tensors;
	int r = 0;

	for (size_t i = 0; tensors && i < tensors->n && r == 0; i++)
		r = take_size(v, &tensors->list[i]);
	if (r == 0 && tensors)
		r = index_toml_propagate(tensors);
	for (size_t i = 0; tensors && i < tensors->n && r == 0; i++) {
		struct tensor *t = &tensors->list[i];

		r = view_cancelled(fill);
		if (r == 0 && !t->problem)
			r = t->info.dtype == dtype_nested ? add_nested(v, dir, t) :
							    add_plain(v, dir, t, &headers);
	}
	return r < 0 ? r : add_index(v, dir, fill);
}

int view_make_tensors(struct views *v, struct node *dir, struct fill *fill, void *ctx)
{
	int r = view_load(v, fill);

	(void)ctx;
	if (r == 0)
		r = measure_all(v, fill);
	if (r < 0)
		return r;
	pthread_mutex_lock(&v->lock);
	r = make_nodes(v, dir, fill);
	pthread_mutex_unlock(&v->lock);
	return r;
}

/* ---- tensor_data.safetensors ---- */

/* The parts of the file, in the order of their data. */
struct collection {
	struct safetensors_item *items;
	size_t n;
	struct buf header;
	uint64_t taken; /* of the budget */
};

/*
 * An estimate of the memory that a tensor takes while the file is built, mostly more than its part
 * of the header.
 */
#define COLLECT_SIZE (2 * sizeof(struct safetensors_item) + sizeof(struct extent) + 128)

static void collection_free(struct views *v, struct collection *c)
{
	buf_finish(&c->header);
	free(c->items);
	budget_give(v->options.tree->budget, c->taken);
}

/* Errors of safetensors_header(). `log`: what is left out. */
static int collect(struct views *v, bool log, struct collection *ret)
{
	struct index_toml *tensors = v->index.tensors;
	struct collection c = { .header = buf_init(MAX_SAFETENSORS_HEADER + 8) };
	int r = budget_take(v->options.tree->budget, tensors->n * COLLECT_SIZE);

	if (r < 0)
		return r;
	c.taken = tensors->n * COLLECT_SIZE;
	c.items = calloc(tensors->n + 1, sizeof(*c.items));
	r = c.items ? 0 : -ENOMEM;
	for (size_t i = 0; i < tensors->n && r == 0; i++) {
		struct tensor *t = &tensors->list[i];

		if (t->problem || !t->info.dtype->safetensors)
			continue;
		if (safetensors_can_hold(&t->info))
			c.items[c.n++] = (struct safetensors_item){ .info = &t->info, .user = t };
		else if (log)
			carton_log(CARTON_LOG_WARNING, "tensor_data.safetensors",
				   "leaves out \"%s\": the format reserves this name",
				   t->info.name);
	}
	if (r == 0)
		r = safetensors_header(c.items, c.n, &c.header);
	if (r < 0)
		collection_free(v, &c);
	else
		*ret = c;
	return r;
}

/*
 * Makes the header again. The tensors in it are the same: none that is numeric gets a problem
 * later.
 */
static int derive_header(void *ctx, struct fill *fill)
{
	struct views *v = ctx;
	struct collection c;
	struct derived_file out;
	int r;

	pthread_mutex_lock(&v->lock);
	r = collect(v, false, &c);
	if (r == 0) {
		r = derived_begin(&out, fill, c.header.len);
		if (r == 0)
			r = derived_end(&out, derived_write(&out, c.header.data, c.header.len));
		collection_free(v, &c);
	}
	pthread_mutex_unlock(&v->lock);
	return r;
}

static int no_collection(const char *why)
{
	carton_log(CARTON_LOG_WARNING, "tensor_data.safetensors", "is left out: %s", why);
	return 0;
}

static int add_collection(struct views *v, struct node *dir, struct collection *c)
{
	struct extent *extents, header = { .len = c->header.len };
	int r;

	buf_finish(&c->header);
	extents = calloc(c->n + 1, sizeof(*extents));
	r = extents ? object_add_derived(v->options.store, "tensor_data.safetensors", header.len,
					 derive_header, v, &header.object) :
		      -ENOMEM;
	if (r == 0)
		extents[0] = header;
	for (size_t i = 0; i < c->n && r == 0; i++)
		r = view_data(v, c->items[i].user, &extents[i + 1]);
	if (r == 0)
		r = view_add_extents(v, dir, "tensor_data.safetensors", extents, c->n + 1);
	free(extents);
	return r;
}

int view_add_collection(struct views *v, struct node *dir)
{
	struct collection c;
	int r = collect(v, true, &c);

	if (r == -EFBIG)
		return no_collection("its header would be longer than the format allows, or takes "
				     "more memory than this carton may");
	if (r == -EOVERFLOW)
		return no_collection("it would have 2^63 bytes or more");
	if (r < 0)
		return r;
	if (c.n > 0)
		r = add_collection(v, dir, &c);
	collection_free(v, &c);
	return r;
}
