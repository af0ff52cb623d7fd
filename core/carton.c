/* SPDX-License-Identifier: Apache-2.0 */
#include "carton_priv.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

#include "decode.h"
#include "dir.h"
#include "download.h"
#include "dtype.h"
#include "load.h"
#include "request.h"
#include "snapshot.h"
#include "zip.h"

/* ---- opening ---- */

static bool is_url(const char *source)
{
	return strncmp(source, "http://", 7) == 0 || strncmp(source, "https://", 8) == 0;
}

/* Starts what fetching needs, unless nothing may be fetched. */
static int open_network(struct carton *c, const char *source, const struct carton_options *options)
{
	struct http_options http = {
		.private_links = options->private_links,
		.cacert = options->cacert,
		.header_file = options->header_file,
		.origin_url = is_url(source) ? source : NULL,
	};

	if (options->offline || c->remote.http)
		return 0;
	c->remote.timeout_ms = (options->timeout_s ? options->timeout_s : 60) * 1000;
	c->remote.connections = options->connections ? options->connections : 8;
	c->remote.stopping = &c->stopping;
	return http_start(&http, &c->remote.http);
}

static int open_cache(struct carton *c, const struct carton_options *options)
{
	int r = cache_open(options->cache_dir, options->cache_size, &c->cache);

	if (r < 0 && options->cache_dir) {
		carton_log(CARTON_LOG_ERROR, options->cache_dir, "cannot be used as a cache: %s",
			   strerror(-r));
		return r;
	}
	if (r < 0)
		carton_log(CARTON_LOG_INFO, NULL,
			   "no cache directory (%s): unpacked files go to $TMPDIR or /var/tmp",
			   strerror(-r));
	return 0;
}

/* Without the network: as it was when it was opened last, if that was kept. */
static int open_kept(struct carton *c, const char *url, struct source **ret, int64_t *ret_mtime)
{
	char shown[256];
	int r = -ENOENT;

	if (c->cache)
		r = snapshot_open(c->cache, url, ret, ret_mtime);
	if (r == -ENOENT && c->cache) {
		r = download_kept(c->cache, url, ret);
		*ret_mtime = INT64_MIN;
	}
	if (r != -ENOENT)
		return r;
	carton_log(CARTON_LOG_ERROR, http_url_redact(url, shown, sizeof(shown)),
		   "is not in the cache, and with -o offline nothing is fetched; "
		   "run cartonctl fetch first");
	return -ENETUNREACH;
}

/* Over the network; what is read of it until it is open is recorded, for open_kept(). */
static int open_remote(struct carton *c, const char *url, struct source **ret, int64_t *ret_mtime)
{
	struct source *source;
	int r = remote_source_open(&c->remote, url, &source);

	if (r == -ENOTSUP)
		return download_carton(&c->remote, c->cache, url, ret, ret_mtime);
	if (r < 0)
		return r;
	*ret_mtime = remote_source_mtime(source);
	if (!c->cache) {
		*ret = source;
		return 0;
	}
	r = snapshot_record(source, *ret_mtime, &c->recorder);
	source_unref(source);
	if (r == 0)
		*ret = source_ref(c->recorder);
	return r;
}

static int open_url(struct carton *c, const char *url, struct container **ret)
{
	struct source *source;
	int64_t mtime;
	int r;

	r = c->remote.http ? open_remote(c, url, &source, &mtime) :
			     open_kept(c, url, &source, &mtime);
	if (r < 0)
		return r;
	/* where the server does not say, now is as good as any time */
	r = zip_open(source, mtime == INT64_MIN ? time(NULL) : mtime, ret);
	source_unref(source);
	return r;
}

