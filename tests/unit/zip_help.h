/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests of containers share: zips made in memory, whose every field a test can then
 * overwrite, sources in memory, and a log that remembers.
 */
#ifndef ZIP_HELP_H
#define ZIP_HELP_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>
/* after those it needs */
#include <cmocka.h>

#include "archive/decode.h"
#include "base/digest.h"
#include "base/hasher.h"
#include "base/source.h"
#include "base/util.h"
#include "format/chunks.h"
#include "../must.h"

/* ---- a source in memory ---- */

struct mem_source {
	struct source source;
	const char *data; /* the test's */
	size_t n;	  /* of data; the source may say that it is larger: zeros follow */
	atomic_uint n_reads;
	atomic_int fail; /* what each read gives; 0: the bytes */
};

struct mem_stream {
	struct stream stream;
	struct source *source;
	uint64_t off, left;
	size_t most; /* bytes given at once */
};

static inline int mem_pread(struct source *s, void *ret_buf, size_t n, uint64_t off)
{
	struct mem_source *m = container_of(s, struct mem_source, source);
	size_t have = off < m->n ? MIN(n, m->n - (size_t)off) : 0;

	m->n_reads++;
	if (m->fail)
		return m->fail;
	if (off > s->size || n > s->size - off)
		return -EIO;
	if (have)
		memcpy(ret_buf, m->data + off, have);
	memset((char *)ret_buf + have, 0, n - have);
	return 0;
}

static inline ssize_t mem_stream_read(struct stream *s, void *ret_buf, size_t n)
{
	struct mem_stream *m = container_of(s, struct mem_stream, stream);
	int r;

	n = (size_t)MIN(MIN(n, m->most), m->left);
	r = n ? source_pread(m->source, ret_buf, n, m->off) : 0;
	if (r < 0)
		return r;
	m->off += n;
	m->left -= n;
	return (ssize_t)n;
}

static inline void mem_stream_close(struct stream *s)
{
	struct mem_stream *m = container_of(s, struct mem_stream, stream);

	source_unref(m->source);
	free(m);
}

static inline int mem_stream_open(struct source *s, uint64_t off, uint64_t n, struct stream **ret)
{
	static const struct stream_ops ops = {
		.read = mem_stream_read,
		.close = mem_stream_close,
	};
	struct mem_stream *m = must(calloc(1, sizeof(*m)));

	if (!m)
		return -ENOMEM;
	*m = (struct mem_stream){ { &ops }, source_ref(s), off, n, SIZE_MAX };
	*ret = &m->stream;
	return 0;
}

static inline void mem_free(struct source *s)
{
	free(container_of(s, struct mem_source, source));
}

/* The bytes stay the caller's, and must outlive it. */
static inline struct mem_source *mem_source(const void *data, size_t n)
{
	static const struct source_ops ops = {
		.pread = mem_pread,
		.stream = mem_stream_open,
		.free = mem_free,
	};
	struct mem_source *m = must(calloc(1, sizeof(*m)));

	m->source.ops = &ops;
	m->source.refs = 1;
	m->source.size = n;
	m->source.fd = -1;
	m->data = data;
	m->n = n;
	return m;
}

/* A stream over bytes of the caller's that gives at most `most` of them at once. */
static inline struct stream *mem_stream(const void *data, size_t n, size_t most)
{
	struct mem_source *m = mem_source(data, n);
	struct stream *s;

	assert_int_equal(source_stream(&m->source, 0, n, &s), 0);
	source_unref(&m->source);
	container_of(s, struct mem_stream, stream)->most = most;
	return s;
}

/* ---- a log that remembers ---- */

struct log_seen {
	unsigned n;
	char subject[256]; /* of the last one */
	char message[512];
};

static inline void log_note(void *ctx, enum carton_log_level level, const char *subject,
			    const char *message)
{
	struct log_seen *seen = ctx;

	(void)level;
	snprintf(seen->subject, sizeof(seen->subject), "%s", subject ? subject : "");
	snprintf(seen->message, sizeof(seen->message), "%s", message);
	/* last, for who waits for a line of another thread */
	__atomic_fetch_add(&seen->n, 1, __ATOMIC_RELEASE);
}

/* Begins to watch the log, in one place that outlives a failing test. */
static inline struct log_seen *log_watch(void)
{
	static struct log_seen seen;

	seen = (struct log_seen){ 0 };
	carton_log_set(log_note, &seen);
	return &seen;
}

static inline void assert_says(const struct log_seen *seen, const char *text)
{
	if (!strstr(seen->message, text))
		fail_msg("the log says \"%s\", not \"%s\"", seen->message, text);
}

