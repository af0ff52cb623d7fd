/* SPDX-License-Identifier: Apache-2.0 */
#include "archive/internal.h"

#include <inttypes.h>
#include <stdlib.h>

#include "archive/decode.h"

/* bytes for each entry while they are sorted: their order, and what qsort() copies */
#define SORT_SIZE 32
/* of a remote zip: the most that one request fetches, and the largest gap that it fetches too */
#define PREFETCH_MAX (8 * MIB)
#define PREFETCH_GAP (128 * KIB)

/* marks at the beginning of archives that could have been split */
#define SPLIT_SIG 0x08074b50
#define NOT_SPLIT_SIG 0x30304b50

/* ---- offsets ---- */

static int compare_offsets(const void *a, const void *b)
{
	const struct entry *x = *(struct entry *const *)a, *y = *(struct entry *const *)b;

	return x->header < y->header ? -1 : x->header > y->header;
}

/* The least and most bytes of local header, data and descriptor, by the central header. */
static uint64_t least_room(const struct entry *e)
{
	/* a name in a code page may have any length, which only the local header says */
	return LOCAL_SIZE + (e->raw == RAW_UNICODE ? 0 : e->name_len + (e->kind == ENTRY_DIR)) +
	       e->stored + (e->flags & ENTRY_DESCRIPTOR ? 12 : 0);
}

static uint64_t most_room(const struct entry *e)
{
	return least_room(e) + (e->raw == RAW_SAME ? 0 : MAX_PATH_LEN) + UINT16_MAX +
	       (e->flags & ENTRY_DESCRIPTOR ? ZIP_DESCRIPTOR_MAX - 12 : 0);
}

/* Sets the room of an entry that ends at `end`; true: it has too little or too much. */
static bool offsets_fault(struct entry *e, uint64_t end)
{
	uint64_t room = end - e->header;

	if (end < e->header || room < least_room(e))
		return log_error(true, e->name, "overlaps what follows it at offset %" PRIu64, end);
	if (room > most_room(e))
		return log_error(
			true, e->name,
			"is followed by bytes that belong to no entry, before offset %" PRIu64,
			end);
	_Static_assert(LOCAL_SIZE + 2 * MAX_PATH_LEN + 1 + UINT16_MAX + ZIP_DESCRIPTOR_MAX <
			       1 << 17,
		       "fits struct entry");
	e->room = (uint32_t)(room - e->stored);
	return false;
}

/* The entries by their offsets: NULL if they are in that order already. */
static int order_by_offset(const struct container *c, struct entry ***ret)
{
	struct entry **order;
	size_t i;

	*ret = NULL;
	for (i = 1; i < c->n_entries; i++)
		if (c->entries[i - 1].header > c->entries[i].header)
			break;
	if (i >= c->n_entries)
		return 0;
	order = malloc(c->n_entries * sizeof(*order));
	if (!order)
		return -ENOMEM;
	for (i = 0; i < c->n_entries; i++)
		order[i] = &c->entries[i];
	qsort(order, c->n_entries, sizeof(*order), compare_offsets);
	*ret = order;
	return 0;
}

/*
 * Checks what is before the first entry: nothing, or the mark of a writer that was ready for
 * several disks (4.4.1.3, 8.5.4), also where one disk was enough.
 */
static int check_begin(const struct zip *z, uint64_t first)
{
	uint8_t mark[4];
	int r;

	if (first == 0)
		return 0;
	if (first == sizeof(mark)) {
		r = source_pread(z->source, mark, sizeof(mark), 0);
		if (r < 0 || get_le32(mark) == SPLIT_SIG || get_le32(mark) == NOT_SPLIT_SIG)
			return r;
	}
	return zip_refuse("data before the first entry");
}

/*
 * Entries must follow each other from the beginning of the file to the central directory. The
 * length of a local extra field is known only from the local header: zip_locate() checks the exact
 * end.
 */
