/* SPDX-License-Identifier: Apache-2.0 */
/* What the background shows of an object whose bytes are verified chunk by chunk. */
#include <stdlib.h>

#include "base/util.h"
#include "content/internal.h"

static int read_index(void *ctx, void *ret_buf, size_t n, uint64_t off)
{
	return object_read(ctx, ret_buf, n, off, false);
}

void object_use_chunks(struct object_store *s, struct chunks *chunks, struct object *index)
{
	s->index = (struct chunk_index){
		chunks, read_index, index, &s->ingested, s->options.budget,
	};
	/* what only a server could tell */
	for (size_t i = 0; i < chunks->n; i++) {
		struct object *o = store_find(s, chunks->files[i].sha256, OBJECT_NO_SIZE);

		if (o && o->size == OBJECT_NO_SIZE)
			o->size = chunks->files[i].size;
	}
}

void object_distrust(struct object *o)
{
	atomic_store(&o->no_chunks, true);
}

/* What was made of it, or is just being made. Lock held. */
static void withdraw_derived(struct object *of)
{
	for (struct object *o = of->store->derived; o; o = o->next_hash)
		if ((o->content || o->length || o->state == OBJECT_VERIFIED) &&
		    object_made_of(o, of))
			atomic_store(&o->withdrawn, true);
}

/* Some chunk does not fit the index: nobody reads what the others say. */
static void hash_failed(struct object *o)
{
	atomic_store(&o->read_failed, true);
	object_distrust(o);
	doubt_keep(o);
	seal_drop(o);
	chunked_fail(o->bytes.chunks);
	pthread_mutex_lock(&o->store->lock);
	fault_keep(o);
	o->state = OBJECT_CORRUPT;
	withdraw_derived(o);
	pthread_mutex_unlock(&o->store->lock);
	if (o->store->options.damaged)
		o->store->options.damaged(o->store->options.ctx, o);
}

static void cannot_hash(struct object *o, int error)
{
	carton_log(CARTON_LOG_ERROR, object_name(o), "cannot be hashed: %s", strerror(-error));
	object_distrust(o);
}

static void all_looked_at(void *ctx, int result)
{
	struct object *o = ctx;

	if (result == 0) {
		object_proven(o);
	} else if (result == -EBADMSG) {
		carton_log(CARTON_LOG_ERROR, object_name(o),
			   "does not have the sha256 that MANIFEST says, or " CHUNKS_PATH
			   " is wrong, or it was cut off; it can no longer be read: close and open "
			   "it again, which hashes all of it");
		hash_failed(o);
	} else if (result != -ECANCELED) {
		cannot_hash(o, result);
	}
	pthread_mutex_lock(&o->store->lock);
	o->fill_pins--;
	pthread_mutex_unlock(&o->store->lock);
	object_put(o);
}

int object_new_hash_job(struct object *o, struct chunked *chunks, struct hash_job **ret)
{
	const struct hash_job_options options = {
		.chunks = chunks,
		.events = o->store->options.events,
		.cancel = &o->store->stop,
		.queue = &o->store->hash_jobs,
		.reads = &o->store->reads,
		.done = all_looked_at,
		.ctx = o,
	};

	return hash_job_new(&options, ret);
}

void object_start_hash(struct object *o)
{
	struct hash_job *j;
	int r = object_new_hash_job(o, o->bytes.chunks, &j);

	if (r < 0) {
		cannot_hash(o, r);
		return;
	}
	object_pin_for_fill(o);
	hash_job_start(j);
}

/* ---- for who cannot wait for that ---- */

int object_hash_all(struct object *o, struct waits *above)
{
	const struct chunked *c = o->bytes.chunks;
	uint64_t off = 0;
	int r = 0;

	if (object_state(o) != OBJECT_CHUNKED)
		return object_state(o) == OBJECT_CORRUPT ? -EBADMSG : 0;
	/* a byte of each chunk has all of it verified */
	for (uint64_t i = 0; i < chunked_count(c) && r == 0; i++) {
		char byte;

		r = waits_work(above, chunked_len(c, i));
		if (r == 0)
			r = object_read_wait(o, &byte, 1, off, above);
		off += chunked_len(c, i);
	}
	return r;
}