static int open_path(const char *path, struct container **ret)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), r;
	struct source *source;
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0) {
		r = -errno;
		carton_log(CARTON_LOG_ERROR, path, "cannot open: %s", strerror(-r));
		fd_close(fd);
		return r;
	}
	if (S_ISDIR(st.st_mode))
		return dir_open(fd, ret);
	if (!S_ISREG(st.st_mode)) {
		carton_log(CARTON_LOG_ERROR, path, "is neither a carton file nor a directory");
		fd_close(fd);
		return -EBADMSG;
	}
	r = source_from_fd(fd, &source);
	if (r < 0)
		return r;
	r = zip_open(source, st.st_mtime, ret);
	source_unref(source);
	return r;
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
	got = r == 0 ? request_read(n, ret->data, (size_t)node_size(n), 0, false) : r;
	request_unpin(n);
	if (got < 0)
		return (int)got;
	ret->len = (size_t)got;
	ret->data[ret->len] = '\0';
	return 0;
}

/* carton.toml says which version of the format this is: without it nothing else makes sense. */
static int open_meta(struct carton *c)
{
	struct buf text = { 0 };
	int r = carton_slurp(c, "carton.toml", MAX_CARTON_TOML, &text);

	if (r == -ENOENT) {
		carton_log(CARTON_LOG_ERROR, "carton.toml",
			   "is not listed in MANIFEST as a regular file, so this is not a carton");
		r = -EBADMSG;
	}
	if (r == 0)
		r = meta_parse(text.data, text.len, &c->meta);
	buf_free(&text);
	if (r < 0)
		return r;
	if (!c->meta->has_spec_version) {
		carton_log(CARTON_LOG_ERROR, "carton.toml", "has no spec_version; it must be 1");
		return -EBADMSG;
	}
	if (c->meta->spec_version != 1) {
		carton_log(CARTON_LOG_ERROR, "carton.toml",
			   "spec_version is %" PRId64 "; this program reads version 1",
			   c->meta->spec_version);
		return -EOPNOTSUPP;
	}
	return 0;
}

static int open_store(struct carton *c)
{
	struct object_options o = {
		.container = c->container,
		.cache = c->cache,
		.remote = c->remote.http ? &c->remote : NULL,
		.verify = c->verify,
	};
	int r = workers_new(&c->workers);

	o.workers = c->workers;
	return r < 0 ? r : object_store_new(&o, &c->store);
}

/* What the carton is made of, up to its tree. */
static int open_parts(struct carton *c, const char *source, const struct carton_options *options)
{
	int r = open_cache(c, options);

	if (r == 0 && is_url(source))
		r = open_network(c, source, options);
	if (r == 0)
		r = is_url(source) ? open_url(c, source, &c->container) :
				     open_path(source, &c->container);
	if (r == 0)
		r = load_ahead(c->container);
	if (r == 0)
		r = load_manifest(c->container, options->manifest_sha256, &c->manifest);
	if (r == 0)
		r = load_links(c->container, &c->links);
	if (r == 0 && c->links)
		r = open_network(c, source, options);
	if (r == 0)
		r = open_store(c);
	if (r == 0)
		r = load_tree(c->container, c->manifest, c->links, c->store, options->keep_going,
			      &c->tree, &c->faults);
	if (r == 0 && c->recorder)
		snapshot_save(c->recorder, c->cache, source);
	return r;
}

static int open_views(struct carton *c, const struct carton_options *options)
{
	struct views_options v = {
		.tree = c->tree,
		.store = c->store,
		.meta = c->meta,
		.cache = c->cache,
		.name = options->views,
		.hidden = options->views_hidden,
	};

	c->totals = (struct carton_totals){ c->tree->n_files, c->tree->n_nodes, c->tree->bytes };
	if (!options->views)
		return 0;
	if (path_fault(options->views, strlen(options->views)) || strchr(options->views, '/')) {
		carton_log(CARTON_LOG_ERROR, NULL, "views=%s is not the name of a directory",
			   options->views);
		return -EINVAL;
	}
	return views_new(&v, &c->views);
}

