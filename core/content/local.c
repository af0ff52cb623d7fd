/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes of entries of a local container: in place, by their seal, or decoded into memory. */
#include <stdlib.h>

#include "archive/container.h"
#include "archive/decode.h"
#include "base/util.h"
#include "content/internal.h"

static struct container *container_of_object(const struct object *o)
{
	return o->store->options.container;
}

/* ---- in place ---- */

/* A file of an unpacked carton is closed when it is idle. */
static void keep_bytes(struct fill *f, struct source *source, uint64_t off,
		       uint8_t (*tags)[TAG_SIZE])
{
	f->bytes = (struct bytes){
		.kind = container_of_object(f->object)->one_file ? BYTES_ENTRY : BYTES_FILE,
		.source = source,
		.off = off,
		.tags = tags,
	};
	f->size = f->object->size;
}

int local_in_place(struct fill *f, const struct entry *e)
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
		if (f->observer && fill_given_fd(f) < 0 &&
		    !source_is_cached(source, off, o->size)) {
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
	keep_bytes(f, source, off, in.tags);
	return 0;
}

int local_by_index(struct fill *f, const struct entry *e, const struct chunks_file *c)
{
	struct source *source;
	uint64_t off;
	int r = container_locate(container_of_object(f->object), e, &source, &off);

	if (r < 0)
		return r;
	keep_bytes(f, source, off, NULL);
	r = by_index_use(f, c);
	if (r < 0)
		bytes_finish(&f->bytes);
	return r;
}

bool local_by_seal(struct fill *f, const struct entry *e)
{
	const struct object *o = f->object;
	uint8_t(*tags)[TAG_SIZE];
	struct source *source;
	uint64_t off;

	if (!seal_tags(f, o->size, &tags))
		return false;
	if (container_locate(container_of_object(o), e, &source, &off) < 0) {
		free(tags);
		return false;
	}
	keep_bytes(f, source, off, tags);
	return true;
}

/* ---- in memory ---- */

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

int local_into_memory(struct fill *f, const struct entry *e)
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

int local_get_now(const struct object *o, const struct entry *e, struct bytes *ret)
{
	char *memory;

	if (e->size > QUICK_OBJECT || entry_end(e) - e->header > QUICK_OBJECT ||
	    !object_take_memory(o->store, e->size))
		return -EAGAIN;
	memory = malloc((size_t)e->size + 1);
	if (!memory || !decode_now(o, e, memory)) {
		free(memory);
		object_give_memory(o->store, e->size);
		return -EAGAIN;
	}
	atomic_fetch_add(&o->store->ingested, e->size);
	*ret = (struct bytes){ .kind = BYTES_MEMORY, .memory = memory };
	return 0;
}
