/* SPDX-License-Identifier: Apache-2.0 */
/* An open carton: its tree, its properties, its bytes. */
#include "carton/opened.h"

#include <inttypes.h>
#include <stdio.h>

#include "archive/decode.h"
#include "base/failure.h"
#include "base/sleeper.h"
#include "tensor/dtype.h"

/* ---- the tree ---- */

struct carton_node *carton_root(const struct carton *c)
{
	return from_node(c->tree->shown);
}

int carton_lookup(const struct carton_node *dir, const char *name, struct carton_node **ret)
{
	struct node *n = to_node(dir);

	failure_forget();
	if (n->kind != NODE_DIR)
		return -ENOTDIR;
	n = tree_child(n, name);
	if (!n)
		return -ENOENT;
	*ret = from_node(n);
	return 0;
}

/* Resolves the next component of a path below `at`. Waits for generated directories. */
static int step(struct node **at, const char *name)
{
	int r = node_lazy_object(*at) ? object_get_wait(node_lazy_object(*at), NULL) : 0;

	*at = r < 0 ? *at : tree_child(*at, name);
	return r < 0 ? r : *at ? 0 : -ENOENT;
}

int carton_resolve(const struct carton *c, const char *path, struct carton_node **ret)
{
	struct node *at = c->tree->shown;
	char name[MAX_COMPONENT + 1];

	failure_forget();
	while (*path) {
		size_t len = strcspn(path, "/");
		int r;

		if (len == 0 || len > MAX_COMPONENT)
			return -ENOENT;
		memcpy(name, path, len);
		name[len] = '\0';
		r = step(&at, name);
		if (r < 0)
			return r;
		path += len + (path[len] == '/');
	}
	at = tree_resolve(at);
	if (!at)
		return -ENOENT;
	*ret = from_node(at);
	return 0;
}

struct carton_node *carton_child(const struct carton_node *dir, size_t index)
{
	const struct node *n = to_node(dir);

	return n->kind == NODE_DIR && index < node_children(n)->n ?
		       from_node(&node_children(n)->list[index]) :
		       NULL;
}

struct carton_node *carton_parent(const struct carton_node *node)
{
	return from_node(to_node(node)->parent);
}

struct carton_node *carton_next(const struct carton *c, struct carton_node *node)
{
	struct node *root = c->tree->root, *shown = c->tree->shown, *n = to_node(node);

	/* what is shown in place of the root was generated */
	n = tree_next(root, n == shown ? root : n);
	return from_node(n && n == shown ? tree_next(root, n) : n);
}

const char *carton_name(const struct carton_node *node)
{
	return to_node(node)->name;
}

void carton_path(const struct carton_node *node, char ret_path[4096])
{
	tree_path(to_node(node), ret_path);
}

void carton_stat(const struct carton_node *node, struct carton_stat *ret)
{
	const struct node *n = to_node(node);

	*ret = (struct carton_stat){
		.executable = node_is_executable(n),
		.ino = node_ino(n),
		.nlink = 1,
		.mtime = node_mtime(n),
		.hidden = n->hidden,
		.size_known = true,
		.size_certain = true,
	};

	switch ((enum node_kind)n->kind) {
	case NODE_DIR:
		ret->kind = CARTON_DIR;
		/* a link count of 1: the number of subdirectories is not known */
		ret->nlink = n->is_lazy ? 1 : 2 + n->plain.n_dirs;
		break;
	case NODE_FILE:
		ret->kind = CARTON_FILE;
		ret->size = node_size(n);
		ret->size_known = ret->size != OBJECT_NO_SIZE;
		ret->size_certain = node_size_is_certain(n);
		if (!ret->size_known)
			ret->size = 0;
		break;
	case NODE_SYMLINK:
		ret->kind = CARTON_SYMLINK;
		ret->size = strlen(n->link.target);
		break;
	}
}

const char *carton_target(const struct carton_node *symlink)
{
	const struct node *n = to_node(symlink);

	return n->kind == NODE_SYMLINK ? n->link.target : NULL;
}

void carton_totals(const struct carton *c, struct carton_totals *ret)
{
	*ret = c->totals;
}

