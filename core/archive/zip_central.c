/* SPDX-License-Identifier: Apache-2.0 */
/* The central directory of a zip archive (APPNOTE 4.3.12), and extra fields (4.5). */
#include "archive/internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "archive/decode.h"
#include "base/digest.h"

#define EXTRA_UNICODE_PATH 0x7075
#define EXTRA_STREAMING 0x6c78 /* of libarchive: overrides mode and kind */
#define EXTRA_ASI_UNIX 0x756e  /* has a mode, which unzip takes where there is no other */

/* accepted: deflate level (bits 1, 2), data descriptor (3), UTF-8 name (11) */
#define FLAGS_KNOWN (FLAGS_LEVEL | ENTRY_DESCRIPTOR | FLAG_UTF8)

#define MADE_BY_AMIGA 1
#define MADE_BY_UNIX 3
#define MADE_BY_MACOS 19
#define DOS_DIRECTORY 0x10
#define INTERNAL_TEXT 1
#define AMIGA_KIND 06000
#define AMIGA_DIRECTORY 04000

#define MAX_VERSION 63 /* "needed to extract": 6.3, which has zstd */

/* ---- extra fields ---- */

const char *zip_split_extra(const uint8_t *p, size_t n, struct zip_extra *ret)
{
	*ret = (struct zip_extra){ 0 };
	while (n > 0) {
		unsigned id;
		size_t len;

		/* zipalign pads with zeros */
		if (n < 4)
			return memcmp(p, "\0\0\0", n) == 0 ? NULL : "has a cut-off extra field";
		id = get_le16(p);
		len = get_le16(p + 2);
		if (len > n - 4)
			return "has an extra field that is longer than its block";
		if (id == EXTRA_ZIP64) {
			if (ret->zip64)
				return "has a duplicate zip64 extra field";
			ret->zip64 = p + 4;
			ret->zip64_len = len;
		} else if (id == EXTRA_UNICODE_PATH) {
			if (ret->unicode_path)
				return "has a duplicate Unicode path extra field";
			ret->unicode_path = p + 4;
			ret->unicode_path_len = len;
		} else if (id == EXTRA_STREAMING || id == EXTRA_ASI_UNIX) {
			return id == EXTRA_STREAMING ?
				       "has an extra field 0x6c78, which can change its kind" :
				       "has an extra field 0x756e, which can change its kind";
		}
		p += 4 + len;
		n -= 4 + len;
	}
	return NULL;
}

static size_t count_slashes(const char *s, size_t n)
{
	size_t count = 0;

	for (size_t i = 0; i < n; i++)
		count += s[i] == '/';
	return count;
}

/* Can bytes of another encoding be this name, for a reader that does not know the encoding? */
static bool is_same_shape(const struct zip_name *bytes, const char *name, size_t n)
{
	for (size_t i = 0; i < bytes->len; i++)
		if ((unsigned char)bytes->text[i] < 0x20)
			return false;
	return bytes->len > 0 && bytes->len <= MAX_PATH_LEN &&
	       count_slashes(bytes->text, bytes->len) == count_slashes(name, n) &&
	       (bytes->text[bytes->len - 1] == '/') == (name[n - 1] == '/');
}

/*
 * Section 4.6.9: the field has the version 1, the CRC-32 of the name in the header, and the name in
 * UTF-8. If the CRC-32 is wrong, a program has changed the name in the header later, and readers
 * ignore the field. If the UTF-8 flag is set, or the version is not 1, only some readers use it.
 *
 * Python up to 3.11 ignores the field, and decodes the name in the header as code page 437. So a
 * field with another name in ASCII is refused: no writer needs the field for such a name, and that
 * Python may show another entry under it. container_may_have() relies on that, too.
 */
static const char *read_unicode_path(const struct zip_extra *x, unsigned flags,
				     struct zip_name *name)
{
	const char *text = (const char *)x->unicode_path + 5;
	size_t n = x->unicode_path_len - 5;
	bool ascii, same;

	if (x->unicode_path_len < 5)
		return "has a short Unicode path extra field";
	if (get_le32(x->unicode_path + 1) != crc32_update(0, name->text, name->len))
		return NULL;
	ascii = ascii_run(text, n) == n;
	same = n == name->len && memcmp(text, name->text, n) == 0;
	if (same && ((flags & FLAG_UTF8) || ascii))
		return NULL;
	if (x->unicode_path[0] != 1 || (flags & FLAG_UTF8) || ascii ||
	    !is_same_shape(name, text, n))
		return "has a Unicode path extra field that has another name";
	*name = (struct zip_name){ .text = text, .len = n, .raw = RAW_UNICODE };
	return NULL;
}

const char *zip_find_name(const struct zip_extra *x, const char *header, size_t len, unsigned flags,
			  struct zip_name *ret)
{
	struct zip_name name = { .text = header, .len = len };
	const char *fault = x->unicode_path ? read_unicode_path(x, flags, &name) : NULL;

