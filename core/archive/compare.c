/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares the entries with those that libarchive finds in the headers of the same zip file. zip.h
 * refuses ambiguous archives; this finds one that it has missed. A mount does not need it: no name
 * or byte from libarchive is used.
 */
#include "archive/internal.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>

#include "archive/libarchive.h"

void container_prepare_compare(void)
{
	libarchive_load();
}

#define BLOCK (16 * KIB) /* libarchive reads local headers one by one */

struct compare {
	const struct container *c;
	struct source *source;
	uint64_t off;	   /* of the next read */
	bool *listed;	   /* of each entry of c: libarchive has it */
	size_t n_unknown;  /* entries with a non-ASCII name that match none of c */
	uint64_t unknown;  /* sum of the shape() of these entries */
	size_t n_problems; /* logged */
	char block[BLOCK];
};

/* ---- the archive, as libarchive reads it ---- */

static la_ssize_t on_read(struct archive *a, void *ctx, const void **ret_block)
{
	struct compare *k = ctx;
	size_t n = (size_t)MIN(k->source->size - k->off, (uint64_t)BLOCK);
	int r = source_pread(k->source, k->block, n, k->off);

	if (r < 0) {
		la.archive_set_error(a, -r, "cannot read");
		return ARCHIVE_FATAL;
	}
	k->off += n;
	*ret_block = k->block;
	return (la_ssize_t)n;
}

static la_int64_t on_skip(struct archive *a, void *ctx, la_int64_t n)
{
	struct compare *k = ctx;
	uint64_t step = MIN(k->source->size - k->off, (uint64_t)n);

	(void)a;
	k->off += step;
	return (la_int64_t)step;
}

static la_int64_t on_seek(struct archive *a, void *ctx, la_int64_t off, int whence)
{
	struct compare *k = ctx;
	int64_t from = whence == SEEK_SET ?
			       0 :
			       (int64_t)(whence == SEEK_END ? k->source->size : k->off);

	if (__builtin_add_overflow(from, off, &off) || off < 0 || (uint64_t)off > k->source->size) {
		la.archive_set_error(a, EINVAL, "cannot seek");
		return ARCHIVE_FATAL;
	}
	k->off = (uint64_t)off;
	return off;
}

static struct archive *open_archive(struct compare *k)
{
	struct archive *a = la.archive_read_new();

	if (a && la.archive_read_support_format_zip_seekable(a) == ARCHIVE_OK &&
	    la.archive_read_set_read_callback(a, on_read) == ARCHIVE_OK &&
	    la.archive_read_set_skip_callback(a, on_skip) == ARCHIVE_OK &&
	    la.archive_read_set_seek_callback(a, on_seek) == ARCHIVE_OK &&
	    la.archive_read_set_callback_data(a, k) == ARCHIVE_OK &&
	    la.archive_read_open1(a) == ARCHIVE_OK)
		return a;
	if (a)
		la.archive_read_free(a);
	return NULL;
}

/* ---- comparison ---- */

static void differs(struct compare *k, const char *name, const char *what)
{
	if (k->n_problems++ < MAX_REPORTED)
		carton_log(CARTON_LOG_ERROR, name, "libarchive reads the zip differently: %s",
			   what);
}

static enum entry_kind kind_of(struct archive_entry *entry)
{
	unsigned type = la.archive_entry_filetype(entry);

	return type == AE_IFDIR ? ENTRY_DIR : type == AE_IFLNK ? ENTRY_SYMLINK : ENTRY_FILE;
}

/* The size of a file; 0 for another kind of entry. */
static uint64_t size_of(struct archive_entry *entry)
{
	return kind_of(entry) == ENTRY_FILE && la.archive_entry_size_is_set(entry) ?
		       (uint64_t)la.archive_entry_size(entry) :
		       0;
}

