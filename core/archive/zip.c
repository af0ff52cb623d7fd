/* SPDX-License-Identifier: Apache-2.0 */
#include "archive/internal.h"

#include <inttypes.h>
#include <stdlib.h>

#include "archive/compare.h"
#include "archive/decode.h"

/* APPNOTE 4.3 */
#define LOCAL_SIG 0x04034b50
#define DESCRIPTOR_SIG 0x08074b50
#define DESCRIPTOR_MAX 24

/* of a remote zip: the most that one request fetches, and the largest gap that it fetches too */
/* bytes for each entry while they are sorted: their order, and what qsort() copies */
#define SORT_SIZE 32
#define PREFETCH_MAX (8 * MIB)
#define PREFETCH_GAP (128 * KIB)

/* ---- offsets ---- */

static int compare_offsets(const void *a, const void *b)
{
	const struct entry *x = *(struct entry *const *)a, *y = *(struct entry *const *)b;

	return x->header < y->header ? -1 : x->header > y->header;
}

/* The least and most bytes of local header, data and descriptor, by the central header. */
static uint64_t least_room(const struct entry *e)
{
	return LOCAL_SIZE + e->name_len + (e->kind == ENTRY_DIR) + e->stored +
	       (e->flags & ENTRY_DESCRIPTOR ? 12 : 0);
}