static int check_offsets(struct zip *z)
{
	struct container *c = &z->container;
	struct entry **order, *e, *next;
	size_t faults = 0;
	int r = order_by_offset(c, &order);

	if (r < 0)
		return r;
	e = !c->n_entries ? NULL : order ? order[0] : c->entries;
	r = check_begin(z, e ? e->header : z->directory_at);
	faults += r < 0;
	for (size_t i = 1; e && faults < MAX_REPORTED; i++, e = next) {
		next = i >= c->n_entries ? NULL : order ? order[i] : &c->entries[i];
		if (e->stored > z->directory_at || e->header > z->directory_at) {
			carton_log(CARTON_LOG_ERROR, e->name, "is outside of the archive");
			faults++;
		} else {
			faults += offsets_fault(e, next ? next->header : z->directory_at);
		}
	}
	free(order);
	return r < 0 ? r : faults ? -EBADMSG : 0;
}

/* ---- data ---- */

/* Some writers compress the empty content of a directory: it must decode to nothing. */
static int check_empty(struct zip *z, const struct entry *e, uint64_t data_at)
{
	struct entry empty = *e;
	struct stream *raw, *s;
	char extra;
	ssize_t got;
	int r;

	if (e->stored == 0)
		return 0;
	empty.size = 0;
	r = source_stream(z->source, data_at, e->stored, &raw);
	if (r == 0)
		r = decode_open(raw, &empty, NULL, &s);
	if (r < 0)
		return r;
	got = stream_read(s, &extra, 1);
	stream_close(s);
	return (int)got;
}

/* zip_check_local(), and logs what is wrong. */
static int locate_entry(struct source *from, uint64_t base, const struct entry *e,
			uint64_t *ret_off)
{
	const char *fault = NULL;
	int r = zip_check_local(from, base, e, ret_off, &fault);

	if (fault)
		carton_log(CARTON_LOG_ERROR, e->name, "%s", fault);
	return r;
}

/* A part of the archive in memory, which lives on the stack. */
struct memory_source {
	struct source source;
	const char *bytes;
};

static int memory_pread(struct source *s, void *ret_buf, size_t n, uint64_t off)
{
	if (off > s->size || n > s->size - off)
		return -ENODATA;
	memcpy(ret_buf, container_of(s, struct memory_source, source)->bytes + off, n);
	return 0;
}

static int zip_peek(struct container *c, const struct entry *e, void *buf, const void **ret_stored)
{
	static const struct source_ops ops = { .pread = memory_pread };
	struct zip *z = container_of(c, struct zip, container);
	struct memory_source memory = {
		.source = { .ops = &ops, .size = entry_end(e) - e->header, .fd = -1 },
		.bytes = buf,
	};
	const char *fault;
	uint64_t off;

	if (c->remote ||
	    source_pread_nowait(z->source, buf, entry_end(e) - e->header, e->header) < 0 ||
	    zip_check_local(&memory.source, e->header, e, &off, &fault) < 0)
		return -EAGAIN;
	*ret_stored = memory.bytes + off;
	return 0;
}

static int zip_locate_in(struct container *c, const struct entry *e, struct source *part,
			 uint64_t *ret_off)
{
	(void)c;
	return locate_entry(part, e->header, e, ret_off);
}

static int zip_locate(struct container *c, const struct entry *e, struct source **ret_source,
		      uint64_t *ret_off)
{
	struct zip *z = container_of(c, struct zip, container);
	uint64_t off;
	int r = 0;

	if (entry_end(e) - e->header <= PREFETCH_MAX)
		r = source_prefetch(z->source, e->header, entry_end(e) - e->header, 0);
	if (r == 0)
		r = locate_entry(z->source, 0, e, &off);
	if (r == 0 && e->kind == ENTRY_DIR)
		r = check_empty(z, e, off);
	if (r < 0)
		return r;
	*ret_source = source_ref(z->source);
	*ret_off = off;
	return 0;
}

