/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How an object's bytes are found and verified: in place, in memory, or by object_copy.c in the cache.
 * Runs on workers; what comes out belongs to object.c.
 */
#include <stdlib.h>

#include "archive/decode.h"
#include "fetch/fetch.h"
#include "base/ingest.h"
#include "object/internal.h"

bool object_stop(void *ctx)
{
	return object_must_stop(ctx);
}

void object_count(void *ctx, uint64_t bytes)
{
	const struct object *o = ctx;

	atomic_fetch_add(&o->store->ingested, bytes);
}

/* ---- verifying ---- */

static int check_hash(const struct object *o, const uint8_t found[SHA256_SIZE])
{
	char want_hex[2 * SHA256_SIZE + 1], found_hex[2 * SHA256_SIZE + 1];

	if (!o->store->options.verify || memcmp(o->sha256, found, SHA256_SIZE) == 0)
		return 0;
	hex_encode(o->sha256, SHA256_SIZE, want_hex);
	hex_encode(found, SHA256_SIZE, found_hex);
	carton_log(CARTON_LOG_ERROR, object_name(o),
		   "sha256 mismatch: MANIFEST says %s, the bytes have %s; get the carton again",
		   want_hex, found_hex);
	return -EBADMSG;
}

static int hash_stream(struct object *o, struct stream *in, int fd, struct ingested *ret)
{
	struct object_store *s = o->store;
	struct ingest job = {
		.in = in,
		.size = o->size,
		.max = MAX_FILE_SIZE,
		.tagger = s->tagger,
		.hash = s->options.verify,
		.fd = fd,
		.stop = object_stop,
		.progress = object_count,
		.ctx = o,
	};

	return ingest_run(&job, ret);
}

int object_take_stream(struct object *o, struct stream *in, int fd, struct ingested *ret)
{
	struct ingested done = { 0 };
	int r = hash_stream(o, in, fd, &done);

	stream_close(in);
	if (r == 0)
		r = check_hash(o, done.sha256);
	if (r < 0) {
		free(done.tags);
		return r;
	}
	*ret = done;
	return 0;
}

/* ---- in place and in memory ---- */

static int in_place(struct object *o, struct source *source, uint64_t off, struct bytes *ret)
{
	struct ingested in = { 0 };
	struct stream *stream;
	int r;

	/* what is not verified need not be read before somebody reads it */
	r = o->store->options.verify ? source_stream(source, off, o->size, &stream) : 0;
	if (r == 0 && o->store->options.verify)
		r = object_take_stream(o, stream, -1, &in);
	if (r < 0)
		return r;
	/* a file of an unpacked carton is closed when it is idle */
	*ret = (struct bytes){
		.kind = o->store->options.container->one_file ? BYTES_PLACE : BYTES_FILE,
		.source = source_ref(source),
		.off = off,
		.tags = in.tags,
	};
	return 0;
}

static int into_memory(struct object *o, struct stream *in, struct bytes *ret)
{
	struct bytes bytes = { .kind = BYTES_MEMORY, .memory = malloc((size_t)o->size + 1) };
	uint8_t found[SHA256_SIZE] = { 0 };
	ssize_t got;
	int r;

	if (!bytes.memory)
		return -ENOMEM;
	/* one byte more, so that the stream gets to check its end */
	got = stream_read_full(in, bytes.memory, (size_t)o->size + 1);
	r = got < 0 ? (int)got : (uint64_t)got != o->size ? -EBADMSG : 0;
	if (r == 0 && o->store->options.verify)
		r = sha256_mem(bytes.memory, (size_t)o->size, found);
	if (r == 0)
		r = check_hash(o, found);
	object_count(o, o->size);
	if (r < 0) {
		bytes_free(&bytes);
		return r;
	}
	*ret = bytes;
	return 0;
}

/* ---- all ways ---- */

static int from_entry(struct object *o, const struct entry *e, struct bytes *ret)
{
	struct object_store *s = o->store;
	struct container *c = s->options.container;
	struct source *source;
	struct stream *in;
	uint64_t off;
	int r;

	if (c->remote)
		return object_copy(o, e, ret);
	if (e->method == METHOD_STORED && o->size > CHUNK_SIZE) {
		r = container_locate(c, e, &source, &off);
		if (r < 0)
			return r;
		r = in_place(o, source, off, ret);
		source_unref(source);
		return r;
	}
	if (!object_claim_memory(s, o->size))
		return object_copy(o, e, ret);
	r = container_stream(c, e, &in);
	if (r == 0) {
		r = into_memory(o, in, ret);
		stream_close(in);
	}
	if (r < 0)
		object_unclaim_memory(s, o->size);
	return r;
}

static int from_anywhere(struct object *o, const struct entry *e, struct bytes *ret)
{
	int r = e ? from_entry(o, e, ret) : object_copy(o, NULL, ret);

	/* what nobody reads now is worth less than what somebody waits for */
	if (!object_disk_full(r) || !object_drop_idle(o->store))
		return r;
	return e ? from_entry(o, e, ret) : object_copy(o, NULL, ret);
}

int object_materialize(struct object *o, struct bytes *ret, uint64_t *ret_size)
{
	const struct origin *origin = o->origins;
	int r = -EBADMSG;

	if (o->derive)
		return o->derive(o->derive_ctx, o, ret, ret_size);

	/* any origin with the right hash will do; one that failed for a passing reason may do later */
	do {
		int attempt = from_anywhere(o, origin ? origin->entry : NULL, ret);

		if (attempt == 0) {
			*ret_size = ret->kind == BYTES_FILE ? ret->source->size : o->size;
			return 0;
		}
		if (attempt == -ECANCELED || attempt == -ESHUTDOWN)
			return -ECANCELED;
		if (attempt == -ENODATA) {
			carton_log(CARTON_LOG_ERROR, object_name(o),
				   "the carton has been cut off since it was opened");
			attempt = -EBADMSG;
		}
		if (attempt != -EBADMSG)
			r = attempt;
		origin = origin ? origin->next : NULL;
	} while (origin);
	return r;
}

/* Where nothing but the bytes themselves say how many they are. */
static int size_by_making(struct object *o, uint64_t *ret_size, bool *ret_certain)
{
	struct bytes bytes;
	int r = object_materialize(o, &bytes, ret_size);

	if (r < 0)
		return r;
	*ret_certain = true;
	if (bytes.kind == BYTES_MEMORY)
		object_unclaim_memory(o->store, *ret_size);
	bytes_free(&bytes);
	return 0;
}

static int fetch_length(struct fetch *f, void *ret)
{
	return fetch_size(f, ret);
}

int object_ask_size(struct object *o, uint64_t *ret_size, bool *ret_certain)
{
	const struct object_options *options = &o->store->options;
	struct fetch f = {
		.remote = options->remote,
		.link = o->link,
		.stop = object_stop,
		.ctx = o,
	};
	int fd, r = -ENOENT;

	if (o->derive)
		return size_by_making(o, ret_size, ret_certain);
	if (options->cache)
		r = cache_lookup(options->cache, o->sha256, &fd, ret_size);
	if (r == 0) {
		fd_close(fd);
		return 0;
	}
	r = object_fetch(o, &f, fetch_length, ret_size);
	/* no server says: then only all of it tells, and the cache has it for the open to come */
	if (r == -ENODATA)
		r = size_by_making(o, ret_size, ret_certain);
	return r == -ESHUTDOWN ? -ECANCELED : r;
}
