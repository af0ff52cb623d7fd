/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One file for the bytes of an object that cannot be read in place: a copy of the cache, which is
 * found or filled, or wherever there is room (room.h).
 */
#include <stdlib.h>

#include "archive/container.h"
#include "base/ingest.h"
#include "base/pace.h"
#include "base/util.h"
#include "cache/read.h"
#include "content/internal.h"
#include "content/entry_part.h"
#include "content/late.h"

/* what the key of a file of chunks begins with; its slots are read so many at once */
#define CHUNKS_KEY "chunks"
#define KEY_BLOCK 128

static void keep_source(struct fill *f, struct source *source, struct ingested *in)
{
	f->bytes = (struct bytes){ .kind = BYTES_FILE, .source = source, .tags = in->tags };
	f->size = source->size;
	f->copied = true;
}

/* ---- what is there ---- */

/* The size that LINKS says may be wrong, and what is there right: then check_size() says so. */
static struct ingest what_is_there(struct fill *f)
{
	struct ingest how = fill_ingest(f);

	if (f->plan->link)
		how.size = UINT64_MAX;
	return how;
}

/* Hashes what the cache has under that name. A damaged entry is dropped, and filled anew. */
static int from_cache(struct fill *f)
{
	struct object *o = f->object;
	struct ingest how = what_is_there(f);
	struct ingested in;
	struct source *source;
	int r = o->late ? late_from_cache(f, &how, &source, &in) :
			  cache_read(o->store->options.cache, o->sha256, &how, &source, &in);

	atomic_fetch_add(r == 0 ? &o->store->cache_hits : &o->store->cache_misses, 1);
	if (r == 0)
		keep_source(f, source, &in);
	f->observed = r == 0;
	/* found, but not right: the observer may have had some of it */
	if (r < 0 && r != -ENOENT)
		fill_end_observer(f, r);
	return r == -EBADMSG ? -ENOENT : r;
}

/*
 * Hashes what a directory of the user's mirrors has, which is then read in place. It is another's
 * cache, so nothing is dropped.
 */
static int from_mirror(struct fill *f)
{
	struct object *o = f->object;
	struct ingest how = what_is_there(f);
	size_t i = 0;
	int fd;

	for (; plan_open_directory(f->plan, &i, &fd) == 0; i++) {
		struct ingested in;
		struct source *source;
		int r = source_from_fd(fd, &source);

		if (r == 0) {
			r = cache_check(source, o->sha256, &how, &in);
			if (r == 0) {
				keep_source(f, source, &in);
				return 0;
			}
			source_unref(source);
		}
		/* the observer may have had bytes that another place does not replace */
		fill_end_observer(f, r);
		how.observe = NULL;
		if (r == -ECANCELED || r == -ENOMEM)
			return r;
		carton_log(CARTON_LOG_NOTICE, object_name(o),
			   "a directory given with mirror= has other bytes than MANIFEST says");
	}
	return -ENOENT;
}

/* 0: found; -ENOENT. */
static int find(struct fill *f)
{
	int r = room_in_cache(&f->file.room) ? from_cache(f) : -ENOENT;

	if (r != -ENOENT || !f->file.cached || f->file.looked)
		return r;
	f->file.looked = true;
	/* mirrors have files by their sha256, which is not known yet */
	return f->object->late ? -ENOENT : from_mirror(f);
}

/* ---- filling a new one ---- */

static void find_or_fill(struct fill *f);

/* The file has all bytes, and they are right (0, with their size and tags); or why not. */
static void filled(struct fill *f, int result, struct ingested *in)
{
	bool cached = file_is_cached(f->file.dest);
	struct source *source;
	uint64_t reached = 0;

	if (result == 0) {
		/* late content is published under its sha256, not under its name */
		result = file_commit(f->file.dest, f->object->late ? in->sha256 : NULL, in->size,
				     &source);
		if (result == 0 && cached)
			name_keep(f->object);
		if (result == 0 && cached && f->object->late)
			late_keep(f->object);
		if (result == 0)
			keep_source(f, source, in);
		else
			free(in->tags);
	} else {
		reached = file_end(f->file.dest);
		f->file.room.wanted = file_wanted(f->file.dest);
		/* on a full disk a partial is in the way of all that would fit */
		file_abort(f->file.dest, result != -EBADMSG && !room_is_full(result));
	}
	if (room_again(&f->file.room, &result, reached))
		find_or_fill(f);
	else
		f->file.done(f, result);
}

static void got(struct get *g, int result, struct ingested *in)
{
	filled(container_of(g, struct fill, get), result, in);
}

/* Decodes the entry of a local container into the file, if there is one. */
static int decode(struct fill *f, struct ingested *ret)
{
	struct source *from;
	uint64_t off;
	int r = f->file.dest ? entry_make_room(f) : 0;

	if (r == 0)
		r = container_locate(f->object->store->options.container, f->plan->entry, &from,
				     &off);
	if (r < 0)
		return r;
	r = entry_decode(f, from, off, ret);
	source_unref(from);
	return r;
}

/*
 * The same into the file of the observer, which writes the bytes while they are hashed. Whoever
 * gives it knows why it does not have them all.
 */
static void decode_given(struct fill *f)
{
	struct ingested in = { 0 };
	struct source *source = NULL;
	/* before the observer ends, if it is bad */
	int fd = fd_dup(fill_given_fd(f)), r = fd < 0 ? fd : decode(f, &in);

	if (r == 0)
		r = source_from_fd(fd, &source);
	else
		fd_close(fd);
	f->quiet = r == 0 && source->size != in.size;
	f->given = r == 0 && !f->quiet;
	if (f->given) {
		keep_source(f, source, &in);
	} else {
		source_unref(source);
		free(in.tags);
	}
	f->file.done(f, f->quiet ? -EIO : r);
}

