/* SPDX-License-Identifier: Apache-2.0 */
/*
 * carton_fetch(): files that a local carton does not have, verified, into the cache; and what of
 * them is there afterwards.
 */
#include <stdlib.h>
#include <sys/types.h>

#include "base/util.h"
#include "cache/cache.h"
#include "carton/opened.h"

/* files that are shown by themselves, from which size on, and how many of them at most */
#define LARGE (8 * MIB)
#define MAX_SHOWN 8

/* One file, and what servers have to send for it. */
struct wanted {
	const struct node *file;
	struct object *object;
	uint64_t size; /* OBJECT_NO_SIZE: not known */
};

struct fetching {
	struct carton *c;
	struct wanted *list; /* by object */
	size_t n;
	size_t opened;	  /* files that opening a remote carton has read */
	uint64_t fetched; /* by other requests before */
	struct carton_fetched *now;
	carton_fetch_fn *progress;
	void *ctx;
};

/* ---- what is wanted ---- */

static int by_object(const void *a, const void *b)
{
	uintptr_t x = (uintptr_t)((const struct wanted *)a)->object;
	uintptr_t y = (uintptr_t)((const struct wanted *)b)->object;

	return x < y ? -1 : x > y;
}

static void add(struct fetching *f, const struct node *file)
{
	bool remote = f->c->container->remote, here;
	struct object *o;

	if (file->kind != NODE_FILE)
		return;
	f->now->files++;
	here = file->has_body || (!remote && file->file.entry);
	o = here ? NULL : node_object(file);
	here = here || (!remote && o && object_entry(o));
	if (here && remote)
		f->opened++;
	else if (here)
		f->now->local++;
	else if (o)
		f->list[f->n++] = (struct wanted){ .file = file, .object = o };
}

static int list_wanted(struct fetching *f, const struct carton_files *files)
{
	const struct tree *t = f->c->tree;

	f->list = calloc((files ? files->n : (size_t)t->files) + 1, sizeof(*f->list));
	if (!f->list)
		return -ENOMEM;
	for (size_t i = 0; files && i < files->n; i++)
		add(f, to_node(files->list[i]));
	for (struct node *n = t->root; n && !files; n = tree_next(t->root, n))
		add(f, n);
	if (f->n)
		qsort(f->list, f->n, sizeof(*f->list), by_object);
	return 0;
}

/* Is it, or a copy in a directory of the user's mirrors, there to be read? */
static bool is_there(const struct carton *c, const struct object *o)
{
	uint8_t sha256[SHA256_SIZE];
	size_t at = 0;
	int fd;

	if (!object_cache_name(o, sha256))
		return false;
	if ((!c->cache || cache_lookup(c->cache, sha256, &fd, NULL) < 0) &&
	    mirrors_open(c->mirrors, sha256, object_name(o), &at, &fd) < 0)
		return false;
	fd_close(fd);
	return true;
}

/* Several files may have one content. */
static bool is_twin(const struct fetching *f, size_t i)
{
	return i > 0 && f->list[i].object == f->list[i - 1].object;
}

static uint64_t known_size(const struct object *o)
{
	return object_size(o) == OBJECT_NO_SIZE ? 0 : object_size(o);
}

static void add_size(uint64_t *sum, uint64_t size)
{
	*sum = *sum == OBJECT_NO_SIZE || size == OBJECT_NO_SIZE ? OBJECT_NO_SIZE : *sum + size;
}

/* Counts what is there (bytes), and what has to come. */
static void measure(struct fetching *f, uint64_t *ret_there, uint64_t *ret_missing)
{
	struct carton_fetched *now = f->now;

	*ret_there = *ret_missing = now->size = 0;
	now->cached = f->opened;
	for (size_t i = 0; i < f->n; i++) {
		struct wanted *w = &f->list[i];
		bool twin = is_twin(f, i), there = is_there(f->c, w->object);

		now->cached += there;
		*(there ? ret_there : ret_missing) += twin ? 0 : known_size(w->object);
		w->size = there || twin ? 0 : object_to_fetch(w->object);
		add_size(&now->size, w->size);
	}
}

