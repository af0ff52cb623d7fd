/* SPDX-License-Identifier: Apache-2.0 */
/* Hashing all of an object in the background whose bytes are verified chunk by chunk until then. */
#include <stdlib.h>

#include "base/util.h"
#include "content/internal.h"

#define READ_BLOCK (128 * KIB)

static int read_index(void *ctx, void *ret_buf, size_t n, uint64_t off)
{
	return object_read(ctx, ret_buf, n, off, false);
}

void object_use_chunks(struct object_store *s, struct chunks *chunks, struct object *index)
{
	s->index = (struct chunk_index){ chunks, read_index, index, s->options.budget };
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

/*
 * All of it has another hash than the chunks led to expect. `changed`: since they were compared, so
 * the index may be right.
 */
static void hash_failed(struct object *o, bool changed)
{
	atomic_store(&o->read_failed, true);
	if (!changed) {
		object_distrust(o);
		doubt_keep(o);
	}
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

/*
 * What is wrong with an object all of which was hashed, or NULL. *ret_changed: a chunk that can be
 * fetched again is no longer what it was.
 */
static const char *hash_fault(struct object *o, const struct ingested *in, bool *ret_changed)
{
	bool right = memcmp(o->sha256, in->sha256, SHA256_SIZE) == 0;
	bool again = chunked_filler(o->bytes.chunks) && chunked_is_complete(o->bytes.chunks);
	/* else tags of bytes that are not right would become those of chunks */
	bool other = (right || again) && chunked_set_tags(o->bytes.chunks, in->tags) < 0;

	*ret_changed = !right && other;
	if (*ret_changed)
		return "changed in the cache since its chunks were verified; close and open it "
		       "again, and find out which program writes to the cache, or whether the "
		       "disk is bad";
	if (!right)
		return "does not have the sha256 that MANIFEST says, whatever " CHUNKS_PATH
		       " says of its chunks; it can no longer be read: get the carton again";
	if (other)
		return "had other bytes when they were read: it changed on disk, or " CHUNKS_PATH
		       " is wrong; close and open it again";
	return NULL;
}

static void cannot_hash(struct object *o, int error)
{
	carton_log(CARTON_LOG_ERROR, object_name(o), "cannot be hashed: %s", strerror(-error));
	object_distrust(o);
}

static void object_hashed(void *ctx, int result, struct ingested *in)
{
	struct object *o = ctx;
	const char *fault = NULL;
	bool changed = false;

	/*
	 * Of a sealed file, neither changed chunks nor a failed hash say anything of the whole:
	 * readers have such chunks fetched again, and this mount does not hash the file once more.
	 */
	if (result == 0 && chunked_doubt_sealed(o->bytes.chunks, in->tags)) {
		free(in->tags);
		result = -ECANCELED;
	} else if (result < 0 && chunked_is_sealed(o->bytes.chunks)) {
		result = -ECANCELED;
	}
	if (result == 0) {
		fault = hash_fault(o, in, &changed);
		if (!fault) {
			chunked_hashed(o->bytes.chunks);
			seal_keep(o, in->size, in->tags);
			agreed_keep(o);
		}
		free(in->tags);
	} else if (result == -EBADMSG) {
		fault = "the carton has been cut off since it was opened; it can no longer be read";
	}
	if (fault) {
		carton_log(CARTON_LOG_ERROR, object_name(o), "%s", fault);
		hash_failed(o, changed);
	} else if (result == 0) {
		pthread_mutex_lock(&o->store->lock);
		o->state = OBJECT_VERIFIED;
		pthread_mutex_unlock(&o->store->lock);
	} else if (result != -ECANCELED) {
		cannot_hash(o, result);
	}
	pthread_mutex_lock(&o->store->lock);
	o->fill_pins--;
	pthread_mutex_unlock(&o->store->lock);
	object_put(o);
}

int object_new_hash_job(struct object *o, const struct bytes *at, uint64_t size,
			struct hash_job **ret)
{
	const struct hash_job_options options = {
		.source = at->source,
		.off = at->off,
		.size = size,
		.tagger = o->store->tagger,
		.events = o->store->options.events,
		.cancel = &o->store->stop,
		.queue = &o->store->hash_jobs,
		.budget = o->store->options.budget,
		.reads = &o->store->reads,
		.hashed = &o->store->ingested,
		.done = object_hashed,
		.ctx = o,
	};

	return hash_job_new(&options, ret);
}

/* Hashes all of an object that is pinned, with a pin of its own. 0 or -ENOMEM. */
static int hash_whole(struct object *o)
{
	struct hash_job *w;
	int r = object_new_hash_job(o, &o->bytes, o->size, &w);

	if (r < 0)
		return r;
	object_pin_for_fill(o);
	hash_job_start(w);
	return 0;
}

void object_start_hash(struct object *o)
{
	int r = hash_whole(o);

	if (r < 0)
		cannot_hash(o, r);
}

/* ---- for who cannot wait for that ---- */

static int hash_by_reading(struct object *o, struct waits *above, char *block, struct sha256 *hash)
{
	uint64_t size = object_size(o), n;
	int r = 0;

	for (uint64_t off = 0; off < size && r == 0; off += n) {
		n = MIN(READ_BLOCK, size - off);
		r = waits_work(above, n);
		if (r == 0)
			r = object_read_wait(o, block, (size_t)n, off, above);
		if (r == 0)
			r = sha256_update(hash, block, (size_t)n);
	}
	return r;
}

int object_hash_all(struct object *o, struct waits *above)
{
	uint8_t found[SHA256_SIZE] = { 0 };
	struct sha256 *hash = NULL;
	char *block;
	int r;

	/* agreed: what is read is compared with an index that is known to be right */
	if (object_state(o) != OBJECT_CHUNKED || atomic_load(&o->agreed))
		return object_state(o) == OBJECT_CORRUPT ? -EBADMSG : 0;
	block = malloc(READ_BLOCK);
	r = block ? sha256_new(&hash) : -ENOMEM;
	if (r == 0)
		r = hash_by_reading(o, above, block, hash);
	if (r == 0)
		r = sha256_final(hash, found);
	/* the background says so in the log */
	if (r == 0 && memcmp(o->sha256, found, SHA256_SIZE) != 0)
		r = -EBADMSG;
	sha256_free(hash);
	free(block);
	return r;
}
