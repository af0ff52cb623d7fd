/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes of a large object that the chunk index lists: they are there at once, and verified as they
 * are read.
 */
#include <unistd.h>

#include "archive/container.h"
#include "base/util.h"
#include "cache/cache.h"
#include "content/internal.h"
#include "content/sparse.h"

const struct chunks_file *by_index_find(const struct object *o, uint64_t size)
{
	const struct object_store *s = o->store;
	const struct chunks_file *f;

	if (!s->index.chunks || !s->options.verify || o->no_chunks)
		return NULL;
	f = chunks_find(s->index.chunks, o->sha256);
	/* of another size: that hash cannot be right for both; the whole is hashed */
	return f && (f->size == size || size == OBJECT_NO_SIZE) ? f : NULL;
}

bool by_index_is_doubted(struct fill *f)
{
	struct object *o = f->object;

	if (!doubt_find(o))
		return false;
	carton_log(CARTON_LOG_INFO, object_name(o),
		   "did not fit the chunk index in an earlier mount: all of it is hashed before "
		   "it opens");
	/* from now on by_index_find() finds nothing */
	atomic_store(&o->no_chunks, true);
	fill_submit(f);
	return true;
}

int by_index_use(struct fill *f, const struct chunks_file *c)
{
	struct object *o = f->object;
	int r = bytes_use_chunks(&f->bytes, &o->store->index, c, o->store->tagger, o->name);

	f->size = c->size;
	/* the background's part begins when the open has been answered */
	if (r == 0)
		r = chunked_reserve(f->bytes.chunks);
	return r < 0 ? r : object_new_hash_job(o, f->bytes.chunks, &f->hash_job);
}

/* A copy that is in the cache needs no fetch. */
static int use_cached(struct fill *f, const struct chunks_file *c)
{
	const struct object *o = f->object;
	int r = cache_source(o->store->options.cache, o->sha256, &f->bytes.source);

	if (r < 0)
		return r;
	f->bytes.kind = BYTES_FILE;
	return f->bytes.source->size == c->size ? by_index_use(f, c) : -EBADMSG;
}

/* Has a directory of the user's mirrors the object? It is hashed, and read in place. */
static bool is_in_directory(const struct plan *p)
{
	size_t at = 0;
	int fd;

	if (plan_open_directory(p, &at, &fd) < 0)
		return false;
	fd_close(fd);
	return true;
}

int by_index_fetch(struct fill *f, const struct chunks_file *c)
{
	int r = use_cached(f, c);

	f->size = c->size;
	f->copied = true;
	if (r == -ENOENT && !is_in_directory(f->plan))
		r = sparse_open(f->plan, c, &f->bytes);
	if (r < 0)
		bytes_finish(&f->bytes);
	return r;
}
