/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies of an object's bytes, where they cannot be read in place: from an entry, or from where LINKS
 * says; into the cache, or into an unnamed file where that has no room.
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/read.h"
#include "archive/decode.h"
#include "fetch/fetch.h"
#include "base/ingest.h"
#include "object/internal.h"
#include "fetch/partial.h"

/* two looks at one disk differ by less */
#define SAME_DISK (16 * MIB)
/* how long another process may be busy with an object and add nothing to it, if no timeout is set */
#define PATIENCE_MS 60000
#define CACHE_TRIES 8

/* The verified file `fd` (taken over) becomes the object's bytes, with their tags. */
static int keep_file(int fd, struct ingested *in, struct bytes *ret)
{
	struct source *source;
	int r = source_from_fd(fd, &source);

	/* its size is the object's, so there may be nothing that was not hashed */
	if (r == 0 && source->size != in->size) {
		source_unref(source);
		r = -EIO;
	}
	if (r < 0) {
		free(in->tags);
		return r;
	}
	*ret = (struct bytes){ BYTES_FILE, NULL, source, 0, in->tags };
	return 0;
}

/* Where a copy goes: into the cache, or a file that only this process has. */
struct target {
	struct cache_fill *fill; /* NULL: the file, */
	int fd;
	uint64_t most;	  /* which may have so many bytes */
	uint64_t reached; /* how many there were when there was no room for more */
};

/* What an earlier fill has left of a Stored entry of this very version of a remote carton. */
static uint64_t find_partial(const struct target *t, const struct source *source)
{
	char *validator;
	uint64_t len = 0;

	if (!t->fill || !source->version || !(validator = malloc(MAX_CACHE_VALIDATOR + 1)))
		return 0;
	if (cache_fill_partial(t->fill, &len, validator, MAX_CACHE_VALIDATOR + 1) < 0 ||
	    strcmp(validator, source->version) != 0)
		len = 0;
	free(validator);
	return len;
}

/* The bytes of a remote Stored entry, with what is there already for a start. */
static int resume_entry(struct object *o, const struct target *t, struct source *source,
			uint64_t off, struct stream **ret)
{
	uint64_t have = find_partial(t, source);
	struct stream *rest;
	int r;

	if (have == 0 || have > o->size) {
		r = t->fill ? cache_fill_restart(t->fill, source->version) : 0;
		have = 0;
	} else {
		r = 0;
	}
	if (r == 0 && t->fill)
		r = cache_fill_reserve(t->fill, o->size);
	if (r == 0)
		r = source_stream(source, off + have, o->size - have, &rest);
	if (r < 0)
		return r;
	return partial_stream(t->fill, have, rest, ret);
}

static int copy_entry(struct object *o, const struct entry *e, const struct target *t,
		      struct ingested *ret)
{
	struct container *c = o->store->options.container;
	struct source *source;
	struct stream *in;
	uint64_t off;
	int r;

	if (c->remote && e->method == METHOD_STORED) {
		r = container_locate(c, e, &source, &off);
		if (r == 0) {
			r = resume_entry(o, t, source, off, &in);
			source_unref(source);
		}
	} else {
		r = t->fill ? cache_fill_restart(t->fill, NULL) : 0;
		if (r == 0 && t->fill)
			r = cache_fill_reserve(t->fill, o->size);
		if (r == 0)
			r = container_stream(c, e, &in);
	}
	if (r == 0 && !t->fill)
		r = partial_bound(t->fd, t->most, o->size, in, &in);
	return r < 0 ? r : object_take_stream(o, in, t->fill ? cache_fill_fd(t->fill) : t->fd, ret);
}

/* From when the fetch begins: waiting for another process that then dies takes nothing from it. */
static int64_t deadline(const struct object *o)
{
	return now_ms() + o->store->options.remote->timeout_ms;
}

static int offline(const struct object *o)
{
	carton_log(CARTON_LOG_ERROR, object_name(o),
		   "is not in the cache, and with -o offline nothing is fetched; "
		   "run cartonctl fetch first");
	return -ENETUNREACH;
}

static int fetch_into(struct fetch *f, void *ret)
{
	return fetch_object(f, ret);
}

/* Runs a fetch that ends when nobody waits for the object. */
int object_fetch(struct object *o, struct fetch *f, int (*run)(struct fetch *f, void *ret),
		 void *ret)
{
	struct object_fetch guard;
	int r;

	if (!f->remote)
		return offline(o);
	r = object_fetch_begin(o, &guard);
	if (r < 0)
		return r;
	f->cancel = &guard.cancel;
	f->deadline_ms = deadline(o);
	r = run(f, ret);
	f->cancel = NULL;
	object_fetch_end(o, &guard);
	return r;
}

static int copy_link(struct object *o, const struct target *t, struct ingested *ret)
{
	struct fetch f = {
		.remote = o->store->options.remote,
		.tagger = o->store->tagger,
		.link = o->link,
		.fill = t->fill,
		.fd = t->fd,
		.most = t->most,
		.stop = object_stop,
		.progress = object_count,
		.ctx = o,
	};

	return object_fetch(o, &f, fetch_into, ret);
}

/* Ends the target, whether or not it is the object now. */
static int copy_to(struct object *o, const struct entry *e, struct target *t, struct bytes *ret)
{
	struct ingested in = { 0 };
	struct stat st;
	int fd = t->fd, r;

	if (!o->store->options.remote && (!e || o->store->options.container->remote))
		r = offline(o);
	else
		r = e ? copy_entry(o, e, t, &in) : copy_link(o, t, &in);
	if (r == 0 && t->fill) {
		r = cache_fill_publish(t->fill, in.size, &fd);
		if (r < 0)
			free(in.tags);
	}
	if (r < 0) {
		if (object_disk_full(r) &&
		    fstat(t->fill ? cache_fill_fd(t->fill) : t->fd, &st) == 0)
			t->reached = MAX(t->reached, (uint64_t)st.st_size);
		/* on a full disk a part is in the way of all that would fit */
		cache_fill_abort(t->fill, r != -EBADMSG && !object_disk_full(r));
		fd_close(t->fd);
		t->fill = NULL;
		t->fd = -1;
		return r;
	}
	return keep_file(fd, &in, ret);
}

