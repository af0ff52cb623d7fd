/* SPDX-License-Identifier: Apache-2.0 */
#include "zip.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

#include "decode.h"

/* APPNOTE 4.3: signatures and fixed sizes */
#define LOCAL_SIG 0x04034b50
#define LOCAL_SIZE 30
#define CENTRAL_SIG 0x02014b50
#define CENTRAL_SIZE 46
#define DESCRIPTOR_SIG 0x08074b50
#define DESCRIPTOR_MAX 24
#define EOCD_SIG 0x06054b50
#define EOCD_SIZE 22
#define LOCATOR_SIG 0x07064b50
#define LOCATOR_SIZE 20
#define RECORD_SIG 0x06064b50
#define RECORD_SIZE 56

#define EXTRA_ZIP64 0x0001
#define EXTRA_UNIX_TIME 0x5455
#define EXTRA_UNICODE_PATH 0x7075

#define FLAG_DESCRIPTOR (1 << 3)
/* what an entry may say: deflate's level (1, 2), a data descriptor (3), UTF-8 names (11) */
#define FLAGS_KNOWN (1 << 1 | 1 << 2 | FLAG_DESCRIPTOR | 1 << 11)

/* of a remote zip, what one request should fetch at most, and leave out */
#define PREFETCH_MAX (8 * MIB)
#define PREFETCH_GAP (128 * KIB)

#define MADE_BY_UNIX 3
#define MADE_BY_MACOS 19
#define DOS_DIRECTORY 0x10

struct zip {
	struct container container;
	struct source *source;
	char *names;	       /* one block: every name with its NUL */
	uint64_t directory_at; /* the central directory */
	uint64_t directory_size;
	uint64_t n_entries;
	uint64_t eocd_at;
	/* the last DOS date converted: neighbours mostly share it */
	uint32_t dos_last;
	int64_t mtime_last;
};

/* What the archive's end says, from the EOCD or its zip64 record. */
struct end {
	uint64_t entries;
	uint64_t size;
	uint64_t offset;
};

/* ---- the end of the archive ---- */

