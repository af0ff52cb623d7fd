/* SPDX-License-Identifier: Apache-2.0 */
#include "archive/tar.h"

#include <locale.h>
#include <stdlib.h>

#include "archive/libarchive.h"
#include "base/util.h"

#define BLOCK (64 * KIB)
#define TAR_BLOCK 512
/*
 * Limits the headers of one entry. libarchive's map of the holes of a sparse file takes 12 times as
 * much memory, and access control lists take time that is quadratic in their length.
 */
#define MAX_HEADER (192 * KIB)

struct reading {
	const struct tar_scan *s;
	struct archive *a;
	int error;     /* with which the stream failed; or 0 */
	size_t n;      /* entries so far */
	size_t header; /* bytes read since libarchive last returned an entry or data */
	char block[BLOCK];
};

/* ---- reading with libarchive ---- */

static la_ssize_t on_read(struct archive *a, void *ctx, const void **ret_block)
{
	struct reading *rd = ctx;
	ssize_t got = cancel_fired(rd->s->cancel) ? -ECANCELED :
						    stream_read(rd->s->in, rd->block, BLOCK);

	rd->header += got > 0 ? (size_t)got : 0;
	if (rd->header > MAX_HEADER)
		got = log_error(-EBADMSG, rd->s->name,
				"has a header of more than %d KiB, behind %zu entries",
				(int)(MAX_HEADER / KIB), rd->n);
	if (got < 0) {
		rd->error = (int)got;
		la.archive_set_error(a, (int)-got, "cannot read");
		return ARCHIVE_FATAL;
	}
	*ret_block = rd->block;
	return got;
}

/* The errno of libarchive's failure. Logs it if the tar is at fault. */
static int fault(const struct reading *rd)
{
	const char *why = la.archive_error_string(rd->a);

	if (rd->error)
		return rd->error;
	if (la.archive_errno(rd->a) == ENOMEM)
		return -ENOMEM;
	return log_error(-EBADMSG, rd->s->name, "cannot be read as a tar, behind %zu entries: %s",
			 rd->n, why ? why : "it is damaged");
}

static int open_tar(struct reading *rd)
{
	rd->a = la.archive_read_new();
	if (!rd->a || la.archive_read_support_format_tar(rd->a) != ARCHIVE_OK ||
	    la.archive_read_set_read_callback(rd->a, on_read) != ARCHIVE_OK ||
	    la.archive_read_set_callback_data(rd->a, rd) != ARCHIVE_OK)
		return -ENOMEM;
	return la.archive_read_open1(rd->a) == ARCHIVE_OK ? 0 : fault(rd);
}

/* ---- entries ---- */

static int refuse_form(const struct reading *rd, const struct tar_entry *e)
{
	return log_error(-EOPNOTSUPP, e->path,
			 "in %s, is a sparse file, whose bytes are not there as they are; pack it "
			 "without --sparse",
			 rd->s->name);
}

static int next_data(struct reading *rd, const void **ret, size_t *ret_n, la_int64_t *ret_off)
{
	int code = la.archive_read_data_block(rd->a, ret, ret_n, ret_off);

	rd->header = 0;
	return code;
}

/* Skips the data of an entry that is no file; they do not count as a header. */
static int skip_data(struct reading *rd)
{
	const void *data;
	la_int64_t off;
	size_t n;
	int code;

	while ((code = next_data(rd, &data, &n, &off)) == ARCHIVE_OK)
		;
	return code == ARCHIVE_EOF ? 0 : fault(rd);
}

/* Hashes the data of a file, which must be `size` bytes from e->off on, without a hole. */
static int read_data(struct reading *rd, struct tar_entry *e, uint64_t size, struct hasher *h)
{
	uint64_t done = 0, end;
	const void *data;
	la_int64_t off;
	size_t n;
	int r;

	while ((r = next_data(rd, &data, &n, &off)) == ARCHIVE_OK) {
		if ((uint64_t)off != done)
			return refuse_form(rd, e);
		done += n;
		r = hasher_feed(h, data, n);
		if (r < 0)
			return r;
	}
	if (r != ARCHIVE_EOF)
		return fault(rd);
	end = (uint64_t)la.archive_filter_bytes(rd->a, 0);
	if (done != size || end < e->off + size || end - (e->off + size) >= TAR_BLOCK)
		return refuse_form(rd, e);
	return 0;
}