/* A hash of a kind and a size. Two lists of entries are compared by the sums of their hashes. */
static uint64_t shape(enum entry_kind kind, uint64_t size)
{
	uint64_t x = (size << 2 | (uint64_t)kind) * 0x9e3779b97f4a7c15;

	x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9;
	return x ^ x >> 32;
}

static void compare_entry(struct compare *k, struct archive_entry *entry)
{
	const char *path = la.archive_entry_pathname_utf8(entry);
	bool dot = path && strncmp(path, "./", 2) == 0;
	char name[MAX_PATH_LEN + 2];
	size_t n = (size_t)snprintf(name, sizeof(name), "%s", path ? path + 2 * dot : "");
	const struct entry *e;
	bool *listed, size_differs;

	if (n && n < sizeof(name) && name[n - 1] == '/')
		name[--n] = '\0';
	if (path && n == 0 && kind_of(entry) == ENTRY_DIR)
		return; /* the archive's own directory */
	e = container_find(k->c, name);
	listed = e ? &k->listed[e - k->c->entries] : NULL;
	size_differs = e && e->kind == ENTRY_FILE && la.archive_entry_size_is_set(entry) &&
		       size_of(entry) != e->size;
	if (e && (!*listed || e->kind == ENTRY_DIR) && kind_of(entry) == e->kind && !size_differs) {
		*listed = true;
	} else if (!path || !is_ascii(name)) {
		k->n_unknown++;
		k->unknown += shape(kind_of(entry), size_of(entry));
	} else if (!e) {
		differs(k, name, "only libarchive has this entry");
	} else if (*listed) {
		differs(k, name, "libarchive has two entries of this name");
	} else {
		*listed = true;
		differs(k, name, size_differs ? "another size" : "another kind of entry");
	}
}

/*
 * libarchive converts names to NFC, so two entries with non-ASCII names may get the same name, or
 * one the name of another. Such entries are compared as a whole: their number, kinds and sizes.
 */
static void compare_missing(struct compare *k)
{
	for (size_t i = 0; i < k->c->n_entries; i++) {
		const struct entry *e = &k->c->entries[i];

		if (k->listed[i])
			continue;
		if (k->n_unknown && !is_ascii(e->name)) {
			k->n_unknown--;
			k->unknown -= shape(e->kind, e->kind == ENTRY_FILE ? e->size : 0);
		} else {
			differs(k, e->name, "libarchive does not have this entry");
		}
	}
	if (k->n_unknown || k->unknown)
		differs(k, NULL, "libarchive has other entries whose names are not ASCII");
}

/*
 * libarchive converts names to the character set of the locale. Without one for UTF-8, as in a
 * sandbox that cannot read locale files, names that are not ASCII are only counted.
 */
static int compare_all(struct compare *k, struct archive *a)
{
	locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", NULL), before = (locale_t)0;
	struct archive_entry *entry;
	int r;

	if (utf8)
		before = uselocale(utf8);
	while ((r = la.archive_read_next_header(a, &entry)) == ARCHIVE_OK || r == ARCHIVE_WARN)
		compare_entry(k, entry);
	if (utf8) {
		uselocale(before);
		freelocale(utf8);
	}
	if (r == ARCHIVE_EOF)
		compare_missing(k);
	return la.archive_errno(a) == ENOMEM ? -ENOMEM : 0;
}

ssize_t compare_with_libarchive(const struct container *c, struct source *source)
{
	struct compare *k;
	struct archive *a;
	int r = libarchive_load();

	if (r < 0)
		return r;
	r = -ENOMEM;
	k = malloc(sizeof(*k));
	if (!k)
		return -ENOMEM;
	*k = (struct compare){ .c = c, .source = source };
	k->listed = calloc(c->n_entries + 1, sizeof(*k->listed));
	a = k->listed ? open_archive(k) : NULL;
	if (k->listed)
		r = a ? compare_all(k, a) : 0;
	if (a)
		la.archive_read_free(a);
	if (r == 0)
		r = (int)k->n_problems;
	free(k->listed);
	free(k);
	return r;
}
