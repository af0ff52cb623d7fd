/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects whose bytes are stored somewhere: in entries of the container, any of which will do, or
 * at the URLs of LINKS. The bytes are verified in place where they are in a local file as they are,
 * else in memory or a file of ours (file.c), or chunk by chunk.
 */
#include <stdlib.h>

#include "archive/container.h"
#include "archive/decode.h"
#include "base/util.h"
#include "cache/cache.h"
#include "format/links.h"
#include "object/internal.h"
#include "object/partial.h"

struct stored {
	struct object object;
	struct place first; /* its entry is NULL: LINKS has it */
	struct link *link;  /* likewise, the other way round */
};

/* with its place in the hash table */
const size_t object_cost = sizeof(struct stored) + MALLOC_SIZE + 2 * sizeof(struct object *);

static struct container *container_of_object(const struct object *o)
{
	return o->store->options.container;
}

static struct stored *stored_of(const struct object *o)
{
	return container_of(o, struct stored, object);
}

/* Is it in a file of this machine? */
static bool is_local(const struct object *o)
{
	return stored_of(o)->first.entry && !container_of_object(o)->remote;
}

/* ---- in place and in memory ---- */

/* A file of an unpacked carton is closed when it is idle. */
static void keep_place(struct fill *f, struct source *source, uint64_t off,
		       uint8_t (*tags)[TAG_SIZE])
{
	f->bytes = (struct bytes){
		.kind = container_of_object(f->object)->one_file ? BYTES_PLACE : BYTES_FILE,
		.source = source,
		.off = off,
		.tags = tags,
	};
	f->size = f->object->size;
}

static int in_place(struct fill *f, const struct entry *e)
{
	const struct object *o = f->object;
	struct ingested in = { 0 };
	struct source *source;
	struct stream *stream;
	uint64_t off;
	int r = container_locate(container_of_object(o), e, &source, &off);

	if (r < 0)
		return r;
	/* with verify=off, nothing is read before a reader asks for it */
	if (o->store->options.verify) {
		/*
		 * the mount's page cache gets the bytes, so the carton's pages are dropped, unless
		 * they were there before
		 */
		if (f->observer && !source_is_cached(source, off, o->size)) {
			f->behind = source;
			f->behind_off = off;
		}
		r = source_stream(source, off, o->size, &stream);
		if (r == 0)
			r = fill_verify(f, stream, &in);
		fill_drop_pages(f, o->size);
		f->behind = NULL;
	}
	if (r < 0) {
		source_unref(source);
		return r;
	}
	keep_place(f, source, off, in.tags);
	return 0;
}

/* ---- chunk by chunk ---- */

/*
 * What the index says of an object that can be read in place, or of which parts can be fetched;
 * NULL: to be hashed first. Small files are fetched whole.
 */
static const struct chunks_file *in_index(const struct object *o)
{
	const struct entry *e = stored_of(o)->first.entry;
	const struct chunks_file *c;

	if (e && (e->method != METHOD_STORED || o->size <= CHUNKS_MIN_FILE ||
		  (!is_local(o) && !plan_is_direct(e))))
		return NULL;
	c = indexed_find(o, atomic_load(&o->size));
	return c && (e || c->size > PARTIAL_MIN) ? c : NULL;
}

/*
 * Takes the first place unhashed, as with a seal: after a bad chunk, the next open hashes all
 * places. 0 or -errno, without bytes.
 */
static int use_index(struct fill *f, const struct chunks_file *c)
{
	struct source *source;
	uint64_t off;
	int r;

	if (!is_local(f->object))
		return indexed_fetch(f, c);
	r = container_locate(container_of_object(f->object), f->plan->entry, &source, &off);
	if (r < 0)
		return r;
	keep_place(f, source, off, NULL);
	r = indexed_use(f, c);
	if (r < 0)
		bytes_finish(&f->bytes);
	return r;
}

/*
 * Takes the first place unhashed: if it has other bytes, reads fail, and the next open hashes all
 * places.
 */
static bool stored_by_seal(struct fill *f)
{
	const struct object *o = f->object;
	const struct entry *e = stored_of(o)->first.entry;
	uint8_t(*tags)[TAG_SIZE];
	struct source *source;
	uint64_t off;

	if (!is_local(o) || e->method != METHOD_STORED)
		return seal_of_cached(f);
	if (!seal_tags(f, o->size, &tags))
		return false;
	if (container_locate(container_of_object(o), e, &source, &off) < 0) {
		free(tags);
		return false;
	}
	keep_place(f, source, off, tags);
	return true;
}

static int read_memory(struct fill *f, struct stream *in, char *memory)
{
	size_t size = (size_t)f->object->size;
	uint8_t found[SHA256_SIZE] = { 0 };
	/* one byte more, so that the stream gets to check its end */
	ssize_t got = stream_read_full(in, memory, size + 1);
	int r = got < 0 ? (int)got : (size_t)got != size ? -EBADMSG : 0;

	if (r == 0 && f->object->store->options.verify)
		r = sha256_mem(memory, size, found);
	fill_count(f, size);
	return r < 0 ? r : fill_check(f, found);
}