/*
 * Directories are never opened, so their local headers are compared now, unless that costs
 * requests: a local extra field has room for a whole other entry.
 */
static int check_directories(struct zip *z)
{
	struct container *c = &z->container;
	size_t faults = 0;

	for (size_t i = 0; i < c->n_entries && faults < MAX_REPORTED && !c->remote; i++) {
		struct source *source;
		uint64_t off;
		int r;

		if (c->entries[i].kind != ENTRY_DIR)
			continue;
		r = zip_locate(c, &c->entries[i], &source, &off);
		if (r == 0)
			source_unref(source);
		else if (r != -EBADMSG)
			return r;
		faults += r < 0;
	}
	return faults ? -EBADMSG : 0;
}

static int zip_readlink(struct container *c, const struct entry *e, struct buf *ret)
{
	return container_read(c, e, MAX_PATH_LEN, ret);
}

/* Fetches entries that are close together in one request. */
static int zip_prefetch(struct container *c, const struct entry **list, size_t n)
{
	struct zip *z = container_of(c, struct zip, container);
	int r = 0;

	qsort(list, n, sizeof(*list), compare_offsets);
	for (size_t i = 0; i < n && r == 0;) {
		uint64_t from = list[i]->header, to = entry_end(list[i]);

		while (++i < n && list[i]->header - to <= PREFETCH_GAP &&
		       entry_end(list[i]) - from <= PREFETCH_MAX)
			to = entry_end(list[i]);
		r = source_prefetch(z->source, from, to - from, 0);
	}
	return r;
}

static ssize_t zip_compare(struct container *c)
{
	return c->remote ?
		       0 :
		       compare_with_libarchive(c, container_of(c, struct zip, container)->source);
}

static void zip_free(struct container *c)
{
	struct zip *z = container_of(c, struct zip, container);

	source_unref(z->source);
	free(c->entries);
	arena_finish(&c->names);
	free(z);
}

static const struct container_ops zip_ops = {
	.locate = zip_locate,
	.locate_in = zip_locate_in,
	.peek = zip_peek,
	.readlink = zip_readlink,
	.prefetch = zip_prefetch,
	.compare = zip_compare,
	.free = zip_free,
};

static int read_directory(struct zip *z)
{
	/* the names, the entries, and the memory to sort them */
	int r = budget_take(z->container.budget,
			    z->directory_size - z->n_entries * (CENTRAL_SIZE - 1) +
				    z->n_entries * (sizeof(struct entry) + SORT_SIZE));

	if (r < 0)
		return r;
	z->container.entries = calloc(z->n_entries ? z->n_entries : 1, sizeof(struct entry));
	if (!z->container.entries)
		return -ENOMEM;
	/* MANIFEST mostly precedes the directory directly, and is about as long */
	r = source_prefetch(z->source, z->directory_at, z->directory_size,
			    z->directory_size + z->directory_size / 2 + 64 * KIB);
	return r < 0 ? r : zip_parse_directory(z);
}

int zip_open(struct source *source, struct budget *budget, struct container **ret)
{
	struct zip *z = calloc(1, sizeof(*z));
	int r, index;

	if (!z)
		return -ENOMEM;
	z->container.ops = &zip_ops;
	z->container.budget = budget;
	z->container.remote = !source_is_local(source);
	z->container.one_file = true;
	z->source = source_ref(source);
	r = zip_read_end(z);
	if (r == 0)
		r = read_directory(z);
	if (r == 0) {
		/* run both checks, to log the faults of both */
		r = check_offsets(z);
		if (r == 0)
			r = check_directories(z);
		index = container_index(&z->container);
		r = r ? r : index;
		budget_give(budget, z->n_entries * SORT_SIZE);
	}
	if (r < 0)
		zip_free(&z->container);
	else
		*ret = &z->container;
	return r;
}
