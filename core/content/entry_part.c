/* SPDX-License-Identifier: Apache-2.0 */
#include "content/entry_part.h"

#include <stdlib.h>

#include "archive/container.h"
#include "archive/decode.h"
#include "cache/room.h"
#include "fetch/remote_source.h"
#include "content/internal.h"

#define PART_MEMORY (256 * KIB)
/* as much as opening the carton may have left of an entry */
#define MAX_CACHED (8 * MIB)

static const struct object_options *options_of(const struct get *g)
{
	return &g->plan->object->store->options;
}

int part_open(struct get *g, uint64_t n)
{
	struct room room = { .cache = options_of(g)->cache, .size = n };

	return n <= PART_MEMORY ? file_memory(n, &g->part_file) : room_open(&room, &g->part_file);
}

bool part_is_cached(const struct get *g)
{
	const struct entry *e = g->plan->entry;

	return remote_source_cached(options_of(g)->source, NULL, e->stored, e->header) ||
	       span_has(g->plan->object, e);
}

int part_copy_cached(struct get *g, uint64_t off, uint64_t n)
{
	struct span *span = g->span;
	char *data;
	int r;

	g->span = NULL;
	if (span)
		return span_copy(span, g->part_file, off, n, &g->part_from);
	if (n > MAX_CACHED)
		return -ENOENT;
	data = malloc((size_t)n + 1);
	r = data ? -ENOENT : -ENOMEM;
	if (r == -ENOENT && remote_source_cached(options_of(g)->source, data, n, off))
		r = file_write(g->part_file, data, (size_t)n, 0);
	free(data);
	return r;
}

int part_locate(struct get *g, uint64_t n, uint64_t *ret_off)
{
	int r = file_commit(g->part_file, NULL, n, &g->part);

	g->part_file = NULL;
	return r < 0 ? r :
		       container_locate_in(options_of(g)->container, g->plan->entry, g->part,
					   ret_off);
}

int entry_decode(struct fill *f, struct source *from, uint64_t off, struct ingested *ret)
{
	const struct entry *e = f->plan->entry;
	struct file *dest = f->file.dest;
	struct stream *in = NULL;
	int r = file_restart(dest, NULL);

	if (r == 0)
		r = file_reserve(dest, e->size, true);
	if (r == 0)
		r = source_stream(from, off, e->stored, &in);
	if (r == 0)
		r = decode_open(in, e, f->object->store->options.budget, &in);
	if (r == 0)
		r = file_stream(dest, 0, in, &in);
	return r < 0 ? r : fill_verify(f, in, ret);
}

void part_leave(struct get *g)
{
	file_abort(g->part_file, false);
	source_unref(g->part);
	g->part_file = NULL;
	g->part = NULL;
}