void carton_model_hash(const struct carton *c, char ret_hex[65])
{
	const struct carton_late *late = &c->late;

	*ret_hex = '\0';
	if (!c->bare && !late->manifest)
		hex_encode(c->manifest->model_hash, SHA256_SIZE, ret_hex);
	else if (!c->bare && atomic_load(&late->known))
		hex_encode(late->model_hash, SHA256_SIZE, ret_hex);
}

bool carton_error_passes(int error)
{
	/* of a request, these do not get here; other things are busy for other reasons */
	return error != -EBUSY && error != -EAGAIN && error_passes(error);
}

bool carton_is_bare(const struct carton *c)
{
	return c->bare;
}

bool carton_is_verified(const struct carton *c)
{
	return c->verify;
}

unsigned char *carton_mark(struct carton_node *node)
{
	return &to_node(node)->mark;
}

/* ---- properties ---- */

static ssize_t property_sha256(struct object *o, char *ret, size_t n)
{
	char hex[2 * SHA256_SIZE + 1];
	uint8_t sha256[SHA256_SIZE];

	if (!object_known_sha256(o, sha256))
		return -ENODATA;
	hex_encode(sha256, SHA256_SIZE, hex);
	return snprintf(ret, n, "%s", hex);
}

static ssize_t property_state(struct object *o, char *ret, size_t n)
{
	static const char *const names[] = { "unverified", "verified", "sealed", "chunks",
					     "corrupt" };
	struct object_progress p;
	uint64_t size = object_size(o);

	if (object_state(o) == OBJECT_UNVERIFIED && object_progress(o, &p)) {
		const char *what = p.fetching ? "fetching" : "verifying";

		if (size == OBJECT_NO_SIZE || size == 0)
			return snprintf(ret, n, "%s", what);
		return snprintf(ret, n, "%s %u%%", what,
				(unsigned)((double)MIN(p.done, size) * 100 / (double)size));
	}
	return snprintf(ret, n, "%s", names[object_known_state(o)]);
}

static struct carton_storage storage_of(const struct object *o)
{
	const struct entry *e = object_entry(o);

	if (!e)
		return (struct carton_storage){ .method = "links" };
	return (struct carton_storage){ decode_name((uint16_t)e->method), true,
					e->method == METHOD_STORED, e->stored };
}

bool carton_storage(const struct carton_node *file, struct carton_storage *ret)
{
	const struct node *n = to_node(file);

	if (node_tensor(n) || !node_object(n))
		return false;
	*ret = storage_of(node_object(n));
	return true;
}

static ssize_t property_storage(struct object *o, char *ret, size_t n)
{
	struct carton_storage s = storage_of(o);

	if (!s.contained)
		return snprintf(ret, n, "%s", s.method);
	return snprintf(ret, n, "%s %" PRIu64, s.method, s.bytes);
}

static ssize_t property_dtype(const struct tensor_info *t, char *ret, size_t n)
{
	return snprintf(ret, n, "%s", dtype_label(t->dtype ? t->dtype : dtype_nested));
}

static ssize_t property_shape(const struct tensor_info *t, char *ret, size_t n)
{
	size_t used = (size_t)snprintf(ret, n, "[");

	for (unsigned i = 0; i < t->rank; i++)
		used += (size_t)snprintf(used < n ? ret + used : NULL, used < n ? n - used : 0,
					 "%s%" PRIu64, i ? "," : "", t->shape[i]);
	return (ssize_t)used + snprintf(used < n ? ret + used : NULL, used < n ? n - used : 0, "]");
}

static const struct {
	const char *name;
	ssize_t (*get)(struct object *o, char *ret, size_t n);
} properties[] = {
	{ "user.carton.sha256", property_sha256 },
	{ "user.carton.state", property_state },
	{ "user.carton.storage", property_storage },
};

static const struct {
	const char *name;
	ssize_t (*get)(const struct tensor_info *t, char *ret, size_t n);
} view_properties[] = {
	{ "user.carton.dtype", property_dtype },
	{ "user.carton.shape", property_shape }, /* last: see n_view_properties() */
};