/* ---- how far it is ---- */

/* What a server has said by now, or all of it has shown. */
static void learn_size(struct wanted *w, const struct object_progress *p)
{
	if (p && p->announced)
		w->size = p->announced;
	else if (!p)
		w->size = object_size(w->object);
}

static size_t find_running(struct fetching *f, struct carton_fetching *ret,
			   char (*paths)[MAX_PATH_LEN + 1])
{
	struct object_progress p;
	size_t n = 0;

	f->now->size = 0;
	for (size_t i = 0; i < f->n; i++) {
		struct wanted *w = &f->list[i];
		bool under_way = w->size >= LARGE && object_progress(w->object, &p);

		if (w->size == OBJECT_NO_SIZE)
			learn_size(w, under_way ? &p : NULL);
		add_size(&f->now->size, w->size);
		if (!under_way || n == MAX_SHOWN || p.arrived == 0 ||
		    (w->size == OBJECT_NO_SIZE ? p.arrived : w->size) < LARGE)
			continue;
		ret[n] = (struct carton_fetching){
			.path = tree_path(w->file, paths[n]),
			.came = p.arrived,
			.size = w->size == OBJECT_NO_SIZE ? 0 : MAX(w->size, p.arrived),
		};
		n++;
	}
	return n;
}

static void count(struct fetching *f)
{
	struct object_traffic traffic;

	object_store_traffic(f->c->store, &traffic);
	f->now->came = traffic.fetched - f->fetched;
}

/* A carton_progress_fn: bytes that are hashed say little of what is fetched. */
static void report(void *ctx, uint64_t done, uint64_t total)
{
	struct carton_fetching running[MAX_SHOWN];
	char paths[MAX_SHOWN][MAX_PATH_LEN + 1];
	struct fetching *f = ctx;
	struct carton_fetched now;
	size_t n;

	(void)done, (void)total;
	count(f);
	n = find_running(f, running, paths);
	now = *f->now;
	/* not less than has come: a broken piece comes twice */
	now.size = now.size == OBJECT_NO_SIZE ? 0 : MAX(now.size, now.came);
	f->progress(f->ctx, &now, running, n);
}

/* ---- the call ---- */

/* Is there room for all of it? Nothing is fetched that would only displace another part of it. */
static int check_room(struct fetching *f)
{
	uint64_t there, missing;

	measure(f, &there, &missing);
	if (f->now->cached == f->opened + f->n)
		return 0;
	if (!f->c->cache)
		return log_error(-ENOENT, NULL, "there is no cache to fetch anything into");
	f->now->lacks = cache_lacks(f->c->cache, there, missing);
	return f->now->lacks ? -ENOSPC : 0;
}

static ssize_t fetch(struct fetching *f, const struct carton_files *files)
{
	struct object_store *s = f->c->store;
	uint64_t there;
	ssize_t bad;

	object_store_only_cache(s, true);
	bad = carton_materialize(f->c, files, f->progress ? report : NULL, f, &f->now->why);
	object_store_only_cache(s, false);
	count(f);
	measure(f, &there, &f->now->lacks);
	if (bad && f->now->why != -ENOSPC)
		f->now->lacks = 0;
	return bad;
}

ssize_t carton_fetch(struct carton *c, const struct carton_files *files, carton_fetch_fn *progress,
		     void *ctx, struct carton_fetched *ret)
{
	struct fetching f = { .c = c, .now = ret, .progress = progress, .ctx = ctx };
	struct object_traffic traffic;
	ssize_t r;

	*ret = (struct carton_fetched){ 0 };
	object_store_traffic(c->store, &traffic);
	f.fetched = traffic.fetched;
	r = list_wanted(&f, files);
	if (r == 0)
		r = check_room(&f);
	if (r == 0)
		r = fetch(&f, files);
	ret->size = ret->size == OBJECT_NO_SIZE ? 0 : ret->size;
	free(f.list);
	return r;
}