/* The memory is claimed. */
static int into_memory(struct fill *f, const struct entry *e)
{
	char *memory = malloc((size_t)f->object->size + 1);
	struct stream *in;
	int r = -ENOMEM;

	if (memory)
		r = container_stream(container_of_object(f->object), e, &in);
	if (r == 0) {
		r = read_memory(f, in, memory);
		stream_close(in);
	}
	if (r < 0) {
		free(memory);
		return r;
	}
	f->bytes = (struct bytes){ .kind = BYTES_MEMORY, .memory = memory };
	return 0;
}

/*
 * Decodes into `memory` and hashes. False: the stored bytes are not in the page cache, or are
 * wrong.
 */
static bool decode_now(const struct object *o, const struct entry *e, char *memory)
{
	char buf[QUICK_OBJECT];
	uint8_t found[SHA256_SIZE];
	const void *stored;

	if (container_peek(container_of_object(o), e, buf, &stored) < 0 ||
	    decode_memory(stored, (size_t)e->stored, e->method, memory, (size_t)e->size) < 0)
		return false;
	return !o->store->options.verify || (sha256_mem(memory, (size_t)e->size, found) == 0 &&
					     memcmp(found, o->sha256, SHA256_SIZE) == 0);
}

static int entry_get_now(const struct object *o, struct bytes *ret)
{
	const struct entry *e = stored_of(o)->first.entry;
	char *memory;

	if (e->size > QUICK_OBJECT || entry_end(e) - e->header > QUICK_OBJECT ||
	    !object_claim_memory(o->store, e->size))
		return -EAGAIN;
	memory = malloc((size_t)e->size + 1);
	if (!memory || !decode_now(o, e, memory)) {
		free(memory);
		object_unclaim_memory(o->store, e->size);
		return -EAGAIN;
	}
	atomic_fetch_add(&o->store->ingested, e->size);
	*ret = (struct bytes){ .kind = BYTES_MEMORY, .memory = memory };
	return 0;
}

/* ---- all places ---- */

static void place_done(struct fill *f, int result);

static void try_place(struct fill *f)
{
	const struct object *o = f->object;
	const struct entry *e = f->plan->entry;
	int r;

	f->size = o->size;
	if (!is_local(o)) {
		file_start(f);
	} else if (e->method == METHOD_STORED && o->size > MAX_SMALL_STORED) {
		place_done(f, in_place(f, e));
	} else if (!object_claim_memory(o->store, o->size)) {
		file_start(f);
	} else {
		r = into_memory(f, e);
		if (r < 0)
			object_unclaim_memory(o->store, o->size);
		place_done(f, r);
	}
}

/* A file that has the hash, and is longer or shorter than everybody was told, is damaged. */
static int check_size(struct fill *f)
{
	const struct object *o = f->object;

	if (o->size == OBJECT_NO_SIZE || o->size == f->size)
		return 0;
	carton_log(CARTON_LOG_ERROR, object_name(o),
		   CHUNKS_PATH " says that it has %llu bytes, but it has %llu",
		   (unsigned long long)o->size, (unsigned long long)f->size);
	bytes_finish(&f->bytes);
	return -EBADMSG;
}

/* Any place with the right bytes will do; one that failed for a passing reason may do later. */
static void place_done(struct fill *f, int result)
{
	if (result == 0)
		result = check_size(f);
	if (result == -ENODATA && is_local(f->object)) {
		carton_log(CARTON_LOG_ERROR, object_name(f->object),
			   "the carton has been cut off since it was opened");
		result = -EBADMSG;
	}
	if (result < 0 && result != -ECANCELED && result != -ESHUTDOWN) {
		if (result != -EBADMSG)
			f->error = result;
		if (plan_next_entry(f->plan)) {
			try_place(f);
			return;
		}
		result = f->error;
	}
	fill_done(f, result);
}

static void get_all(struct fill *f)
{
	const struct object *o = f->object;

	memset(&f->file, 0, sizeof(f->file));
	f->file.cached = o->ops->always_verified || o->store->options.verify;
	f->file.done = place_done;
	f->error = -EBADMSG;
	try_place(f);
}

/*
 * Without ranges, or with other bytes than the index says, all of it is fetched, and has to have
 * the hash.
 */
static void probed(struct fill *f, int result)
{
	if (result < 0)
		bytes_finish(&f->bytes);
	if (result == -EOPNOTSUPP || result == -EBADMSG)
		get_all(f);
	else
		fill_done(f, result);
}

static int begin(struct fill *f)
{
	const struct stored *st = stored_of(f->object);

	return fill_plan(f, st->first.entry ? &st->first : NULL, st->link);
}

static void stored_get_bytes(struct fill *f)
{
	const struct chunks_file *c = in_index(f->object);
	int r;

	if (c && indexed_is_doubted(f))
		return;
	r = begin(f);
	if (r < 0)
		fill_done(f, r);
	else if (!c || use_index(f, c) < 0)
		/* where that failed, hashing all says why */
		get_all(f);
	else if (f->hash_job || !f->plan->link)
		fill_done(f, 0);
	else
		partial_probe(f, probed);
}