	name.slash = name.len && name.text[name.len - 1] == '/';
	name.len -= name.slash;
	/* the tar of Windows and macOS: each name begins with "./", and the first is "./" */
	if (name.slash && name.len == 1 && name.text[0] == '.') {
		name.len = 0;
		name.raw = RAW_DOT;
	} else if (name.len > 2 && memcmp(name.text, "./", 2) == 0) {
		name.text += 2;
		name.len -= 2;
		if (name.raw == RAW_SAME)
			name.raw = RAW_DOT;
	}
	*ret = name;
	return fault;
}

const char *zip_apply_zip64(const struct zip_extra *x, uint64_t *const fields[], size_t n)
{
	size_t wanted = 0, at = 0, seen = 0;
	bool all;

	for (size_t i = 0; i < n; i++)
		wanted += *fields[i] == UINT32_MAX;
	if (!x->zip64)
		return NULL; /* all ones are then the value itself */
	if (x->zip64_len < 8 * wanted)
		return "has a short zip64 extra field";
	/*
	 * either only the fields whose 32-bit value is all ones, perhaps with the disk number; or
	 * all
	 */
	all = x->zip64_len != 8 * wanted && x->zip64_len != 8 * wanted + 4;
	for (size_t i = 0; i < n; i++) {
		bool sentinel = *fields[i] == UINT32_MAX;
		uint64_t value;

		if (!sentinel && (!all || at == x->zip64_len))
			continue;
		if (x->zip64_len - at < 8)
			return "has a short zip64 extra field";
		/* other readers would take an unexpected value for the next expected one */
		if (sentinel && at != 8 * seen++)
			return "has a zip64 extra field with an unexpected value before an "
			       "expected one";
		value = get_le64(x->zip64 + at);
		if (!sentinel && value != *fields[i])
			return "has a zip64 extra field that disagrees with its header";
		*fields[i] = value;
		at += 8;
	}
	/* the disk number may follow; there is only disk 0 */
	if (x->zip64_len - at == 4 && get_le32(x->zip64 + at) == 0)
		at += 4;
	return at == x->zip64_len ? NULL : "has a zip64 extra field of a wrong length";
}

/* ---- central directory ---- */

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

/*
 * Sets the kind of an entry from its Unix mode, if it has one, and its name. Whether the mode of an
 * entry that was made by another system counts differs between readers, and so does what the DOS
 * attribute says then.
 */
static const char *find_kind(struct entry *e, const uint8_t *h, bool slash)
{
	unsigned made_by = h[5];
	uint32_t attributes = get_le32(h + 38);
	unsigned mode = attributes >> 16;

	e->executable = (made_by == MADE_BY_UNIX || made_by == MADE_BY_MACOS) && (mode & 0111);
	e->kind = slash ? ENTRY_DIR : ENTRY_FILE;
	/* no reader looks at the DOS attribute where Unix says that it is a regular file */
	if (made_by == MADE_BY_UNIX && S_ISREG(mode))
		attributes &= ~(uint32_t)DOS_DIRECTORY;
	if (!slash && ((attributes & DOS_DIRECTORY) ||
		       (made_by == MADE_BY_AMIGA && (mode & AMIGA_KIND) == AMIGA_DIRECTORY)))
		return "is marked as a directory, but its name does not end in a slash";
	switch (mode & S_IFMT) {
	case 0:
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
		/*
		 * unzip goes by one of the internal attributes too, of which only "text" has a
		 * meaning
		 */
		if (made_by != MADE_BY_UNIX || (get_le16(h + 36) & ~INTERNAL_TEXT))
			return "is a symlink for some readers and a file for others: it is not "
			       "made by Unix, or has unknown attributes";
		e->kind = ENTRY_SYMLINK;
		break;
	default:
		return "is a fifo, device or socket; a carton has files, directories and symlinks";
	}
	if (e->kind == ENTRY_DIR && (e->size != 0 || e->stored > MAX_DIRECTORY_DATA))
		return "is a directory that has data";
	return NULL;
}

/*
 * Some readers take a name without the UTF-8 flag as code page 437 (APPNOTE D.1), unless the entry
 * has the extra field for names in UTF-8.
 */
static const char *check_name(const struct zip_name *name, unsigned flags)
{
	bool known = (flags & FLAG_UTF8) || name->raw == RAW_UNICODE;
	const char *fault = NULL;

	if (name->len || !name->slash)
		fault = path_fault(name->text, name->len);
	if (!fault && !known && ascii_run(name->text, name->len) < name->len)
		return "has a name that is not ASCII, but not the UTF-8 flag";
	return fault;
}

