/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The strings of a tensor in a binary form. Derived from the verified bytes of their file at open, and
 * kept in memory if small, else in an unnamed file with tags.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/ingest.h"
#include "object/internal.h"
#include "views/internal.h"

struct strings_view {
	struct object *file;
	struct cache *cache;
	uint64_t count, width, size;
	enum strings_form form;
};

/* Where the output goes. */
struct sink {
	char *memory; /* NULL: write to the file */
	int fd;
	uint64_t done, size;
};

static int sink_write(void *ctx, const void *data, size_t n)
{
	struct sink *s = ctx;
	int r = 0;

	if (n > s->size - s->done)
		return -EBADMSG;
	if (s->memory)
		memcpy(s->memory + s->done, data, n);
	else
		r = pwrite_full(s->fd, data, n, s->done);
	s->done += n;
	return r;
}

static int report(const struct strings_view *sv, const struct reason *reason, int r)
{
	if (reason->text[0])
		carton_log(CARTON_LOG_ERROR, object_name(sv->file), "%s", reason->text);
	return r;
}

/* `o`, here and below: the derived object. */
static int emit(const struct strings_view *sv, const struct object *o, struct sink *sink)
{
	struct index_reader reader = { sv->file, o, 0 };
	struct reason reason = { 0 };
	int r = strings_emit(index_read, &reader, sv->count, sv->form, sv->width, sink_write, sink,
			     &reason);

	return report(sv, &reason, r == 0 && sink->done != sink->size ? -EBADMSG : r);
}

/* The size of the derived object, measured from the file if it is not known yet. */
static int measure(const struct strings_view *sv, const struct object *o, uint64_t *ret_size)
{
	struct index_reader reader = { sv->file, o, 0 };
	struct reason reason = { 0 };
	struct strings_size size;
	int r;

	*ret_size = sv->size;
	if (sv->size != OBJECT_NO_SIZE)
		return 0;
	r = strings_measure(index_read, &reader, &size, &reason);
	if (r == 0)
		*ret_size = size.bytes;
	return report(sv, &reason, r);
}

static int into_memory(const struct strings_view *sv, const struct object *o, uint64_t size,
		       struct bytes *ret)
{
	struct sink sink = { .memory = malloc((size_t)size + 1), .fd = -1, .size = size };
	int r = sink.memory ? emit(sv, o, &sink) : -ENOMEM;

	if (r < 0) {
		free(sink.memory);
		return r;
	}
	*ret = (struct bytes){ .kind = BYTES_MEMORY, .memory = sink.memory };
	return 0;
}

static int tag_file(const struct object *o, struct source *source, struct bytes *ret)
{
	struct ingest job = {
		.size = source->size,
		.tagger = o->store->tagger,
		.fd = -1,
		.stop = object_stop,
		.ctx = (void *)o,
	};
	struct ingested in = { 0 };
	int r = source_stream(source, 0, source->size, &job.in);

	if (r < 0)
		return r;
	r = ingest_run(&job, &in);
	stream_close(job.in);
	if (r == 0)
		*ret = (struct bytes){ .kind = BYTES_FILE, .source = source, .tags = in.tags };
	return r;
}

static int into_file(const struct strings_view *sv, const struct object *o, uint64_t size,
		     struct bytes *ret)
{
	struct sink sink = { .fd = -1, .size = size };
	struct source *source;
	int r = cache_tmpfile(sv->cache, &sink.fd);

	if (r == 0)
		r = emit(sv, o, &sink);
	if (r < 0) {
		fd_close(sink.fd);
		return r;
	}
	r = source_from_fd(sink.fd, &source);
	if (r == 0) {
		r = tag_file(o, source, ret);
		if (r < 0)
			source_unref(source);
	}
	return r;
}

static int make(const struct strings_view *sv, struct object *o, struct bytes *ret,
		uint64_t *ret_size)
{
	uint64_t size;
	bool small;
	int r = measure(sv, o, &size);

	if (r < 0)
		return r;
	small = object_claim_memory(o->store, size);
	r = small ? into_memory(sv, o, size, ret) : into_file(sv, o, size, ret);
	if (r < 0 && small)
		object_unclaim_memory(o->store, size);
	*ret_size = size;
	return r;
}

static int derive(void *ctx, struct object *o, struct bytes *ret, uint64_t *ret_size)
{
	const struct strings_view *sv = ctx;
	int r = object_get_wait(sv->file);

	if (r < 0)
		return r;
	r = make(sv, o, ret, ret_size);
	object_put(sv->file);
	return r;
}

int view_add_strings(struct views *v, struct tensor *t, enum strings_form form, uint64_t width,
		     uint64_t size, struct object **ret)
{
	struct node *file = index_file(v->options.tree, t);
	struct strings_view *sv = malloc(sizeof(*sv));
	int r;

	if (!sv || !file) {
		free(sv);
		return sv ? -EBADMSG : -ENOMEM;
	}
	*sv = (struct strings_view){
		node_object(file), v->options.cache, t->info.count, width, size, form,
	};
	r = view_keep(v, sv, free);
	return r < 0 ? r :
		       object_add_derived(v->options.store, t->info.name, size, derive, sv, ret);
}
