/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The maker for entries of the container: verified in place where they are stored in a local file,
 * else decoded, into memory or a copy. Several entries may hold the same bytes: any will do.
 */
#include <stdlib.h>

#include "archive/container.h"
#include "archive/decode.h"
#include "base/util.h"
#include "object/internal.h"
#include "object/partial.h"

struct maker_entry {
	struct maker maker;
	struct place first;
};

/* with its place in the hash table */
const size_t object_cost = sizeof(struct object) + sizeof(struct maker_entry) + 2 * MALLOC_SIZE +
			   2 * sizeof(struct object *);

/* One attempt at all places. */
struct attempt {
	struct copy copy;
	int error; /* of earlier places */
};

static struct container *container_of_object(const struct object *o)
{
	return o->store->options.container;
}

static struct maker_entry *maker_entry(const struct object *o)
{
	return container_of(o->maker, struct maker_entry, maker);
}

/* ---- in place and in memory ---- */

/* A file of an unpacked carton is closed when it is idle. */
static void keep_place(struct making *m, struct source *source, uint64_t off,
		       uint8_t (*tags)[TAG_SIZE])
{
	m->bytes = (struct bytes){
		.kind = container_of_object(m->object)->one_file ? BYTES_PLACE : BYTES_FILE,
		.source = source,
		.off = off,
		.tags = tags,
	};
	m->size = m->object->size;
}

static int in_place(struct making *m, const struct entry *e)
{
	const struct object *o = m->object;
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
		if (m->observer && !source_is_cached(source, off, o->size)) {
			m->behind = source;
			m->behind_off = off;
		}
		r = source_stream(source, off, o->size, &stream);
		if (r == 0)
			r = making_verify(m, stream, &in);
		making_drop_pages(m, o->size);
		m->behind = NULL;
	}
	if (r < 0) {
		source_unref(source);
		return r;
	}
	keep_place(m, source, off, in.tags);
	return 0;
}

/* ---- chunk by chunk ---- */

/*
 * What the index says of an object that can be read in place, or of which parts can be fetched;
 * NULL: to be hashed first.
 */
static const struct chunks_file *in_index(const struct object *o)
{
	const struct entry *e = maker_entry(o)->first.entry;

	if (e->method != METHOD_STORED || o->size <= CHUNKS_MIN_FILE ||
	    (container_of_object(o)->remote && !plan_is_direct(e)))
		return NULL;
	return indexed_find(o, o->size);
}

/*
 * Takes the first place unhashed, as with a seal: after a bad chunk, the next open hashes all
 * places.
 */
static int by_chunks(struct making *m, const struct chunks_file *f)
{
	struct object *o = m->object;
	struct source *source;
	uint64_t off;
	int r;

	if (container_of_object(o)->remote)
		return indexed_fetch(m, f);
	r = container_locate(container_of_object(o), m->plan->entry, &source, &off);
	if (r < 0)
		return r;
	keep_place(m, source, off, NULL);
	r = indexed_use(m, f);
	if (r < 0)
		bytes_finish(&m->bytes);
	return r;
}

/*
 * Takes the first place unhashed: if it has other bytes, reads fail, and the next open hashes all
 * places.
 */
static bool entry_by_seal(struct making *m)
{
	const struct object *o = m->object;
	const struct entry *e = maker_entry(o)->first.entry;
	uint8_t(*tags)[TAG_SIZE];
	struct source *source;
	uint64_t off;

	if (container_of_object(o)->remote || e->method != METHOD_STORED)
		return seal_of_cached(m);
	if (!seal_tags(m, o->size, &tags))
		return false;
	if (container_locate(container_of_object(o), e, &source, &off) < 0) {
		free(tags);
		return false;
	}
	keep_place(m, source, off, tags);
	return true;
}

static int read_memory(struct making *m, struct stream *in, char *memory)
{
	size_t size = (size_t)m->object->size;
	uint8_t found[SHA256_SIZE] = { 0 };
	/* one byte more, so that the stream gets to check its end */
	ssize_t got = stream_read_full(in, memory, size + 1);
	int r = got < 0 ? (int)got : (size_t)got != size ? -EBADMSG : 0;

	if (r == 0 && m->object->store->options.verify)
		r = sha256_mem(memory, size, found);
	making_count(m, size);
	return r < 0 ? r : making_check(m, found);
}