int carton_open(const char *source, const struct carton_options *options, struct carton **ret)
{
	struct carton *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return -ENOMEM;
	c->verify = options->verify == CARTON_VERIFY_OPEN;
	if (!c->verify)
		carton_log(CARTON_LOG_WARNING, source,
			   "verify=off: nothing that is read is checked against MANIFEST");
	r = open_parts(c, source, options);
	if (r == 0)
		r = open_meta(c);
	if (r < 0 && options->keep_going && c->tree) {
		c->faults++;
		r = 0;
	}
	if (r == 0)
		r = open_views(c, options);
	if (r < 0) {
		carton_close(c);
		return r;
	}
	*ret = c;
	return 0;
}

void carton_stop(struct carton *c)
{
	atomic_store(&c->stopping, true);
	if (c->store)
		object_store_stop(c->store);
	if (c->remote.http)
		http_stop(c->remote.http);
}

void carton_close(struct carton *c)
{
	if (!c)
		return;
	carton_stop(c);
	workers_free(c->workers);
	meta_free(c->meta);
	tree_free(c->tree);
	views_free(c->views);
	object_store_free(c->store);
	manifest_free(c->manifest);
	links_free(c->links);
	container_free(c->container);
	source_unref(c->recorder);
	http_free(c->remote.http);
	cache_free(c->cache);
	free(c);
}

char *carton_source_label(const char *source, char *ret, size_t n)
{
	if (is_url(source))
		return http_url_redact(source, ret, n);
	snprintf(ret, n, "%s", source);
	return ret;
}

/* ---- the tree ---- */

struct carton_node *carton_root(const struct carton *c)
{
	return from_node(c->tree->root);
}

int carton_lookup(const struct carton_node *dir, const char *name, struct carton_node **ret)
{
	struct node *n = to_node(dir);

	if (n->kind != NODE_DIR)
		return -ENOTDIR;
	n = tree_child(n, name);
	if (!n)
		return -ENOENT;
	*ret = from_node(n);
	return 0;
}

/* The next component of a path from `at`; waits for what is generated. */
static int step(struct node **at, const char *name)
{
	int r = (*at)->kind == NODE_DIR && (*at)->dir.gate ? object_get_wait((*at)->dir.gate) : 0;

	*at = r < 0 ? *at : tree_child(*at, name);
	return r < 0 ? r : *at ? 0 : -ENOENT;
}

int carton_resolve(const struct carton *c, const char *path, struct carton_node **ret)
{
	struct node *at = c->tree->root;
	char name[MAX_COMPONENT + 1];

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

	return n->kind == NODE_DIR && index < n->dir.n ? from_node(n->dir.children[index]) : NULL;
}

struct carton_node *carton_parent(const struct carton_node *node)
{
	return from_node(to_node(node)->parent);
}

struct carton_node *carton_next(const struct carton *c, struct carton_node *node)
{
	return from_node(tree_next(c->tree->root, to_node(node)));
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
		.executable = n->executable,
		.ino = n->ino,
		.nlink = 1,
		.mtime = n->mtime,
		.hidden = n->hidden,
		.size_known = true,
		.size_certain = true,
	};
	struct object *o = node_object(n);

	switch (n->kind) {
	case NODE_DIR:
		ret->kind = CARTON_DIR;
		/* 1 says that it does not tell how many directories are in it */
		ret->nlink = n->dir.gate ? 1 : 2 + (uint32_t)n->dir.n_dirs;
		break;
	case NODE_FILE:
		ret->kind = CARTON_FILE;
		ret->size = node_size(n);
		ret->size_known = ret->size != OBJECT_NO_SIZE;
		ret->size_certain = !o || object_size_is_certain(o);
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
	hex_encode(c->manifest->model_hash, SHA256_SIZE, ret_hex);
}

/* ---- properties ---- */

static ssize_t property_sha256(struct object *o, char *ret, size_t n)
{
	char hex[2 * SHA256_SIZE + 1];

	hex_encode(object_sha256(o), SHA256_SIZE, hex);
	return snprintf(ret, n, "%s", hex);
}

