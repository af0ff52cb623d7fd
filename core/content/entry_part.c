/* SPDX-License-Identifier: Apache-2.0 */
#include "content/entry_part.h"

#include <stdlib.h>
#include <string.h>

#include "archive/container.h"
#include "archive/decode.h"
#include "cache/room.h"
#include "fetch/remote_source.h"
#include "content/internal.h"

/* before what the key of a partial is a hash of */
#define PART_NAME "entry"
#define PART_MEMORY (256 * KIB)
/* as much as opening the carton may have left of an entry */
#define MAX_CACHED (8 * MIB)
/* what is larger is worth a partial */
#define PART_RESUMED (8 * MIB)

static const struct object_options *options_of(const struct get *g)
{
	return &g->plan->object->store->options;
}

int part_resume(const struct get *g, struct file *d, uint64_t n, uint64_t *ret_have)
{
	const char *version = options_of(g)->source->version;
	char validator[MAX_CACHE_VALIDATOR + 1];

	if (version && file_partial(d, ret_have, validator, sizeof(validator)) == 0 &&
	    *ret_have > 0 && *ret_have <= n && strcmp(validator, version) == 0)
		return 0;
	*ret_have = 0;
	return file_restart(d, version);
}

/* Content may be packed in several ways, so the offset of the entry is a part of the name. */
static int make_key(const struct object *o, const struct entry *e, uint8_t ret_key[SHA256_SIZE])
{
	uint8_t name[sizeof(PART_NAME) + SHA256_SIZE + 16];
	uint8_t *sha256 = name + sizeof(PART_NAME), *offset = sha256 + SHA256_SIZE;

	memcpy(name, PART_NAME, sizeof(PART_NAME));
	memcpy(sha256, o->sha256, SHA256_SIZE);
	put_le64(offset, e->header);
	put_le64(offset + 8, e->stored);
	return sha256_mem(name, sizeof(name), ret_key);
}

static int open_partial(struct get *g, uint64_t n, uint64_t *ret_have)
{
	uint8_t key[SHA256_SIZE];
	struct file *d = NULL;
	uint64_t have = 0;
	int r = make_key(g->plan->object, g->plan->entry, key);

	if (r == 0)
		r = file_cache(options_of(g)->cache, key, &d);
	if (r == 0)
		r = part_resume(g, d, n, &have);
	/* the content must fit beside it */
	if (r == 0)
		r = file_reserve(d, n - have + g->plan->entry->size, false);
	if (r == 0)
		r = file_reserve(d, n, true);
	if (r < 0) {
		file_abort(d, false);
		return r;
	}
	g->part_file = d;
	*ret_have = have;
	return 0;
}

int part_open(struct get *g, uint64_t n, uint64_t *ret_have)
{
	struct budget *budget = options_of(g)->budget;
	struct room room = { .cache = options_of(g)->cache, .size = n };
	int r;

	if (n <= PART_MEMORY)
		return file_memory(n, &g->part_file);
	/* what an attacker may write to has failed once: not by that name again */
	if (n > PART_RESUMED && room.cache && g->fill->file.cached && !g->anew &&
	    open_partial(g, n, ret_have) == 0)
		return 0;
	r = room_open(&room, &g->part_file);
	if (room_is_full(r) && n <= MAX_MEMORY_OBJECT && budget_hold(budget, n)) {
		g->held = n;
		r = file_memory(n, &g->part_file);
	}
	return r;
}

bool part_is_cached(const struct get *g)
{
	const struct entry *e = g->plan->entry;

	return remote_source_cached(options_of(g)->source, NULL, e->stored, e->header) ||
	       span_has(g->plan->object, e);
}

uint64_t part_to_fetch(const struct object *o, const struct entry *e)
{
	const struct object_options *options = &o->store->options;
	uint64_t n = entry_end(e) - e->header, kept = 0;
	uint8_t key[SHA256_SIZE];

	if (remote_source_cached(options->source, NULL, n, e->header))
		return 0;
	if (n > PART_RESUMED && options->cache && make_key(o, e, key) == 0 &&
	    cache_is_filling(options->cache, key, &kept) < 0)
		kept = 0;
	return n - MIN(n, kept);
}

int part_copy_cached(struct get *g, const struct span *span, uint64_t off, uint64_t n)
{
	char *data;
	int r;

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

int part_locate(struct get *g, uint64_t *ret_off)
{
	int r = file_source(g->part_file, &g->part);

	if (r < 0)
		return r;
	/* one descriptor is enough; a partial has a name, which is removed at the end */
	if (!file_is_cached(g->part_file)) {
		file_abort(g->part_file, false);
		g->part_file = NULL;
	}
	return container_locate_in(options_of(g)->container, g->plan->entry, g->part, ret_off);
}

int entry_make_room(struct fill *f)
{
	int r = file_restart(f->file.dest, NULL);

	return r < 0 ? r : file_reserve(f->file.dest, f->plan->entry->size, true);
}

int entry_decode(struct fill *f, struct source *from, uint64_t off, struct ingested *ret)
{
	const struct entry *e = f->plan->entry;
	struct file *dest = f->file.dest;
	struct stream *in = NULL;
	int r = source_stream(from, off, e->stored, &in);

	if (r == 0)
		r = decode_open(in, e, f->object->store->options.budget, &in);
	if (r == 0 && dest)
		r = file_stream(dest, 0, in, &in);
	return r < 0 ? r : fill_verify(f, in, ret);
}

void part_leave(struct get *g, int result)
{
	source_unref(g->part);
	/* on a full disk it is in the way of what would fit */
	file_abort(g->part_file, result < 0 && result != -EBADMSG && !room_is_full(result));
	budget_drop(options_of(g)->budget, g->held);
	g->part = NULL;
	g->part_file = NULL;
	g->held = 0;
}
