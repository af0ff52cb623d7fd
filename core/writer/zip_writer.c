/* SPDX-License-Identifier: Apache-2.0 */
#include "writer/zip_writer.h"

#include <stdlib.h>
#include <sys/stat.h>

#include "archive/decode.h"
#include "archive/zip.h"
#include "base/digest.h"
#include "base/util.h"

#define MADE_BY (3 << 8 | 63) /* Unix, APPNOTE 6.3 */
#define DATE_1980 (1 << 5 | 1)

#define EXTRA_ALIGN 0xd935
#define EXTRA_HEADER 4
#define ALIGN_LEAST (EXTRA_HEADER + 2) /* with the alignment as a number */
#define LOCAL_ZIP64 (EXTRA_HEADER + 16)
#define MAX_EXTRA 65535

/* ---- places ---- */

static void place(struct zip_writer *w, struct zip_entry *e, uint64_t stored)
{
	/*
	 * The sentinel itself cannot be a size. Behind 4 GiB sizes are wide too: older readers of
	 * the reference want more in the zip64 field than the place of the header.
	 */
	e->wide = e->size >= UINT32_MAX || stored >= UINT32_MAX || w->at >= UINT32_MAX;
	e->stored = stored;
	e->header = w->at;
	e->data = w->at + LOCAL_SIZE + strlen(e->name) + (e->wide ? LOCAL_ZIP64 : 0);
}

void zip_writer_place(struct zip_writer *w, struct zip_entry *e, uint64_t stored)
{
	uint64_t pad;

	place(w, e, stored);
	if (e->method == METHOD_STORED && e->size >= w->align) {
		pad = -e->data & (w->align - 1);
		while (pad && pad < ALIGN_LEAST)
			pad += w->align;
		e->data += pad;
	}
	w->at = e->data + stored;
}

/* Is there a signature of an end record in the bytes before w->at that a reader may search? */
static int find_end(const struct zip_writer *w, bool *ret)
{
	static const char sig[] = { 'P', 'K', 5, 6 };
	size_t n = (size_t)MIN(w->at, (uint64_t)ZIP_END_SEARCH);
	char *tail = malloc(n + 1);
	int r = tail ? pread_full(w->fd, tail, n, w->at - n) : -ENOMEM;

	if (r == 0)
		*ret = memmem(tail, n, sig, sizeof(sig)) != NULL;
	free(tail);
	return r;
}

int zip_writer_place_last(struct zip_writer *w, struct zip_entry *e)
{
	bool found = false;
	int r = find_end(w, &found);

	if (r < 0)
		return r;
	place(w, e, e->size);
	/*
	 * with this room, the entry's central header and the end record, the signature is farther
	 * than ZIP_END_SEARCH from the end
	 */
	if (found)
		e->data = e->header + LOCAL_SIZE + strlen(e->name) + MAX_EXTRA;
	w->at = e->data + e->stored;
	return 0;
}

/* ---- headers ---- */

static unsigned version_needed(const struct zip_entry *e, bool zip64)
{
	return e->method == METHOD_ZSTD ? 63 : zip64 ? 45 : 20;
}

/* The fields from version to the sizes, which both headers have. */
static void put_common(uint8_t *h, const struct zip_entry *e, bool zip64)
{
	put_le16(h, (uint16_t)version_needed(e, zip64));
	put_le16(h + 2, is_ascii(e->name) ? 0 : FLAG_UTF8);
	put_le16(h + 4, e->method);
	put_le16(h + 6, 0);
	put_le16(h + 8, DATE_1980);
	put_le32(h + 10, e->crc);
	put_le32(h + 14, e->wide ? UINT32_MAX : (uint32_t)e->stored);
	put_le32(h + 18, e->wide ? UINT32_MAX : (uint32_t)e->size);
	put_le16(h + 22, (uint16_t)strlen(e->name));
}

int zip_writer_header(const struct zip_writer *w, const struct zip_entry *e)
{
	size_t len = strlen(e->name), n = (size_t)(e->data - e->header), pad;
	uint8_t *h = calloc(1, n), *x;
	int r;

	if (!h)
		return -ENOMEM;
	put_le32(h, LOCAL_SIG);
	put_common(h + 4, e, e->wide);
	put_le16(h + 28, (uint16_t)(n - LOCAL_SIZE - len));
	memcpy(h + LOCAL_SIZE, e->name, len);
	x = h + LOCAL_SIZE + len;
	if (e->wide) {
		put_le16(x, EXTRA_ZIP64);
		put_le16(x + 2, LOCAL_ZIP64 - EXTRA_HEADER);
		put_le64(x + 4, e->size);
		put_le64(x + 12, e->stored);
		x += LOCAL_ZIP64;
	}
	pad = (size_t)(h + n - x);
	if (pad) {
		put_le16(x, EXTRA_ALIGN);
		put_le16(x + 2, (uint16_t)(pad - EXTRA_HEADER));
		put_le16(x + 4, (uint16_t)w->align);
	}
	r = pwrite_full(w->fd, h, n, e->header);
	free(h);
	return r;
}