/* Fills `e` from a complete central header. NULL, or what is wrong. */
static const char *parse_central(const uint8_t *h, struct entry *e, struct zip_name *name)
{
	uint64_t *const fields[] = { &e->size, &e->stored, &e->header };
	size_t len = get_le16(h + 28);
	struct zip_extra x;
	const char *fault;

	e->crc = get_le32(h + 16);
	e->has_crc = true;
	e->stored = get_le32(h + 20);
	e->size = get_le32(h + 24);
	e->header = get_le32(h + 42);
	fault = zip_split_extra(h + CENTRAL_SIZE + len, get_le16(h + 30), &x);
	if (!fault)
		fault = zip_find_name(&x, (const char *)h + CENTRAL_SIZE, len, get_le16(h + 8),
				      name);
	if (!fault)
		fault = check_flags(get_le16(h + 8), get_le16(h + 10));
	if (!fault)
		fault = check_name(name, get_le16(h + 8));
	if (!fault)
		fault = zip_apply_zip64(&x, fields, ARRAY_SIZE(fields));
	/* 0xffff: the zip64 extra field ends with the number, which is 0 */
	if (!fault && get_le16(h + 34) != 0 &&
	    !(get_le16(h + 34) == UINT16_MAX && x.zip64_len % 8 == 4))
		fault = "is on another disk; multi-disk archives are not supported";
	if (!fault && h[6] > MAX_VERSION)
		fault = "needs a reader of a later version of the zip format than 6.3";
	if (!fault)
		fault = find_kind(e, h, name->slash);
	if (!fault && get_le16(h + 10) == METHOD_STORED && e->size != e->stored)
		fault = "is Stored, but its two sizes differ";
	if (!fault && e->size > MAX_FILE_SIZE)
		fault = "is larger than the limit of 2^50 bytes";
	if (fault)
		return fault;
	/* the known ones fit */
	e->flags = get_le16(h + 8) & 0xfff;
	e->method = get_le16(h + 10) & 0xff;
	e->name_len = name->len & 0xfff;
	e->raw = name->raw & 3;
	return NULL;
}

/* The central directory is read through a window, which is longer than the longest header. */
#define WINDOW (256 * KIB)

struct window {
	const struct zip *zip;
	uint64_t next; /* the offset in the directory of the next read */
	size_t at, n;  /* the bytes not parsed yet are data[at] to data[n - 1] */
	uint8_t data[WINDOW];
};

/* Reads on, unless there are `n` bytes in the window. 0, or of the source. */
static int window_need(struct window *w, size_t n)
{
	uint64_t left = w->zip->directory_size - w->next;
	size_t more;
	int r;

	if (w->n - w->at >= n)
		return 0;
	w->n -= w->at;
	memmove(w->data, w->data + w->at, w->n);
	w->at = 0;
	more = (size_t)MIN(sizeof(w->data) - w->n, left);
	r = source_pread(w->zip->source, w->data + w->n, more, w->zip->directory_at + w->next);
	if (r == 0) {
		w->n += more;
		w->next += more;
	}
	return r;
}

/* Finds the next header: its length in *ret. */
static int next_header(struct window *w, size_t number, size_t *ret)
{
	int r = window_need(w, CENTRAL_SIZE);
	const uint8_t *h = w->data + w->at;

	if (r < 0)
		return r;
	if (w->n - w->at < CENTRAL_SIZE || get_le32(h) != CENTRAL_SIG)
		return zip_refuse("entry %zu of %" PRIu64 " has no central header", number,
				  w->zip->n_entries);
	*ret = CENTRAL_SIZE + get_le16(h + 28) + get_le16(h + 30) + get_le16(h + 32);
	r = window_need(w, *ret);
	if (r == 0 && w->n - w->at < *ret)
		return zip_refuse("the central header of entry %zu is cut off", number);
	return r;
}

static int parse_directory(struct zip *z, struct window *w)
{
	struct container *c = &z->container;
	size_t faults = 0, whole = 0;

	for (size_t i = 0; i < z->n_entries && faults < MAX_REPORTED; i++, w->at += whole) {
		struct entry *e = &c->entries[i];
		struct zip_name name;
		const char *fault;
		const uint8_t *h;
		int r = next_header(w, i + 1, &whole);

		if (r < 0)
			return r;
		h = w->data + w->at;
		fault = parse_central(h, e, &name);
		e->name = fault ? arena_text(&c->names, (const char *)h + CENTRAL_SIZE,
					     get_le16(h + 28)) :
				  arena_text(&c->names, name.text, name.len);
		if (!e->name)
			return -ENOMEM;
		if (fault) {
			carton_log(CARTON_LOG_ERROR, e->name, "%s", fault);
			faults++;
		}
		c->n_entries = i + 1;
	}
	if (faults)
		return -EBADMSG;
	if (w->next - w->n + w->at != z->directory_size)
		return zip_refuse("%" PRIu64
				  " bytes of the central directory belong to no entry: its "
				  "count of %" PRIu64 " is wrong",
				  z->directory_size - (w->next - w->n + w->at), z->n_entries);
	return 0;
}

int zip_parse_directory(struct zip *z)
{
	struct window *w = malloc(sizeof(*w));
	int r;

	if (!w)
		return -ENOMEM;
	w->zip = z;
	w->next = w->at = w->n = 0;
	r = parse_directory(z, w);
	free(w);
	return r;
}