static uint64_t most_room(const struct entry *e)
{
	return least_room(e) + UINT16_MAX + (e->flags & ENTRY_DESCRIPTOR ? DESCRIPTOR_MAX - 12 : 0);
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
	_Static_assert(LOCAL_SIZE + MAX_PATH_LEN + 1 + UINT16_MAX + DESCRIPTOR_MAX < 1 << 17,
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
 * Entries must follow each other from offset 0 to the central directory. The length of a local
 * extra field is known only from the local header: zip_locate() checks the exact end.
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
	if ((e ? e->header : z->directory_at) != 0) {
		zip_refuse("data before the first entry");
		faults++;
	}
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
	return faults ? -EBADMSG : 0;
}

/* ---- local headers ---- */

/* 4.3.9: the descriptor fills the `n` bytes after the data, in one of its four forms. */
static bool descriptor_agrees(const struct entry *e, const uint8_t *d, size_t n)
{
	bool wide = n == 20 || n == 24;

	if (n != 12 && n != 16 && n != 20 && n != 24)
		return false;
	if (n == 16 || n == 24) {
		if (get_le32(d) != DESCRIPTOR_SIG)
			return false;
		d += 4;
	}
	if (get_le32(d) != e->crc)
		return false;
	if (wide)
		return get_le64(d + 4) == e->stored && get_le64(d + 12) == e->size;
	return get_le32(d + 4) == e->stored && get_le32(d + 8) == e->size;
}

/* Compares a local header with the central one. NULL, or what is wrong. */
static const char *check_local(const struct entry *e, const uint8_t *h, const uint8_t *rest)
{
	size_t len = get_le16(h + 26);
	uint64_t stored = get_le32(h + 18), size = get_le32(h + 22);
	uint64_t *const fields[] = { &size, &stored };
	bool described = e->flags & ENTRY_DESCRIPTOR, dir = e->kind == ENTRY_DIR;
	const char *fault;
	struct zip_extra x;

	if (len != (size_t)e->name_len + dir || memcmp(rest, e->name, e->name_len) != 0 ||
	    (dir && rest[len - 1] != '/'))
		return "has another name in its local header";
	if (get_le16(h + 6) != e->flags)
		return "has other flags in its local header";
	if (get_le16(h + 8) != e->method)
		return "has another compression method in its local header";
	fault = zip_split_extra(rest + len, get_le16(h + 28), &x);
	if (!fault)
		fault = zip_check_unicode_path(&x, (const char *)rest, len);
	if (!fault && described && !x.zip64 && stored == UINT32_MAX && size == UINT32_MAX)
		stored = size = 0; /* another way to say that the descriptor has them */
	if (!fault)
		fault = zip_apply_zip64(&x, fields, ARRAY_SIZE(fields));
	if (fault)
		return fault;
	/* with a descriptor, local values may be 0 */
	if (get_le32(h + 14) != e->crc && !(described && get_le32(h + 14) == 0))
		return "has another crc in its local header";
	if ((size != e->size && !(described && size == 0)) ||
	    (stored != e->stored && !(described && stored == 0)))
		return "has other sizes in its local header";
	return NULL;
}

static int at_fault(const char **ret_fault, const char *fault)
{
	*ret_fault = fault;
	return -EBADMSG;
}

/*
 * Checks the bytes after the data: a descriptor that agrees, or none. `from` begins at `base` of
 * the archive.
 */
static int check_trailer(struct source *from, uint64_t base, const struct entry *e,
			 uint64_t data_at, const char **ret_fault)
{
	uint64_t data_end, room;
	uint8_t descriptor[DESCRIPTOR_MAX];
	int r;

	if (__builtin_add_overflow(data_at, e->stored, &data_end) || data_end > entry_end(e))
		return at_fault(ret_fault, "overlaps what follows it");
	room = entry_end(e) - data_end;
	if (!(e->flags & ENTRY_DESCRIPTOR))
		return room ? at_fault(ret_fault, "is followed by bytes that belong to no entry") :
			      0;
	if (room <= sizeof(descriptor)) {
		r = source_pread(from, descriptor, (size_t)room, data_end - base);
		if (r < 0)
			return r;
		if (descriptor_agrees(e, descriptor, (size_t)room))
			return 0;
	}
	return at_fault(ret_fault,
			"has a data descriptor that disagrees with the central directory");
}

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

/*
 * Checks the local header and what follows the data; where the data begins in `from`. *ret_fault is
 * set for -EBADMSG.
 */
static int check_entry(struct source *from, uint64_t base, const struct entry *e, uint64_t *ret_off,
		       const char **ret_fault)
{
	uint64_t at = e->header - base;
	uint8_t header[512], *rest = NULL;
	size_t have = (size_t)MIN(entry_end(e) - e->header, sizeof(header)), more;
	const char *fault;
	int r;

	have = (size_t)MIN(have, from->size - MIN(at, from->size));
	if (have < LOCAL_SIZE)
		return -ENODATA;
	r = source_pread(from, header, have, at);
	if (r < 0)
		return r;
	if (get_le32(header) != LOCAL_SIG)
		return at_fault(ret_fault, "has no local header where the central directory says");
	more = (size_t)get_le16(header + 26) + get_le16(header + 28);
	if (more > entry_end(e) - e->header - LOCAL_SIZE)
		return at_fault(ret_fault, "overlaps what follows it");
	if (LOCAL_SIZE + more <= have) {
		fault = check_local(e, header, header + LOCAL_SIZE);
	} else {
		/* a copy that ends with the expected local header has no room for a longer one */
		if (LOCAL_SIZE + more > from->size - at)
			return at_fault(ret_fault, "overlaps what follows it");
		rest = malloc(more);
		if (!rest)
			return -ENOMEM;
		r = source_pread(from, rest, more, at + LOCAL_SIZE);
		fault = r < 0 ? NULL : check_local(e, header, rest);
		free(rest);
		if (r < 0)
			return r;
	}
	if (fault)
		return at_fault(ret_fault, fault);
	r = check_trailer(from, base, e, e->header + LOCAL_SIZE + more, ret_fault);
	if (r == 0)
		*ret_off = at + LOCAL_SIZE + more;
	return r;
}

/* The same, and logs what is wrong. */
static int locate_entry(struct source *from, uint64_t base, const struct entry *e,
			uint64_t *ret_off)
{
	const char *fault = NULL;
	int r = check_entry(from, base, e, ret_off, &fault);

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
	    check_entry(&memory.source, e->header, e, &off, &fault) < 0)
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
	zip_locate, zip_locate_in, zip_peek, zip_readlink, zip_prefetch, zip_compare, zip_free,
};

static int read_directory(struct zip *z)
{
	/* their names, the entries, and what sorting them takes */
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

int zip_open(struct source *source, int64_t mtime, struct budget *budget, struct container **ret)
{
	struct zip *z = calloc(1, sizeof(*z));
	int r, index;

	if (!z)
		return -ENOMEM;
	z->container.ops = &zip_ops;
	z->container.mtime = mtime;
	z->container.budget = budget;
	z->container.remote = !source_is_local(source);
	z->container.one_file = true;
	z->source = source_ref(source);
	z->mtime_last = NO_TIME;
	r = zip_read_end(z);
	if (r == 0)
		r = read_directory(z);
	if (r == 0) {
		/* run both checks, to log the faults of both */
		r = check_offsets(z);
		index = container_index(&z->container);
		r = r ? r : index;
		budget_give(budget, z->n_entries * SORT_SIZE);
	}
	if (r == 0)
		r = check_directories(z);
	if (r < 0)
		zip_free(&z->container);
	else
		*ret = &z->container;
	return r;
}