static enum lane stored_lane(const struct object *o)
{
	uint64_t size = object_size(o);

	/* a copy that is in the cache already is hashed there; a fetch waits elsewhere */
	if (in_index(o))
		return LANE_QUICK;
	return size != OBJECT_NO_SIZE && size > BULK_OBJECT ? LANE_BULK : LANE_QUICK;
}

/* ---- the size of what LINKS names ---- */

static void size_got(struct get *g, int result, struct ingested *in)
{
	struct fill *f = container_of(g, struct fill, get);

	f->size = in->size;
	/* no server says: then only all of it tells, and the cache has it for the open to come */
	if (result == -ENODATA)
		get_all(f);
	else
		fill_done(f, result);
}

static int ask_size(struct fill *f)
{
	f->get = (struct get){
		.plan = f->plan,
		.waits = &f->waits,
		.fill = f,
		/* also where all of it has to be fetched for that */
		.deadline_ms = now_ms() + f->object->store->options.timeout_ms,
		.done = size_got,
	};
	return get_start_size(&f->get);
}

/*
 * The size of a copy in the cache. Do not trust the size of an unverified cache entry: a seal must
 * confirm it, unless nothing can be fetched. 0; 1: it is small, and has to be hashed; -ENOENT.
 */
static int size_in_cache(struct fill *f)
{
	const struct object_options *options = &f->object->store->options;
	int fd, r = options->cache ?
			    cache_lookup(options->cache, f->object->sha256, &fd, &f->size) :
			    -ENOENT;

	if (r < 0)
		return -ENOENT;
	fd_close(fd);
	if (f->size < MIN_SEALED)
		return 1;
	if (options->seals == SEALS_USE && seal_of_cached(f)) {
		bytes_finish(&f->bytes);
		f->copied = false;
	} else if (options->seals == SEALS_USE && options->fetch) {
		return -ENOENT;
	}
	return 0;
}

static void stored_get_size(struct fill *f)
{
	int r = begin(f);

	if (r == 0)
		r = size_in_cache(f);
	if (r == 1) {
		get_all(f);
		return;
	}
	if (r == -ENOENT) {
		r = ask_size(f);
		if (r == 0)
			return;
	}
	fill_done(f, r);
}

/* ---- adding ---- */

static void stored_free(struct object *o)
{
	struct stored *st = stored_of(o);

	for (struct place *p = st->first.next; p;) {
		struct place *next = p->next;

		free(p);
		p = next;
	}
	free(st);
}

static const struct object_ops entry_ops = {
	.get_bytes = stored_get_bytes,
	.get_now = entry_get_now,
	.by_seal = stored_by_seal,
	.lane = stored_lane,
	.free = stored_free,
	.final = true,
};

static const struct object_ops link_ops = {
	.get_bytes = stored_get_bytes,
	.get_size = stored_get_size,
	.by_seal = stored_by_seal,
	.lane = stored_lane,
	.free = stored_free,
	.always_verified = true,
	.may_wait = true,
};

const struct entry *object_entry(const struct object *o)
{
	return o->ops == &entry_ops ? stored_of(o)->first.entry : NULL;
}

/* The first place stays the first; the order of the others does not matter. */
static int add_place(struct object *o, const struct entry *entry)
{
	struct place *more = malloc(sizeof(*more));
	struct place *first = &stored_of(o)->first;

	if (!more)
		return -ENOMEM;
	*more = (struct place){ entry, first->next };
	first->next = more;
	return 0;
}

static struct object *stored_new(const struct entry *entry, struct link *link, const char *name,
				 uint64_t size)
{
	struct stored *st = calloc(1, sizeof(*st));

	if (!st)
		return NULL;
	st->first.entry = entry;
	st->link = link;
	st->object.ops = entry ? &entry_ops : &link_ops;
	st->object.name = name;
	st->object.size = size;
	return &st->object;
}

int object_add(struct object_store *s, const uint8_t sha256[SHA256_SIZE], const struct entry *entry,
	       struct object **ret)
{
	/* before the lock is taken, since others may have to give way */
	int r = budget_take(s->options.budget, object_cost);
	struct object *o;

	if (r < 0)
		return r;
	pthread_mutex_lock(&s->lock);
	o = store_find(s, sha256, entry->size);
	if (!o)
		r = store_add(s, sha256, stored_new(entry, NULL, entry->name, entry->size), &o);
	else if (!s->options.find_entry)
		r = add_place(o, entry);
	else
		budget_give(s->options.budget, object_cost);
	pthread_mutex_unlock(&s->lock);
	if (r == 0)
		*ret = o;
	return r;
}

int object_add_link(struct object_store *s, const uint8_t sha256[SHA256_SIZE], const char *name,
		    struct link *link, struct object **ret)
{
	struct object *o = store_find(s, sha256, OBJECT_NO_SIZE);

	if (!o && !link)
		return -ENOENT;
	if (!o)
		return store_add(s, sha256, stored_new(NULL, link, name, OBJECT_NO_SIZE), ret);
	*ret = o;
	return 0;
}