/* Is it not in an entry of a local container? */
static bool is_fetched(const struct fill *f)
{
	return !f->plan->entry || f->object->store->options.container->remote;
}

static void fill_file(struct fill *f)
{
	struct ingested in = { 0 };
	int r;

	if (!is_fetched(f)) {
		filled(f, decode(f, &in), &in);
		return;
	}
	f->get = (struct get){
		.plan = f->plan,
		.waits = &f->waits,
		.fill = f,
		.dest = f->file.dest,
		.deadline_ms = f->deadline_ms,
		.done = got,
	};
	r = get_start(&f->get);
	if (r < 0)
		filled(f, r, &in);
}

/* ---- while another process fills the cache entry ---- */

/* A look() of struct other. */
static int look(struct other *o, uint64_t *ret_at)
{
	const struct object *of = o->waits->object;
	int r = cache_is_filling(of->store->options.cache, of->sha256, ret_at);

	return r > 0 ? -EAGAIN : r;
}

static void log_unusable(const struct fill *f, int error)
{
	if (error == -ETIMEDOUT)
		carton_log(CARTON_LOG_NOTICE, object_name(f->object),
			   "another process is making a copy of it, but does not proceed: it is "
			   "made again");
	else
		carton_log(CARTON_LOG_NOTICE, object_name(f->object),
			   "the cache cannot be used: %s", strerror(-error));
}

static void other_done(struct other *o, int r)
{
	struct fill *f = container_of(o, struct fill, other);

	if (r == -ECANCELED) {
		f->file.done(f, r);
		return;
	}
	if (r < 0) {
		log_unusable(f, r);
		room_next(&f->file.room, r, 0);
	}
	find_or_fill(f);
}

static void wait_for_other(struct fill *f)
{
	int64_t timeout_ms = f->object->store->options.timeout_ms;

	f->other = (struct other){
		.waits = &f->waits,
		/* that it may add nothing */
		.patience_ms = timeout_ms ? timeout_ms : pace.timeout_ms,
		.look = look,
		.done = other_done,
	};
	other_wait(&f->other);
}

/* ---- the order ---- */

static void find_or_fill(struct fill *f)
{
	int r;

	for (;;) {
		f->file.dest = NULL;
		r = find(f);
		if (r == -ENOENT && fill_given_fd(f) >= 0 && !is_fetched(f)) {
			decode_given(f);
			return;
		}
		if (r == -ENOENT)
			r = room_open(&f->file.room, &f->file.dest);
		if (r != -EEXIST)
			break;
		/* published meanwhile; again and again when it is damaged and cannot be removed */
		if (++f->file.found >= CACHE_TRIES)
			room_next(&f->file.room, r, 0);
	}
	if (r == 0 && f->file.dest)
		fill_file(f);
	else if (r == -EAGAIN)
		wait_for_other(f);
	else
		f->file.done(f, r);
}

void fill_into_file(struct fill *f)
{
	const struct object *o = f->object;

	f->file.found = 0;
	f->file.room = (struct room){
		.name = object_name(o),
		.cache = o->store->options.cache,
		.key = f->file.cached ? o->sha256 : NULL,
		.only_cache = is_fetched(f) && atomic_load(&o->store->only_cache),
		.size = o->size,
		.memory = MAX_MEMORY_OBJECT,
		.drop = keep_drop_copies,
		.ctx = o->store,
	};
	find_or_fill(f);
}

/* ---- of chunks ---- */

/*
 * Only those whose index says the same of each chunk have one file: who believes a wrong index
 * would write over what others have verified.
 */
static int make_key(const struct object *o, const struct chunks_file *file,
		    uint8_t ret[SHA256_SIZE])
{
	const struct chunk_index *index = &o->store->index;
	uint8_t head[sizeof(CHUNKS_KEY) + SHA256_SIZE + 16] = CHUNKS_KEY;
	uint8_t next[1 + KEY_BLOCK][SHA256_SIZE]; /* the key so far, and slots */
	uint64_t count = chunks_count(file), n;
	int r;

	memcpy(head + sizeof(CHUNKS_KEY), o->sha256, SHA256_SIZE);
	put_le64(head + sizeof(CHUNKS_KEY) + SHA256_SIZE, file->size);
	put_le64(head + sizeof(CHUNKS_KEY) + SHA256_SIZE + 8, file->chunk_size);
	r = sha256_mem(head, sizeof(head), next[0]);
	for (uint64_t i = 0; i < count && r == 0; i += n) {
		n = MIN(KEY_BLOCK, count - i);
		r = index->read(index->ctx, next[1], (size_t)n * SHA256_SIZE,
				chunks_slot_at(index->chunks, file, i));
		if (r == 0)
			r = sha256_mem(next, (size_t)(1 + n) * SHA256_SIZE, next[0]);
	}
	memcpy(ret, next[0], SHA256_SIZE);
	return r;
}

int fill_open_chunks(const struct object *o, const struct chunks_file *file, struct file **ret)
{
	uint8_t key[SHA256_SIZE];
	struct room room = {
		.name = object_name(o),
		.cache = o->store->options.cache,
		.key = key,
		/* says nothing of how much of it will be fetched */
		.size = UINT64_MAX,
		.sparse = file->size,
	};
	int64_t end_ms = now_ms() + pace.join_ms;
	int r = make_key(o, file, key);

	if (r < 0)
		return r;
	/* others join at the same time, each for an instant */
	while ((r = room_open(&room, ret)) == -EAGAIN)
		if (now_ms() >= end_ms || cancel_sleep(&o->store->stop, 1) < 0)
			room_next(&room, r, 0);
	return r;
}