/* The memory is claimed. */
static int into_memory(struct making *m, const struct entry *e)
{
	char *memory = malloc((size_t)m->object->size + 1);
	struct stream *in;
	int r = -ENOMEM;

	if (memory)
		r = container_stream(container_of_object(m->object), e, &in);
	if (r == 0) {
		r = read_memory(m, in, memory);
		stream_close(in);
	}
	if (r < 0) {
		free(memory);
		return r;
	}
	m->bytes = (struct bytes){ .kind = BYTES_MEMORY, .memory = memory };
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
	const struct entry *e = maker_entry(o)->first.entry;
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

/* ---- as a copy ---- */

static int open_copy(struct making *m, const struct entry *e, struct dest *dest,
		     struct stream **ret)
{
	struct container *c = container_of_object(m->object);
	int r;

	r = dest_restart(dest, NULL);
	if (r == 0)
		r = dest_reserve(dest, m->object->size, true);
	if (r == 0)
		r = container_stream(c, e, ret);
	return r < 0 ? r : dest_stream(dest, 0, *ret, ret);
}

static int fill_copy(struct copy *c, struct dest *dest, struct ingested *ret)
{
	struct stream *stream;
	int r = open_copy(c->making, c->making->plan->entry, dest, &stream);

	return r < 0 ? r : making_verify(c->making, stream, ret);
}

/* ---- all places ---- */

static void place_done(struct copy *c, int result);

static void try_place(struct attempt *a)
{
	struct making *m = a->copy.making;
	struct object *o = m->object;
	const struct entry *e = m->plan->entry;
	int r;

	m->size = o->size;
	if (container_of_object(o)->remote) {
		copy_start(&a->copy);
	} else if (e->method == METHOD_STORED && o->size > MAX_SMALL_STORED) {
		place_done(&a->copy, in_place(m, e));
	} else if (!object_claim_memory(o->store, o->size)) {
		copy_start(&a->copy);
	} else {
		r = into_memory(m, e);
		if (r < 0)
			object_unclaim_memory(o->store, o->size);
		place_done(&a->copy, r);
	}
}

/* Any place with the right bytes will do; one that failed for a passing reason may do later. */
static void place_done(struct copy *c, int result)
{
	struct attempt *a = container_of(c, struct attempt, copy);
	struct making *m = c->making;

	if (result == -ENODATA) {
		carton_log(CARTON_LOG_ERROR, object_name(m->object),
			   "the carton has been cut off since it was opened");
		result = -EBADMSG;
	}
	if (result < 0 && result != -ECANCELED && result != -ESHUTDOWN) {
		if (result != -EBADMSG)
			a->error = result;
		if (plan_next_entry(m->plan)) {
			try_place(a);
			return;
		}
		result = a->error;
	}
	free(a);
	making_done(m, result);
}

static void entry_get_bytes(struct making *m)
{
	const struct object *o = m->object;
	const struct chunks_file *f = in_index(o);
	struct attempt *a;
	int r;

	if (f && indexed_is_doubted(m))
		return;
	r = making_plan(m, &maker_entry(o)->first, NULL);
	/* where that fails, hashing all says why */
	if (r == 0 && f && by_chunks(m, f) == 0) {
		making_done(m, 0);
		return;
	}
	a = r == 0 ? calloc(1, sizeof(*a)) : NULL;
	if (!a) {
		making_done(m, -ENOMEM);
		return;
	}
	a->copy = (struct copy){
		.making = m,
		.cached = o->store->options.verify,
		.fill = container_of_object(o)->remote ? NULL : fill_copy,
		.done = place_done,
	};
	a->error = -EBADMSG;
	try_place(a);
}

static enum lane entry_lane(const struct object *o)
{
	return o->size > BULK_OBJECT && !in_index(o) ? LANE_BULK : LANE_QUICK;
}

static void entry_free(struct maker *maker)
{
	struct maker_entry *me = container_of(maker, struct maker_entry, maker);

	for (struct place *p = me->first.next; p;) {
		struct place *next = p->next;

		free(p);
		p = next;
	}
	free(me);
}

static const struct maker_ops entry_ops = {
	.get_bytes = entry_get_bytes,
	.get_now = entry_get_now,
	.by_seal = entry_by_seal,
	.lane = entry_lane,
	.free = entry_free,
	.final = true,
};

/* ---- adding ---- */

const struct entry *object_entry(const struct object *o)
{
	return o->maker->ops == &entry_ops ? maker_entry(o)->first.entry : NULL;
}

/* Makes the object. Lock held. */
static int add(struct object_store *s, const uint8_t sha256[SHA256_SIZE], const struct entry *entry,
	       struct object **ret)
{
	struct maker_entry *me = calloc(1, sizeof(*me));

	if (!me)
		return -ENOMEM;
	me->maker.ops = &entry_ops;
	me->first.entry = entry;
	return store_add(s, sha256, entry->name, entry->size, &me->maker, ret);
}

/* The first place stays the first; the order of the others does not matter. */
static int add_place(struct object *o, const struct entry *entry)
{
	struct place *more = malloc(sizeof(*more));
	struct maker_entry *me = maker_entry(o);

	if (!more)
		return -ENOMEM;
	*more = (struct place){ entry, me->first.next };
	me->first.next = more;
	return 0;
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
		r = add(s, sha256, entry, &o);
	else if (!s->options.find_entry)
		r = add_place(o, entry);
	else
		budget_give(s->options.budget, object_cost);
	pthread_mutex_unlock(&s->lock);
	if (r == 0)
		*ret = o;
	return r;
}