static int read_file(struct reading *rd, struct tar_entry *e, uint64_t size)
{
	struct hasher h;
	int r = hasher_begin(&h, size >= MIN_SEALED ? rd->s->tagger : NULL, true);

	if (r < 0)
		return r;
	r = read_data(rd, e, size, &h);
	if (r == 0)
		return hasher_end(&h, &e->in);
	hasher_abort(&h);
	return r;
}

static enum tar_kind kind_of(struct archive_entry *entry, const struct tar_entry *e)
{
	switch (la.archive_entry_filetype(entry)) {
	case AE_IFREG:
		return TAR_FILE;
	case AE_IFDIR:
		return TAR_DIR;
	case AE_IFLNK:
		return e->target ? TAR_SYMLINK : TAR_OTHER;
	default:
		return TAR_OTHER;
	}
}

static int take_entry(struct reading *rd, struct archive_entry *entry)
{
	struct tar_entry e = { .path = la.archive_entry_pathname(entry),
			       .target = la.archive_entry_hardlink(entry) };
	la_int64_t size = la.archive_entry_size(entry);
	int r = 0;

	if (++rd->n > MAX_ENTRIES)
		return log_error(-EFBIG, rd->s->name, "has more than %d entries", MAX_ENTRIES);
	if (!e.path || size < 0)
		return log_error(-EBADMSG, rd->s->name, "has an entry without a %s, the %zuth",
				 e.path ? "size" : "name", rd->n);
	if (e.target) {
		e.kind = TAR_HARDLINK;
	} else {
		e.target = la.archive_entry_symlink(entry);
		e.kind = kind_of(entry, &e);
	}
	e.executable = la.archive_entry_perm(entry) & 0100;
	e.off = (uint64_t)la.archive_filter_bytes(rd->a, 0);
	if (e.kind == TAR_FILE)
		r = la.archive_entry_sparse_count(entry) > 0 ? refuse_form(rd, &e) :
							       read_file(rd, &e, (uint64_t)size);
	else
		r = skip_data(rd);
	if (r == 0)
		r = rd->s->entry(rd->s->ctx, &e);
	free(e.in.tags);
	return r;
}

/* Reads the bytes after the end of the tar: the stream's owner hashes all of it. */
static int read_rest(struct reading *rd)
{
	ssize_t got;

	while ((got = stream_read(rd->s->in, rd->block, BLOCK)) > 0)
		if (cancel_fired(rd->s->cancel))
			return -ECANCELED;
	return (int)got;
}

static int read_all(struct reading *rd)
{
	struct archive_entry *entry;
	int r = open_tar(rd), code;

	while (r == 0) {
		code = la.archive_read_next_header(rd->a, &entry);
		rd->header = 0;
		if (code == ARCHIVE_EOF)
			return read_rest(rd);
		/* libarchive warns of a name that is not ASCII; its bytes are used unchanged */
		r = code == ARCHIVE_OK || code == ARCHIVE_WARN ? take_entry(rd, entry) : fault(rd);
	}
	return r;
}

void tar_prepare(void)
{
	libarchive_load();
}

int tar_scan(const struct tar_scan *s)
{
	/*
	 * libarchive converts names to the character set of the locale. In a UTF-8 locale it would
	 * compose characters, and two names could become one. In the C locale it converts nothing.
	 */
	locale_t plain = newlocale(LC_CTYPE_MASK, "C", (locale_t)0), before;
	struct reading *rd = calloc(1, sizeof(*rd));
	int r = libarchive_load();

	if (r == 0 && (!rd || !plain))
		r = -ENOMEM;
	if (r == 0) {
		rd->s = s;
		before = uselocale(plain);
		r = read_all(rd);
		if (rd->a)
			la.archive_read_free(rd->a);
		uselocale(before);
	}
	if (plain)
		freelocale(plain);
	free(rd);
	return r;
}