int zip_writer_literal(struct zip_writer *w, struct zip_entry *e, const void *data, uint64_t size,
		       bool last)
{
	int r = 0;

	e->size = size;
	e->method = METHOD_STORED;
	e->crc = crc32_update(0, data, size);
	if (last)
		r = zip_writer_place_last(w, e);
	else
		zip_writer_place(w, e, size);
	if (r == 0)
		r = pwrite_full(w->fd, data, size, e->data);
	return r == 0 ? zip_writer_header(w, e) : r;
}

static int add_central(struct buf *b, const struct zip_entry *e)
{
	uint8_t h[CENTRAL_SIZE + EXTRA_HEADER + 24] = { 0 }, *x = h + CENTRAL_SIZE + EXTRA_HEADER;
	bool far = e->header >= UINT32_MAX;
	size_t extra = 0;
	uint32_t mode = e->symlink ? S_IFLNK | 0777 : S_IFREG | (e->executable ? 0755 : 0644);

	put_le32(h, CENTRAL_SIG);
	put_le16(h + 4, MADE_BY);
	put_common(h + 6, e, e->wide || far);
	put_le32(h + 38, mode << 16);
	put_le32(h + 42, far ? UINT32_MAX : (uint32_t)e->header);
	if (e->wide) {
		put_le64(x, e->size);
		put_le64(x + 8, e->stored);
		extra = 16;
	}
	if (far) {
		put_le64(x + extra, e->header);
		extra += 8;
	}
	if (extra) {
		put_le16(h + CENTRAL_SIZE, EXTRA_ZIP64);
		put_le16(h + CENTRAL_SIZE + 2, (uint16_t)extra);
		extra += EXTRA_HEADER;
		put_le16(h + 30, (uint16_t)extra);
	}
	buf_add(b, h, CENTRAL_SIZE);
	buf_adds(b, e->name);
	return buf_add(b, h + CENTRAL_SIZE, extra);
}

/* The end of a directory that began at `start`: a zip64 record and locator if needed, EOCD. */
static int add_end(struct buf *b, uint64_t start, uint64_t end, uint64_t n)
{
	uint8_t record[RECORD_SIZE + LOCATOR_SIZE] = { 0 }, eocd[EOCD_SIZE] = { 0 };
	uint64_t size = end - start;

	if (n >= UINT16_MAX || size >= UINT32_MAX || start >= UINT32_MAX) {
		put_le32(record, RECORD_SIG);
		put_le64(record + 4, RECORD_SIZE - 12);
		put_le16(record + 12, MADE_BY);
		put_le16(record + 14, 45);
		put_le64(record + 24, n);
		put_le64(record + 32, n);
		put_le64(record + 40, size);
		put_le64(record + 48, start);
		put_le32(record + RECORD_SIZE, LOCATOR_SIG);
		put_le64(record + RECORD_SIZE + 8, end);
		put_le32(record + RECORD_SIZE + 16, 1);
		buf_add(b, record, sizeof(record));
	}
	put_le32(eocd, EOCD_SIG);
	put_le16(eocd + 8, (uint16_t)MIN(n, UINT16_MAX));
	put_le16(eocd + 10, (uint16_t)MIN(n, UINT16_MAX));
	put_le32(eocd + 12, (uint32_t)MIN(size, UINT32_MAX));
	put_le32(eocd + 16, (uint32_t)MIN(start, UINT32_MAX));
	return buf_add(b, eocd, sizeof(eocd));
}

static int flush(struct zip_writer *w, struct buf *b)
{
	int r = pwrite_full(w->fd, b->data, b->len, w->at);

	w->at += b->len;
	b->len = 0;
	return r;
}

int zip_writer_end(struct zip_writer *w, const struct zip_entry *const *entries, size_t n)
{
	struct buf b = buf_init(2 * MIB);
	uint64_t start = w->at;
	int r = 0;

	for (size_t i = 0; r == 0 && i < n; i++) {
		r = add_central(&b, entries[i]);
		if (r == 0 && b.len >= MIB)
			r = flush(w, &b);
	}
	if (r == 0)
		r = add_end(&b, start, w->at + b.len, n);
	if (r == 0)
		r = flush(w, &b);
	buf_finish(&b);
	return r;
}