/* ---- bytes ---- */

/* Bytes that no method makes much smaller, the same for the same seed. */
static inline char *make_bytes(size_t n, uint64_t seed)
{
	char *data = must(malloc(n + 1));

	for (size_t i = 0; i < n; i++) {
		seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
		data[i] = (char)(seed >> 56);
	}
	return data;
}

static inline void sha256_of(const void *data, size_t n, uint8_t ret_hash[SHA256_SIZE])
{
	assert_int_equal(sha256_mem(data, n, ret_hash), 0);
}

/* What an index says of these bytes; or, with `sha256`, of a file of that hash, whatever it is. */
static inline struct chunks_made chunks_of(const void *data, size_t n, uint64_t chunk_size,
					   const uint8_t *sha256)
{
	struct ingested found;
	struct hasher h;

	assert_int_equal(hasher_begin(&h, NULL, true), 0);
	hasher_keep_states(&h, chunk_size);
	assert_int_equal(hasher_feed(&h, data, n), 0);
	assert_int_equal(hasher_end(&h, &found), 0);
	if (sha256 && n)
		memcpy(found.states[(n - 1) / chunk_size], sha256, SHA256_SIZE);
	return (struct chunks_made){ n, chunk_size, found.states };
}

/* The bytes as a method stores them, appended to `out`. */
static inline void pack(struct buf *out, unsigned method, const void *data, size_t n)
{
	size_t room = ZSTD_compressBound(n) + 1024, got = 0;

	if (method != METHOD_DEFLATE && method != METHOD_ZSTD) {
		assert_int_equal(buf_add(out, data, n), 0);
		return;
	}
	assert_int_equal(buf_reserve(out, room), 0);
	if (method == METHOD_ZSTD) {
		got = ZSTD_compress(out->data + out->len, room, data, n, 1);
		assert_false(ZSTD_isError(got));
	} else {
		z_stream z = { .next_in = (Bytef *)(uintptr_t)data,
			       .avail_in = (uInt)n,
			       .next_out = (Bytef *)out->data + out->len,
			       .avail_out = (uInt)room };

		assert_int_equal(deflateInit2(&z, 1, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY), Z_OK);
		assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
		got = room - z.avail_out;
		deflateEnd(&z);
	}
	out->len += got;
	out->data[out->len] = '\0';
}

/* ---- zips ---- */

#define ZIP_FILES 64

/* One entry. All zero but its name: an empty Stored file. */
struct zip_file {
	const char *name;
	const void *data;
	size_t n;
	unsigned method;
	unsigned mode;	     /* st_mode; 0: made by DOS, with none */
	unsigned descriptor; /* bytes of its data descriptor: 12, 16, 20, 24 */
	bool zip64;	     /* sizes (and the offset) in a zip64 extra field */
	const void *extra;   /* more extra fields, in both headers */
	size_t extra_len;
};

struct zip_end {
	bool zip64;
	const char *comment;
};

/* The archive, and where its parts begin in it. */
struct zip_made {
	struct buf out;
	size_t local[ZIP_FILES], data[ZIP_FILES], central[ZIP_FILES];
	size_t directory, record, locator, eocd;
};

static inline void zip_put(struct buf *b, uint64_t v, size_t width)
{
	uint8_t le[8];

	put_le64(le, v);
	assert_int_equal(buf_add(b, le, width), 0);
}

static inline void zip_sizes(struct buf *b, const struct zip_file *f, uint32_t crc, size_t stored)
{
	bool late = f->descriptor;

	zip_put(b, late ? 0 : crc, 4);
	zip_put(b, f->zip64 ? UINT32_MAX : late ? 0 : stored, 4);
	zip_put(b, f->zip64 ? UINT32_MAX : late ? 0 : f->n, 4);
}

static inline void zip_extra(struct buf *b, const struct zip_file *f, size_t stored, size_t at,
			     bool central)
{
	if (f->zip64) {
		zip_put(b, 1, 2);
		zip_put(b, central ? 24 : 16, 2);
		zip_put(b, f->descriptor && !central ? 0 : f->n, 8);
		zip_put(b, f->descriptor && !central ? 0 : stored, 8);
		if (central)
			zip_put(b, at, 8);
	}
	assert_int_equal(buf_add(b, f->extra, f->extra_len), 0);
}

