/* SPDX-License-Identifier: Apache-2.0 */
#include "archive/container.h"

#include <inttypes.h>
#include <stdlib.h>

#include "archive/decode.h"
#include "base/digest.h"

#define MAX_INSERTED 8 /* entries out of order; with more of them, all entries are sorted */

int path_compare(const char *a, const char *b)
{
	unsigned char x, y;

	while (*a && *a == *b) {
		a++;
		b++;
	}
	x = (unsigned char)*a;
	y = (unsigned char)*b;
	if (x == y)
		return 0;
	if (x == '/' && y)
		return -1;
	if (y == '/' && x)
		return 1;
	return x < y ? -1 : 1;
}

static int compare_entries(const void *a, const void *b)
{
	return path_compare(((const struct entry *)a)->name, ((const struct entry *)b)->name);
}

static int compare_name(const void *key, const void *entry)
{
	return path_compare(key, ((const struct entry *)entry)->name);
}

const struct entry *container_find(const struct container *c, const char *name)
{
	if (c->n_entries == 0)
		return NULL;
	return bsearch(name, c->entries, c->n_entries, sizeof(*c->entries), compare_name);
}

/* How many entries from the first on are in order. */
static size_t count_sorted(const struct container *c)
{
	size_t n = 1;

	while (n < c->n_entries && path_compare(c->entries[n - 1].name, c->entries[n].name) <= 0)
		n++;
	return n;
}

/* Moves the entry at `n` to its place in the `n` sorted ones before it. */
static void insert_entry(struct container *c, size_t n)
{
	struct entry e = c->entries[n];
	size_t low = 0, high = n;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (path_compare(c->entries[mid].name, e.name) <= 0)
			low = mid + 1;
		else
			high = mid;
	}
	memmove(&c->entries[low + 1], &c->entries[low], (n - low) * sizeof(e));
	c->entries[low] = e;
}

/* Most packers sort, but for a few entries at the end, such as MANIFEST. */
static void sort_entries(struct container *c)
{
	size_t n = count_sorted(c);

	if (c->n_entries - n > MAX_INSERTED)
		qsort(c->entries, c->n_entries, sizeof(*c->entries), compare_entries);
	else
		for (; n < c->n_entries; n++)
			insert_entry(c, n);
}

/* Is `e` a path below `dir`? */
static bool is_below(const struct entry *e, const struct entry *dir)
{
	return e->name_len > dir->name_len && e->name[dir->name_len] == '/' &&
	       memcmp(e->name, dir->name, dir->name_len) == 0;
}

/*
 * Drops the entries of the container's own directory, and repeated ones of a directory: they have
 * no content. The entries are sorted.
 */
static void drop_repeated(struct container *c)
{
	size_t n = 0;

	for (size_t i = 0; i < c->n_entries; i++) {
		const struct entry *e = &c->entries[i], *last = n ? &c->entries[n - 1] : NULL;

		if (e->name_len == 0 || (last && e->kind == ENTRY_DIR && last->kind == ENTRY_DIR &&
					 strcmp(last->name, e->name) == 0))
			continue;
		c->entries[n++] = *e;
	}
	c->n_entries = n;
}

int container_index(struct container *c)
{
	size_t faults = 0;

	if (c->n_entries == 0)
		return 0;
	sort_entries(c);
	drop_repeated(c);
	for (size_t i = 1; i < c->n_entries && faults < MAX_REPORTED; i++) {
		const struct entry *last = &c->entries[i - 1], *e = &c->entries[i];

		if (strcmp(last->name, e->name) == 0) {
			carton_log(CARTON_LOG_ERROR, e->name,
				   "duplicate entry: two entries have this name");
			faults++;
		} else if (last->kind != ENTRY_DIR && is_below(e, last)) {
			carton_log(CARTON_LOG_ERROR, e->name,
				   "is below \"%s\", which is a file, not a directory", last->name);
			faults++;
		}
	}
	return faults ? -EBADMSG : 0;
}

int container_locate(struct container *c, const struct entry *e, struct source **ret_source,
		     uint64_t *ret_off)
{
	return c->ops->locate(c, e, ret_source, ret_off);
}

int container_locate_in(struct container *c, const struct entry *e, struct source *part,
			uint64_t *ret_off)
{
	return c->ops->locate_in(c, e, part, ret_off);
}

int container_peek(struct container *c, const struct entry *e, void *buf, const void **ret_stored)
{
	return c->ops->peek ? c->ops->peek(c, e, buf, ret_stored) : -EAGAIN;
}

int container_stream(struct container *c, const struct entry *e, struct stream **ret)
{
	struct source *source;
	struct stream *raw;
	uint64_t off;
	int r;

	r = container_locate(c, e, &source, &off);
	if (r < 0)
		return r;
	r = source_stream(source, off, e->stored, &raw);
	source_unref(source);
	return r < 0 ? r : decode_open(raw, e, c->budget, ret);
}

int container_read(struct container *c, const struct entry *e, size_t max, struct buf *ret)
{
	struct stream *s;
	ssize_t got;
	int r;

	if (e->size > max)
		return log_error(-EFBIG, e->name, "has %" PRIu64 " bytes; the limit is %zu",
				 e->size, max);
	ret->max = max + 1;
	r = budget_take(c->budget, e->size);
	if (r == 0)
		r = buf_reserve(ret, (size_t)e->size + 1);
	if (r == 0)
		r = container_stream(c, e, &s);
	if (r < 0)
		return r;
	/*
	 * asks for one byte more than the size: the stream checks its end only when it is read to
	 * it
	 */
	got = stream_read_full(s, ret->data, (size_t)e->size + 1);
	stream_close(s);
	if (got < 0)
		return (int)got;
	ret->len = (size_t)got;
	ret->data[ret->len] = '\0';
	if (e->has_crc && crc32_update(0, ret->data, ret->len) != e->crc)
		return log_error(-EBADMSG, e->name, "crc mismatch: the entry is damaged");
	return 0;
}

int container_readlink(struct container *c, const struct entry *e, struct buf *ret)
{
	return c->ops->readlink(c, e, ret);
}

int container_prefetch(struct container *c, const struct entry **list, size_t n)
{
	return c->ops->prefetch && n ? c->ops->prefetch(c, list, n) : 0;
}

ssize_t container_compare(struct container *c)
{
	return c->ops->compare ? c->ops->compare(c) : 0;
}

void container_damaged(struct container *c, const struct entry *e)
{
	if (c->ops->damaged)
		c->ops->damaged(c, e);
}

void container_close(struct container *c)
{
	if (c)
		c->ops->free(c);
}