/* A nested tensor has no shape. */
static size_t n_view_properties(const struct tensor_info *t)
{
	return ARRAY_SIZE(view_properties) - !t->dtype;
}

ssize_t carton_property(const struct carton_node *node, const char *name, char *ret, size_t n)
{
	const struct node *at = to_node(node);
	const struct tensor_info *t = node_tensor(at);

	for (size_t i = 0; t && i < n_view_properties(t); i++)
		if (strcmp(name, view_properties[i].name) == 0)
			return view_properties[i].get(t, ret, n);
	for (size_t i = 0; !t && node_object(at) && i < ARRAY_SIZE(properties); i++)
		if (strcmp(name, properties[i].name) == 0)
			return properties[i].get(node_object(at), ret, n);
	return -ENODATA;
}

/* ---- reading ---- */

uint64_t carton_memory(const struct carton *c)
{
	return c->budget.limit;
}

int carton_copy_fd(const struct carton_node *file)
{
	struct object *o = node_known_object(to_node(file));

	return o ? object_copy_fd(o) : -ENODATA;
}

static void wake(void *ctx, int result)
{
	sleeper_wake(ctx, result);
}

int carton_pin_wait_observed(struct carton_node *file, struct carton_observer *observer)
{
	struct carton_request *request = NULL;
	struct sleeper sleeper;
	int r = carton_pin_observed(file, NULL, NULL, NULL, NULL);

	if (r != -EAGAIN) {
		if (observer)
			observer->end(observer, -EALREADY);
		return r;
	}
	sleeper_init(&sleeper);
	r = carton_pin_observed(file, observer, wake, &sleeper, &request);
	if (r == -EINPROGRESS) {
		sleeper_wait(&sleeper, NULL);
		r = sleeper.result;
		carton_request_free(request);
	}
	sleeper_finish(&sleeper);
	return r;
}

int carton_pin_wait(struct carton *c, struct carton_node *file)
{
	(void)c;
	return carton_pin_wait_observed(file, NULL);
}

int carton_slurp(struct carton *c, const char *path, size_t max, struct buf *ret)
{
	struct node *n = tree_find(c->tree, path);
	ssize_t got;
	int r;

	if (!n || n->kind != NODE_FILE)
		return -ENOENT;
	r = carton_pin_wait(c, from_node(n));
	if (r < 0)
		return r;
	ret->max = max;
	r = buf_reserve(ret, (size_t)MIN(node_size(n), SIZE_MAX));
	if (r == -EFBIG)
		carton_log(CARTON_LOG_ERROR, path, "is %" PRIu64 " bytes; at most %zu are read",
			   node_size(n), max);
	got = r == 0 ? carton_read(from_node(n), ret->data, (size_t)node_size(n), 0, false) : r;
	carton_unpin(from_node(n));
	if (got < 0)
		return (int)got;
	ret->len = (size_t)got;
	ret->data[ret->len] = '\0';
	return 0;
}

/* ---- damage that shows late ---- */

/* Does the file show bytes of the object, or of one that was made of it? */
static bool shows(const struct node *file, const struct object *o)
{
	/* an entry without an object was never opened */
	if (!file->has_body)
		return node_known_object(file) == o;
	for (size_t i = 0; i < node_n_extents(file); i++) {
		const struct object *shown = node_extent(file, i).object;

		if (shown && (shown == o || object_made_of(shown, o)))
			return true;
	}
	return false;
}

/* Reports the damaged files below `top`, also in generated directories that were filled. */
static void tell_damage(struct carton *c, const struct node *top, const struct object *o)
{
	for (struct node *n = tree_next(top, (struct node *)top); n; n = tree_next(top, n)) {
		if (n->kind == NODE_DIR && n->is_lazy &&
		    object_state(node_lazy_object(n)) == OBJECT_VERIFIED)
			tell_damage(c, n, o);
		else if (n->kind == NODE_FILE && shows(n, o))
			c->damaged(c->damaged_ctx, from_node(n));
	}
}

void carton_damage_found(void *carton, const struct object *o)
{
	struct carton *c = carton;

	if (c->damaged)
		tell_damage(c, c->tree->root, o);
}