static inline void zip_local(struct zip_made *z, size_t i, const struct zip_file *f,
			     size_t *ret_stored, uint32_t *ret_crc)
{
	struct buf packed = buf_init(SIZE_MAX / 2), *b = &z->out;
	uint32_t crc = crc32_update(0, f->data, f->n);

	pack(&packed, f->method, f->data ? f->data : "", f->n);
	z->local[i] = b->len;
	zip_put(b, 0x04034b50, 4);
	zip_put(b, 45, 2);
	zip_put(b, f->descriptor ? 8 : 0, 2);
	zip_put(b, f->method, 2);
	zip_put(b, 0, 4);
	zip_sizes(b, f, crc, packed.len);
	zip_put(b, strlen(f->name), 2);
	zip_put(b, f->extra_len + (f->zip64 ? 20 : 0), 2);
	assert_int_equal(buf_adds(b, f->name), 0);
	zip_extra(b, f, packed.len, 0, false);
	z->data[i] = b->len;
	assert_int_equal(buf_add(b, packed.data, packed.len), 0);
	if (f->descriptor == 16 || f->descriptor == 24)
		zip_put(b, 0x08074b50, 4);
	if (f->descriptor) {
		zip_put(b, crc, 4);
		zip_put(b, packed.len, f->descriptor >= 20 ? 8 : 4);
		zip_put(b, f->n, f->descriptor >= 20 ? 8 : 4);
	}
	*ret_stored = packed.len;
	*ret_crc = crc;
	buf_finish(&packed);
}

static inline void zip_central(struct zip_made *z, size_t i, const struct zip_file *f,
			       size_t stored, uint32_t crc)
{
	struct buf *b = &z->out;
	struct zip_file whole = *f;

	whole.descriptor = 0;
	z->central[i] = b->len;
	zip_put(b, 0x02014b50, 4);
	zip_put(b, f->mode ? 3 << 8 | 45 : 45, 2);
	zip_put(b, 45, 2);
	zip_put(b, f->descriptor ? 8 : 0, 2);
	zip_put(b, f->method, 2);
	zip_put(b, 0, 4);
	zip_sizes(b, &whole, crc, stored);
	zip_put(b, strlen(f->name), 2);
	zip_put(b, f->extra_len + (f->zip64 ? 28 : 0), 2);
	zip_put(b, 0, 2); /* comment */
	zip_put(b, 0, 4); /* disk, internal attributes */
	zip_put(b, (uint64_t)f->mode << 16, 4);
	zip_put(b, f->zip64 ? UINT32_MAX : z->local[i], 4);
	assert_int_equal(buf_adds(b, f->name), 0);
	zip_extra(b, f, stored, z->local[i], true);
}

static inline void zip_finish(struct zip_made *z, size_t n, const struct zip_end *end)
{
	size_t size = z->out.len - z->directory, len = end->comment ? strlen(end->comment) : 0;
	struct buf *b = &z->out;

	if (end->zip64) {
		z->record = b->len;
		zip_put(b, 0x06064b50, 4);
		zip_put(b, 44, 8);
		zip_put(b, 45 << 16 | 45, 4);
		zip_put(b, 0, 8);
		zip_put(b, n, 8);
		zip_put(b, n, 8);
		zip_put(b, size, 8);
		zip_put(b, z->directory, 8);
		z->locator = b->len;
		zip_put(b, 0x07064b50, 4);
		zip_put(b, 0, 4);
		zip_put(b, z->record, 8);
		zip_put(b, 1, 4);
	}
	z->eocd = b->len;
	zip_put(b, 0x06054b50, 4);
	zip_put(b, 0, 4);
	zip_put(b, end->zip64 ? UINT16_MAX : n, 2);
	zip_put(b, end->zip64 ? UINT16_MAX : n, 2);
	zip_put(b, end->zip64 ? UINT32_MAX : size, 4);
	zip_put(b, end->zip64 ? UINT32_MAX : z->directory, 4);
	zip_put(b, len, 2);
	assert_int_equal(buf_add(b, end->comment, len), 0);
}

/* Free it with buf_finish(&z.out). */
static inline struct zip_made zip_make(const struct zip_file *files, size_t n, struct zip_end end)
{
	struct zip_made z = { .out = buf_init(SIZE_MAX / 2) };
	size_t stored[ZIP_FILES];
	uint32_t crc[ZIP_FILES];

	assert_true(n <= ZIP_FILES);
	for (size_t i = 0; i < n; i++)
		zip_local(&z, i, &files[i], &stored[i], &crc[i]);
	z.directory = z.out.len;
	for (size_t i = 0; i < n; i++)
		zip_central(&z, i, &files[i], stored[i], crc[i]);
	zip_finish(&z, n, &end);
	return z;
}

#endif