static int refuse(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

static int refuse(const char *fmt, ...)
{
	char text[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	carton_log(CARTON_LOG_ERROR, NULL, "refused zip: %s", text);
	return -EBADMSG;
}

/*
 * Finds the one EOCD whose comment ends where the file ends. A second candidate, or another
 * signature inside the comment, would let readers disagree.
 */
static int find_eocd(const uint8_t *tail, size_t n, size_t *ret_at)
{
	size_t found = SIZE_MAX;
	bool any = false;

	for (size_t i = 0; i + EOCD_SIZE <= n; i++) {
		if (tail[i] != 'P' || get_le32(tail + i) != EOCD_SIG)
			continue;
		any = true;
		if (i + EOCD_SIZE + get_le16(tail + i + 20) != n) {
			if (found != SIZE_MAX)
				return refuse(
					"a second end record stands inside the archive comment");
			continue;
		}
		if (found != SIZE_MAX)
			return refuse("two end records both claim to end the archive");
		found = i;
	}
	if (found == SIZE_MAX && any)
		return refuse("data after the end record, or its comment length is wrong");
	if (found == SIZE_MAX)
		return refuse("not a zip file, or cut off: no end of central directory record");
	/* a signature that begins in the last bytes has no room for a record */
	for (size_t i = found + EOCD_SIZE; i + 4 <= n; i++)
		if (get_le32(tail + i) == EOCD_SIG)
			return refuse("a second end record stands inside the archive comment");
	*ret_at = found;
	return 0;
}

/* The zip64 record that the locator names must lie right before it and agree with the EOCD. */
static int read_zip64(const struct zip *z, const uint8_t *locator, const uint8_t *eocd,
		      struct end *end, uint64_t *ret_at)
{
	uint64_t locator_at = z->eocd_at - LOCATOR_SIZE;
	uint64_t at = get_le64(locator + 8), size;
	uint8_t record[RECORD_SIZE];
	int r;

	if (get_le32(locator + 4) != 0 || get_le32(locator + 16) != 1)
		return refuse("multi-disk archives are not supported (zip64 locator)");
	if (at > locator_at || locator_at - at < RECORD_SIZE)
		return refuse("zip64 locator points outside of the archive");
	r = source_pread(z->source, record, sizeof(record), at);
	if (r < 0)
		return r;
	if (get_le32(record) != RECORD_SIG)
		return refuse("zip64 locator does not point to a zip64 end record");
	size = get_le64(record + 4);
	if (size != locator_at - at - 12)
		return refuse("zip64 end record's size is wrong");
	if (get_le32(record + 16) != 0 || get_le32(record + 20) != 0)
		return refuse("multi-disk archives are not supported (zip64 end record)");
	end->entries = get_le64(record + 32);
	end->size = get_le64(record + 40);
	end->offset = get_le64(record + 48);
	if (get_le64(record + 24) != end->entries)
		return refuse("zip64 end record's two entry counts differ");
	if ((get_le16(eocd + 10) != UINT16_MAX && get_le16(eocd + 10) != end->entries) ||
	    (get_le32(eocd + 12) != UINT32_MAX && get_le32(eocd + 12) != end->size) ||
	    (get_le32(eocd + 16) != UINT32_MAX && get_le32(eocd + 16) != end->offset))
		return refuse("zip64 end record disagrees with the end record");
	*ret_at = at;
	return 0;
}

/* Reads the end record at tail[at], and the zip64 record if there is one. */
static int parse_end(struct zip *z, const uint8_t *tail, size_t at, struct end *ret)
{
	const uint8_t *eocd = tail + at;
	unsigned disk = get_le16(eocd + 4), directory_disk = get_le16(eocd + 6);
	struct end end = { get_le16(eocd + 10), get_le32(eocd + 12), get_le32(eocd + 16) };
	uint64_t directory_end = z->eocd_at, finish;
	int r;

	if ((disk != 0 && disk != UINT16_MAX) ||
	    (directory_disk != 0 && directory_disk != UINT16_MAX))
		return refuse("multi-disk archives are not supported (end record)");
	if (get_le16(eocd + 8) != get_le16(eocd + 10))
		return refuse("the end record's two entry counts differ");
	if (at >= LOCATOR_SIZE && get_le32(eocd - LOCATOR_SIZE) == LOCATOR_SIG) {
		r = read_zip64(z, eocd - LOCATOR_SIZE, eocd, &end, &directory_end);
		if (r < 0)
			return r;
	} else if (end.size == UINT32_MAX || end.offset == UINT32_MAX || disk || directory_disk) {
		/* a count of 65535 may be just that: it is checked against the directory */
		return refuse("the end record announces a zip64 record, but there is none");
	}
	if (__builtin_add_overflow(end.offset, end.size, &finish) || finish != directory_end)
		return refuse("central directory of %" PRIu64 " bytes at offset %" PRIu64
			      " does not end where its end record begins, at %" PRIu64,
			      end.size, end.offset, directory_end);
	*ret = end;
	return 0;
}

static int read_end(struct zip *z)
{
	size_t n = (size_t)MIN(z->source->size, EOCD_SIZE + UINT16_MAX + LOCATOR_SIZE), at = 0;
	uint8_t *tail = malloc(n + 1);
	struct end end = { 0 };
	int r;

	if (!tail)
		return -ENOMEM;
	r = source_pread(z->source, tail, n, z->source->size - n);
	if (r == 0)
		r = find_eocd(tail, n, &at);
	if (r == 0) {
		z->eocd_at = z->source->size - n + at;
		r = parse_end(z, tail, at, &end);
	}
	free(tail);
	if (r < 0)
		return r;
	if (end.entries > MAX_ENTRIES || end.size > MAX_CENTRAL_DIRECTORY) {
		carton_log(CARTON_LOG_ERROR, NULL,
			   "refused zip: %" PRIu64 " entries in %" PRIu64
			   " bytes of central directory are over the limit",
			   end.entries, end.size);
		return -EFBIG;
	}
	if (end.entries > end.size / CENTRAL_SIZE)
		return refuse("the end record's count of %" PRIu64
			      " entries does not fit in the central directory",
			      end.entries);
	z->directory_at = end.offset;
	z->directory_size = end.size;
	z->n_entries = end.entries;
	return 0;
}

/* ---- extra fields ---- */

/* The fields of an extra block that matter here; each points into the block. */
struct extra {
	const uint8_t *zip64;
	size_t zip64_len;
	const uint8_t *unix_time;
	size_t unix_time_len;
	const uint8_t *unicode_path;
	size_t unicode_path_len;
};

/* Splits an extra block; NULL, or what is wrong with it. */
static const char *split_extra(const uint8_t *p, size_t n, struct extra *ret)
{
	*ret = (struct extra){ 0 };
	while (n > 0) {
		unsigned id;
		size_t len;

		if (n < 4)
			return "has a cut-off extra field";
		id = get_le16(p);
		len = get_le16(p + 2);
		if (len > n - 4)
			return "has an extra field longer than its room";
		if (id == EXTRA_ZIP64) {
			if (ret->zip64)
				return "has a duplicate zip64 extra field";
			ret->zip64 = p + 4;
			ret->zip64_len = len;
		} else if (id == EXTRA_UNIX_TIME) {
			if (ret->unix_time)
				return "has a duplicate timestamp extra field";
			ret->unix_time = p + 4;
			ret->unix_time_len = len;
		} else if (id == EXTRA_UNICODE_PATH) {
			if (ret->unicode_path)
				return "has a duplicate Unicode path extra field";
			ret->unicode_path = p + 4;
			ret->unicode_path_len = len;
		}
		p += 4 + len;
		n -= 4 + len;
	}
	return NULL;
}

/* APPNOTE 4.6.9: version 1, crc of the name, then the name in UTF-8. It must be the same name. */
static const char *check_unicode_path(const struct extra *x, const char *name, size_t len)
{
	if (!x->unicode_path)
		return NULL;
	if (x->unicode_path_len < 5)
		return "has a short Unicode path extra field";
	if (x->unicode_path[0] != 1 || x->unicode_path_len - 5 != len ||
	    memcmp(x->unicode_path + 5, name, len) != 0)
		return "has a Unicode path extra field that names something else";
	return NULL;
}

/*
 * APPNOTE 4.5.3: 64-bit values for the fields whose 32-bit form is all ones, in their order. Some
 * writers add the others too; then those must agree with the 32-bit form.
 */
static const char *apply_zip64(const struct extra *x, uint64_t *const fields[], size_t n)
{
	size_t wanted = 0, at = 0;
	bool all;

	for (size_t i = 0; i < n; i++)
		wanted += *fields[i] == UINT32_MAX;
	if (!x->zip64)
		return wanted ? "announces a zip64 extra field, but there is none" : NULL;
	if (x->zip64_len < 8 * wanted)
		return "has a short zip64 extra field";
	/* only what is announced, perhaps with the number of the disk; or all of them */
	all = x->zip64_len != 8 * wanted && x->zip64_len != 8 * wanted + 4;
	for (size_t i = 0; i < n; i++) {
		bool sentinel = *fields[i] == UINT32_MAX;
		uint64_t value;

		if (!sentinel && (!all || at == x->zip64_len))
			continue;
		if (x->zip64_len - at < 8)
			return "has a short zip64 extra field";
		value = get_le64(x->zip64 + at);
		if (!sentinel && value != *fields[i])
			return "has a zip64 extra field that disagrees with its header";
		*fields[i] = value;
		at += 8;
	}
	/* what may be left is the number of the disk, which is the only one */
	if (x->zip64_len - at == 4 && get_le32(x->zip64 + at) == 0)
		at += 4;
	return at == x->zip64_len ? NULL : "has a zip64 extra field of a wrong length";
}

/* ---- central directory ---- */

/* A DOS date and time is local time; a month or day of 0 says that there is none. */
static int64_t dos_time(struct zip *z, uint32_t dos)
{
	struct tm tm = {
		.tm_year = (int)(dos >> 25) + 80,
		.tm_mon = (int)(dos >> 21 & 15) - 1,
		.tm_mday = (int)(dos >> 16 & 31),
		.tm_hour = (int)(dos >> 11 & 31),
		.tm_min = (int)(dos >> 5 & 63),
		.tm_sec = (int)(dos & 31) * 2,
		.tm_isdst = -1,
	};

	if (dos == z->dos_last)
		return z->mtime_last;
	z->dos_last = dos;
	z->mtime_last = NO_TIME;
	if (tm.tm_mon >= 0 && tm.tm_mon < 12 && tm.tm_mday > 0)
		z->mtime_last = mktime(&tm);
	return z->mtime_last;
}

static const char *check_flags(unsigned flags, unsigned method)
{
	if (flags & (1 << 0 | 1 << 6 | 1 << 13))
		return "is encrypted; decrypt the carton first";
	if (flags & 1 << 5)
		return "is compressed patch data, which is not supported";
	if (flags & ~FLAGS_KNOWN)
		return "sets reserved flag bits";
	if (!decode_knows(method))
		return "uses an unsupported compression method; a carton has Stored, Deflate and "
		       "zstd";
	return NULL;
}

/* What kind of file an entry is, by its mode where it has one, and by its name. */
static const char *find_kind(struct entry *e, const uint8_t *h, bool slash)
{
	unsigned made_by = h[5];
	uint32_t attributes = get_le32(h + 38);
	unsigned mode = made_by == MADE_BY_UNIX || made_by == MADE_BY_MACOS ? attributes >> 16 : 0;

	e->executable = mode & 0111;
	e->kind = slash ? ENTRY_DIR : ENTRY_FILE;
	switch (mode & S_IFMT) {
	case 0:
		if (!slash && (attributes & DOS_DIRECTORY))
			return "is marked as a directory, but its name does not end in a slash";
		break;
	case S_IFREG:
		if (slash)
			return "is marked as a regular file, but its name ends in a slash";
		break;
	case S_IFDIR:
		if (!slash)
			return "is marked as a directory, but its name does not end in a slash";
		break;
	case S_IFLNK:
		if (slash)
			return "is marked as a symlink, but its name ends in a slash";
		e->kind = ENTRY_SYMLINK;
		break;
	default:
		return "is a fifo, device or socket; a carton has files, directories and symlinks";
	}
	if (e->kind == ENTRY_DIR && (e->size != 0 || e->stored > 2))
		return "is a directory that has data";
	return NULL;
}

/* Fills `e` from one central header of which all bytes are there; NULL, or what is wrong. */
static const char *parse_central(struct zip *z, const uint8_t *h, struct entry *e)
{
	const char *name = (const char *)h + CENTRAL_SIZE, *fault;
	size_t len = get_le16(h + 28);
	uint64_t *const fields[] = { &e->size, &e->stored, &e->header };
	bool slash = len > 1 && name[len - 1] == '/';
	struct extra x;

	e->flags = get_le16(h + 8);
	e->method = get_le16(h + 10);
	e->crc = get_le32(h + 16);
	e->has_crc = true;
	e->stored = get_le32(h + 20);
	e->size = get_le32(h + 24);
	e->header = get_le32(h + 42);
	fault = path_fault(name, len - slash);
	if (!fault)
		fault = check_flags(e->flags, e->method);
	if (!fault)
		fault = split_extra(h + CENTRAL_SIZE + len, get_le16(h + 30), &x);
	if (!fault)
		fault = check_unicode_path(&x, name, len);
	if (!fault)
		fault = apply_zip64(&x, fields, ARRAY_SIZE(fields));
	if (!fault && get_le16(h + 34) != 0 && !(get_le16(h + 34) == UINT16_MAX && x.zip64))
		fault = "lies on another disk; multi-disk archives are not supported";
	if (!fault)
		fault = find_kind(e, h, slash);
	if (!fault && e->method == METHOD_STORED && e->size != e->stored)
		fault = "is Stored, but its two sizes differ";
	if (!fault && e->size > MAX_FILE_SIZE)
		fault = "is larger than any file may be";
	if (fault)
		return fault;
	/* the extended timestamp's first time, where its flags say so, is the modification's in UTC */
	if (x.unix_time_len >= 5 && (x.unix_time[0] & 1))
		e->mtime = (int32_t)get_le32(x.unix_time + 1);
	else
		e->mtime = dos_time(z, get_le32(h + 12));
	e->name_len = (uint16_t)(len - slash);
	return NULL;
}

static int parse_directory(struct zip *z, const uint8_t *dir)
{
	struct container *c = &z->container;
	uint64_t at = 0, size = z->directory_size;
	char *name = z->names;
	size_t faults = 0;

	for (size_t i = 0; i < z->n_entries; i++) {
		const uint8_t *h = dir + at;
		struct entry *e = &c->entries[i];
		const char *fault;
		size_t len, whole;

		if (size - at < CENTRAL_SIZE || get_le32(h) != CENTRAL_SIG)
			return refuse("entry %zu of %" PRIu64 " has no central header", i + 1,
				      z->n_entries);
		len = get_le16(h + 28);
		whole = CENTRAL_SIZE + len + get_le16(h + 30) + get_le16(h + 32);
		if (whole > size - at)
			return refuse("the central header of entry %zu is cut off", i + 1);
		fault = parse_central(z, h, e);
		memcpy(name, h + CENTRAL_SIZE, len);
		name[fault ? len : e->name_len] = '\0';
		e->name = name;
		name += len + 1;
		if (fault) {
			carton_log(CARTON_LOG_ERROR, e->name, "%s", fault);
			if (++faults >= MAX_REPORTED)
				break;
		}
		at += whole;
		c->n_entries = i + 1;
	}
	if (faults)
		return -EBADMSG;
	if (at != size)
		return refuse("%" PRIu64 " bytes of the central directory belong to no entry: its "
			      "count of %" PRIu64 " is wrong",
			      size - at, z->n_entries);
	return 0;
}

/* ---- where entries lie ---- */

static int compare_offsets(const void *a, const void *b)
{
	const struct entry *x = *(struct entry *const *)a, *y = *(struct entry *const *)b;

	return x->header < y->header ? -1 : x->header > y->header;
}

/* The least and the most room an entry can take, as far as its central header tells. */
static uint64_t least_room(const struct entry *e)
{
	return LOCAL_SIZE + e->name_len + (e->kind == ENTRY_DIR) + e->stored +
	       (e->flags & FLAG_DESCRIPTOR ? 12 : 0);
}

static uint64_t most_room(const struct entry *e)
{
	return least_room(e) + UINT16_MAX + (e->flags & FLAG_DESCRIPTOR ? DESCRIPTOR_MAX - 12 : 0);
}

static bool offsets_fault(const struct entry *e)
{
	uint64_t room = e->end - e->header;

	if (e->end < e->header || room < least_room(e))
		carton_log(CARTON_LOG_ERROR, e->name, "overlaps what follows it at offset %" PRIu64,
			   e->end);
	else if (room > most_room(e))
		carton_log(CARTON_LOG_ERROR, e->name,
			   "is followed by bytes that belong to no entry, before offset %" PRIu64,
			   e->end);
	else
		return false;
	return true;
}

/*
 * Entries must follow each other from offset 0 to the central directory. How long a local extra
 * field is shows only in the local header: zip_locate() checks the rest of it.
 */
static int check_offsets(struct zip *z)
{
	struct container *c = &z->container;
	struct entry **order = malloc((c->n_entries ? c->n_entries : 1) * sizeof(*order));
	size_t faults = 0;

	if (!order)
		return -ENOMEM;
	for (size_t i = 0; i < c->n_entries; i++)
		order[i] = &c->entries[i];
	qsort(order, c->n_entries, sizeof(*order), compare_offsets);
	if ((c->n_entries ? order[0]->header : z->directory_at) != 0) {
		refuse("data before the first entry");
		faults++;
	}
	for (size_t i = 0; i < c->n_entries && faults < MAX_REPORTED; i++) {
		struct entry *e = order[i];

		e->end = i + 1 < c->n_entries ? order[i + 1]->header : z->directory_at;
		if (e->stored > z->directory_at || e->header > z->directory_at) {
			carton_log(CARTON_LOG_ERROR, e->name, "lies outside of the archive");
			faults++;
		} else {
			faults += offsets_fault(e);
		}
	}
	free(order);
	return faults ? -EBADMSG : 0;
}

/* ---- local headers ---- */

/* The descriptor fills the room between the data and what follows, in one of its four forms. */
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

/* Compares the local header with the central one; NULL, or what is wrong. */
static const char *check_local(const struct entry *e, const uint8_t *h, const uint8_t *rest)
{
	size_t len = get_le16(h + 26);
	uint64_t stored = get_le32(h + 18), size = get_le32(h + 22);
	uint64_t *const fields[] = { &size, &stored };
	bool late = e->flags & FLAG_DESCRIPTOR, dir = e->kind == ENTRY_DIR;
	const char *fault;
	struct extra x;

	if (len != (size_t)e->name_len + dir || memcmp(rest, e->name, e->name_len) != 0 ||
	    (dir && rest[len - 1] != '/'))
		return "has another name in its local header";
	if (get_le16(h + 6) != e->flags)
		return "has other flags in its local header";
	if (get_le16(h + 8) != e->method)
		return "has another compression method in its local header";
	fault = split_extra(rest + len, get_le16(h + 28), &x);
	if (!fault)
		fault = check_unicode_path(&x, (const char *)rest, len);
	if (!fault && late && !x.zip64 && stored == UINT32_MAX && size == UINT32_MAX)
		stored = size = 0; /* "see the descriptor", as some writers say it */
	if (!fault)
		fault = apply_zip64(&x, fields, ARRAY_SIZE(fields));
	if (fault)
		return fault;
	/* with a descriptor the local values may still be 0 */
	if (get_le32(h + 14) != e->crc && !(late && get_le32(h + 14) == 0))
		return "has another crc in its local header";
	if ((size != e->size && !(late && size == 0)) ||
	    (stored != e->stored && !(late && stored == 0)))
		return "has other sizes in its local header";
	return NULL;
}

static int local_fault(const struct entry *e, const char *fault)
{
	carton_log(CARTON_LOG_ERROR, e->name, "%s", fault);
	return -EBADMSG;
}

/* Checks what stands behind the data: a descriptor that agrees, or nothing. */
static int check_trailer(struct zip *z, const struct entry *e, uint64_t data_at)
{
	uint64_t data_end, room;
	uint8_t descriptor[DESCRIPTOR_MAX];
	int r;

	if (__builtin_add_overflow(data_at, e->stored, &data_end) || data_end > e->end)
		return local_fault(e, "overlaps what follows it");
	room = e->end - data_end;
	if (!(e->flags & FLAG_DESCRIPTOR))
		return room ? local_fault(e, "is followed by bytes that belong to no entry") : 0;
	if (room <= sizeof(descriptor)) {
		r = source_pread(z->source, descriptor, (size_t)room, data_end);
		if (r < 0)
			return r;
		if (descriptor_agrees(e, descriptor, (size_t)room))
			return 0;
	}
	return local_fault(e, "has a data descriptor that disagrees with the central directory");
}

static int zip_locate(struct container *c, const struct entry *e, struct source **ret_source,
		      uint64_t *ret_off)
{
	struct zip *z = container_of(c, struct zip, container);
	uint8_t head[512], *rest = NULL;
	size_t have = (size_t)MIN(e->end - e->header, sizeof(head)), more;
	const char *fault;
	int r = 0;

	if (e->end - e->header <= PREFETCH_MAX)
		r = source_prefetch(z->source, e->header, e->end - e->header, 0);
	if (r == 0)
		r = source_pread(z->source, head, have, e->header);
	if (r < 0)
		return r;
	if (get_le32(head) != LOCAL_SIG)
		return local_fault(e, "has no local header where the central directory says");
	more = (size_t)get_le16(head + 26) + get_le16(head + 28);
	if (more > e->end - e->header - LOCAL_SIZE)
		return local_fault(e, "overlaps what follows it");
	if (LOCAL_SIZE + more <= have) {
		fault = check_local(e, head, head + LOCAL_SIZE);
	} else {
		rest = malloc(more);
		if (!rest)
			return -ENOMEM;
		r = source_pread(z->source, rest, more, e->header + LOCAL_SIZE);
		fault = r < 0 ? NULL : check_local(e, head, rest);
		free(rest);
		if (r < 0)
			return r;
	}
	if (fault)
		return local_fault(e, fault);
	r = check_trailer(z, e, e->header + LOCAL_SIZE + more);
	if (r < 0)
		return r;
	*ret_source = source_ref(z->source);
	*ret_off = e->header + LOCAL_SIZE + more;
	return 0;
}

static int zip_readlink(struct container *c, const struct entry *e, struct buf *ret)
{
	return container_read(c, e, MAX_PATH_LEN, ret);
}

/* One request for entries that stand close together. */
static int zip_prefetch(struct container *c, const struct entry **list, size_t n)
{
	struct zip *z = container_of(c, struct zip, container);
	int r = 0;

	qsort(list, n, sizeof(*list), compare_offsets);
	for (size_t i = 0; i < n && r == 0;) {
		uint64_t from = list[i]->header, to = list[i]->end;

		while (++i < n && list[i]->header - to <= PREFETCH_GAP &&
		       list[i]->end - from <= PREFETCH_MAX)
			to = list[i]->end;
		r = source_prefetch(z->source, from, to - from, 0);
	}
	return r;
}

static void zip_free(struct container *c)
{
	struct zip *z = container_of(c, struct zip, container);

	source_unref(z->source);
	free(c->entries);
	free(z->names);
	free(z);
}

static const struct container_ops zip_ops = { zip_locate, zip_readlink, zip_prefetch, zip_free };

static int read_directory(struct zip *z)
{
	uint8_t *dir = malloc(z->directory_size ? z->directory_size : 1);
	int r = -ENOMEM;

	/* every name fits in the directory it stands in, with its NUL in place of its header */
	z->names = malloc(z->directory_size ? z->directory_size : 1);
	z->container.entries = calloc(z->n_entries ? z->n_entries : 1, sizeof(struct entry));
	/* MANIFEST mostly stands right before the directory, and is about as long */
	if (dir && z->names && z->container.entries)
		r = source_prefetch(z->source, z->directory_at, z->directory_size,
				    z->directory_size + z->directory_size / 2 + 64 * KIB);
	if (r == 0)
		r = source_pread(z->source, dir, z->directory_size, z->directory_at);
	if (r == 0)
		r = parse_directory(z, dir);
	free(dir);
	return r;
}

int zip_open(struct source *source, int64_t mtime, struct container **ret)
{
	struct zip *z = calloc(1, sizeof(*z));
	int r, index;

	if (!z)
		return -ENOMEM;
	z->container.ops = &zip_ops;
	z->container.mtime = mtime;
	z->container.remote = !source_is_local(source);
	z->container.one_file = true;
	z->source = source_ref(source);
	z->mtime_last = NO_TIME;
	r = read_end(z);
	if (r == 0)
		r = read_directory(z);
	if (r == 0) {
		/* both, so that both are told */
		r = check_offsets(z);
		index = container_index(&z->container);
		r = r ? r : index;
	}
	if (r < 0) {
		zip_free(&z->container);
		return r;
	}
	*ret = &z->container;
	return 0;
}