static ssize_t property_state(struct object *o, char *ret, size_t n)
{
	static const char *const names[] = { "unverified", "verified", "corrupt" };

	return snprintf(ret, n, "%s", names[object_state(o)]);
}

static ssize_t property_storage(struct object *o, char *ret, size_t n)
{
	const struct entry *e = object_entry(o);

	if (!e)
		return snprintf(ret, n, "links");
	return snprintf(ret, n, "%s %" PRIu64, decode_name(e->method), e->stored);
}

static ssize_t property_dtype(const struct tensor_info *t, char *ret, size_t n)
{
	return snprintf(ret, n, "%s", dtype_label(t->dtype));
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
	{ "user.carton.shape", property_shape },
};

const char *carton_property_name(const struct carton_node *node, size_t index)
{
	const struct node *n = to_node(node);

	if (n->tensor)
		return index < ARRAY_SIZE(view_properties) ? view_properties[index].name : NULL;
	return node_object(n) && index < ARRAY_SIZE(properties) ? properties[index].name : NULL;
}

ssize_t carton_property(const struct carton_node *node, const char *name, char *ret, size_t n)
{
	const struct node *at = to_node(node);

	for (size_t i = 0; at->tensor && i < ARRAY_SIZE(view_properties); i++)
		if (strcmp(name, view_properties[i].name) == 0)
			return view_properties[i].get(at->tensor, ret, n);
	for (size_t i = 0; !at->tensor && node_object(at) && i < ARRAY_SIZE(properties); i++)
		if (strcmp(name, properties[i].name) == 0)
			return properties[i].get(node_object(at), ret, n);
	return -ENODATA;
}

/* ---- reading ---- */

int carton_pin(struct carton *c, struct carton_node *file, carton_done_fn *done, void *ctx,
	       struct carton_request **ret_request)
{
	(void)c;
	return request_pin(to_node(file), done, ctx, ret_request);
}

void carton_unpin(struct carton_node *file)
{
	request_unpin(to_node(file));
}

int carton_list(struct carton *c, struct carton_node *dir, carton_done_fn *done, void *ctx,
		struct carton_request **ret_request)
{
	(void)c;
	return request_list(to_node(dir), done, ctx, ret_request);
}

int carton_size(struct carton *c, struct carton_node *file, carton_done_fn *done, void *ctx,
		struct carton_request **ret_request)
{
	(void)c;
	return request_size(to_node(file), done, ctx, ret_request);
}

struct waiter {
	pthread_mutex_t lock;
	pthread_cond_t over;
	bool done;
	int result;
};

static void wake(void *ctx, int result)
{
	struct waiter *w = ctx;

	pthread_mutex_lock(&w->lock);
	w->done = true;
	w->result = result;
	pthread_cond_signal(&w->over);
	pthread_mutex_unlock(&w->lock);
}

int carton_pin_wait(struct carton *c, struct carton_node *file)
{
	struct waiter w = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, 0 };
	struct carton_request *request = NULL;
	int r = carton_pin(c, file, wake, &w, &request);

	if (r == -EINPROGRESS) {
		pthread_mutex_lock(&w.lock);
		while (!w.done)
			pthread_cond_wait(&w.over, &w.lock);
		r = w.result;
		pthread_mutex_unlock(&w.lock);
		carton_request_free(request);
	}
	return r;
}

ssize_t carton_read(struct carton_node *file, void *ret_buf, size_t n, uint64_t off, bool nowait)
{
	return request_read(to_node(file), ret_buf, n, off, nowait);
}

int carton_read_later(struct carton *c, struct carton_node *file, size_t n, uint64_t off,
		      carton_done_fn *done, void *ctx, struct carton_request **ret_request)
{
	return request_read_later(c->workers, to_node(file), n, off, done, ctx, ret_request);
}