/* What the cache has under that name. No trust in old files: a damaged one goes, and is made anew. */
static int from_cache(struct object *o, struct bytes *ret)
{
	struct ingest how = {
		.tagger = o->store->tagger,
		.stop = object_stop,
		.progress = object_count,
		.ctx = o,
	};
	struct ingested in;
	struct source *source;
	int r = cache_read(o->store->options.cache, o->sha256, &how, &source, &in);

	if (r == 0)
		*ret = (struct bytes){ BYTES_FILE, NULL, source, 0, in.tags };
	return r == -EBADMSG ? -ENOENT : r;
}

void object_drop_cached(struct object *o)
{
	struct cache *cache = o->store->options.cache;

	/* a file that is not the one in the cache under that name leaves that one alone */
	if (cache && (o->store->options.verify || o->link))
		cache_drop(cache, o->sha256, o->bytes.source->fd);
}

/* The cache itself fails: it was removed, or is on a disk that broke. That is told once. */
static int no_cache(struct object *o, int error)
{
	if (error == -ETIMEDOUT)
		carton_log(
			CARTON_LOG_WARNING, object_name(o),
			"another process makes a copy of it and does not go on: it is made again");
	else if (!object_disk_full(error) && !atomic_exchange(&o->store->cache_failed, true))
		carton_log(CARTON_LOG_WARNING, NULL,
			   "the cache cannot be used: %s; copies are kept for this mount only",
			   strerror(-error));
	return -ENOSPC;
}

/* From the cache, or into it, by whoever of all processes comes first. -ENOSPC: not in this cache. */
static int through_cache(struct object *o, const struct entry *e, struct target *t,
			 struct bytes *ret)
{
	const struct remote_options *remote = o->store->options.remote;
	int patience = remote ? (int)remote->timeout_ms : PATIENCE_MS;
	struct cache *cache = o->store->options.cache;

	for (unsigned found = 0;;) {
		int r = from_cache(o, ret);

		if (r != -ENOENT)
			return r;
		r = cache_begin(cache, o->sha256, &t->fill);
		if (r == 0)
			return copy_to(o, e, t, ret);
		if (r == -EAGAIN)
			r = cache_wait(cache, o->sha256, patience, object_stop, o);
		/* published meanwhile; again and again when it is damaged and cannot be removed */
		else if (r == -EEXIST && ++found < CACHE_TRIES)
			r = 0;
		if (r < 0)
			return r == -ECANCELED || r == -ENOMEM ? r : no_cache(o, r);
	}
}

/* Into an unnamed file (taken over), unless its disk has no room for what there was none for before. */
static int into_file(struct object *o, const struct entry *e, struct target *t, int fd,
		     struct bytes *ret)
{
	if (t->reached > 0 && o->size == OBJECT_NO_SIZE &&
	    !partial_room(fd, t->reached + SAME_DISK, UINT64_MAX)) {
		fd_close(fd);
		return -ENOSPC;
	}
	t->fd = fd;
	return copy_to(o, e, t, ret);
}

/* Into unnamed files: where the cache is, else where temporary files are, if that is another disk. */
static int into_files(struct object *o, const struct entry *e, struct target *t, struct bytes *ret)
{
	struct cache *cache = o->store->options.cache;
	struct stat first = { 0 }, second;
	int fd, r = -ENOSPC;

	if (cache && cache_tmpfile(cache, &fd) == 0) {
		if (fstat(fd, &first) < 0)
			first.st_dev = 0;
		r = into_file(o, e, t, fd, ret);
	}
	if (!object_disk_full(r))
		return r;
	r = cache_tmpfile(NULL, &fd);
	if (r < 0)
		return cache ? -ENOSPC : r;
	if (first.st_dev && fstat(fd, &second) == 0 && second.st_dev == first.st_dev) {
		fd_close(fd);
		return -ENOSPC;
	}
	return into_file(o, e, t, fd, ret);
}

/*
 * A copy of what cannot be read in place: in the cache, for everyone; else, where there is no cache
 * or it has no room, in an unnamed file; else, when the disks are full, a small one in memory.
 */
int object_copy(struct object *o, const struct entry *e, struct bytes *ret)
{
	const struct object_options *options = &o->store->options;
	struct target t = { .fd = -1, .most = UINT64_MAX };
	uint64_t least;
	int r = -ENOSPC;

	/* what the cache holds is verified: unverified bytes have no place in it */
	if (options->cache && (options->verify || !e)) {
		r = through_cache(o, e, &t, ret);
		/* what nobody reads now is worth less than what somebody waits for */
		if (object_disk_full(r) && object_drop_idle(o->store))
			r = through_cache(o, e, &t, ret);
	}
	if (object_disk_full(r))
		r = into_files(o, e, &t, ret);
	least = o->size != OBJECT_NO_SIZE ? o->size : t.reached;
	if (object_disk_full(r) && least <= MAX_MEMORY_OBJECT) {
		t.most = MAX_MEMORY_OBJECT;
		t.fd = memfd_create("carton object", MFD_CLOEXEC);
		r = t.fd < 0 ? -errno : copy_to(o, e, &t, ret);
	}
	return r;
}
