/* SPDX-License-Identifier: Apache-2.0 */
#include "fetch/snapshot.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/limits.h"
#include "base/util.h"

#define MAGIC "cfsnap01"
#define SIZE_AT 8
#define MTIME_AT 16
#define HEADER 24
#define READ_HEADER 16

/* ---- recording ---- */

struct recorder {
	struct source source;
	struct source *inner;
	bool recording;
	struct buf text; /* the snapshot so far; with no data it is given up */
};

static void give_up(struct recorder *r)
{
	buf_free(&r->text);
	r->recording = false;
}

static void record(struct recorder *r, const void *data, size_t n, uint64_t off)
{
	uint8_t head[READ_HEADER];

	put_le64(head, off);
	put_le64(head + 8, n);
	if (buf_add(&r->text, head, sizeof(head)) < 0 || buf_add(&r->text, data, n) < 0)
		give_up(r);
}

static int recorder_pread(struct source *s, void *ret_buf, size_t n, uint64_t off)
{
	struct recorder *r = container_of(s, struct recorder, source);
	int result = source_pread(r->inner, ret_buf, n, off);

	if (result == 0 && r->recording)
		record(r, ret_buf, n, off);
	return result;
}

static int recorder_stream(struct source *s, uint64_t off, uint64_t n, struct stream **ret)
{
	struct recorder *r = container_of(s, struct recorder, source);

	return r->recording ? source_part(s, off, n, ret) : source_stream(r->inner, off, n, ret);
}

static int recorder_prefetch(struct source *s, uint64_t off, uint64_t n, uint64_t before)
{
	return source_prefetch(container_of(s, struct recorder, source)->inner, off, n, before);
}

static void recorder_free(struct source *s)
{
	struct recorder *r = container_of(s, struct recorder, source);

	give_up(r);
	source_unref(r->inner);
	free(r);
}

static const struct source_ops recorder_ops = { recorder_pread, recorder_stream, recorder_free,
						recorder_prefetch };

int snapshot_record(struct source *inner, int64_t mtime, struct source **ret)
{
	struct recorder *r = calloc(1, sizeof(*r));
	uint8_t head[HEADER] = MAGIC;

	if (!r)
		return -ENOMEM;
	r->source = *inner;
	r->source.ops = &recorder_ops;
	r->source.refs = 1;
	r->inner = source_ref(inner);
	r->recording = true;
	r->text = buf_init(MAX_SNAPSHOT);
	put_le64(head + SIZE_AT, inner->size);
	put_le64(head + MTIME_AT, (uint64_t)mtime);
	if (buf_add(&r->text, head, sizeof(head)) < 0)
		give_up(r);
	*ret = &r->source;
	return 0;
}

/* ---- keeping ---- */

/* What the snapshot of a URL is called among the notes. */
static int make_key(const char *url, uint8_t ret_key[SHA256_SIZE])
{
	struct buf name = buf_init(SIZE_MAX);
	int r = buf_addf(&name, "snapshot %s", url);

	if (r == 0)
		r = sha256_mem(name.data, name.len, ret_key);
	buf_free(&name);
	return r;
}

static int store(struct cache *cache, const uint8_t sha256[SHA256_SIZE], const struct buf *text)
{
	struct cache_fill *fill;
	int fd, r = cache_begin(cache, sha256, &fill);

	if (r < 0)
		return r == -EEXIST ? 0 : r;
	r = cache_fill_restart(fill, NULL);
	if (r == 0)
		r = cache_fill_reserve(fill, text->len);
	if (r == 0)
		r = pwrite_full(cache_fill_fd(fill), text->data, text->len, 0);
	if (r == 0)
		r = cache_fill_publish(fill, text->len, &fd);
	if (r < 0)
		cache_fill_abort(fill, false);
	else
		fd_close(fd);
	return r;
}

void snapshot_save(struct source *source, struct cache *cache, const char *url)
{
	struct recorder *r = container_of(source, struct recorder, source);
	uint8_t key[SHA256_SIZE], sha256[SHA256_SIZE];
	char hex[2 * SHA256_SIZE + 1];
	int fd, result = -EFBIG;

	if (r->text.data)
		result = make_key(url, key);
	if (result == 0)
		result = sha256_mem(r->text.data, r->text.len, sha256);
	if (result == 0) {
		hex_encode(sha256, SHA256_SIZE, hex);
		/* a lookup also says that it is in use */
		result = cache_lookup(cache, sha256, &fd, NULL);
		if (result == 0)
			fd_close(fd);
		else
			result = store(cache, sha256, &r->text);
	}
	if (result == 0)
		result = cache_note_put(cache, key, hex);
	if (result < 0)
		carton_log(CARTON_LOG_DEBUG, NULL,
			   "nothing is kept for a mount without network: %s", strerror(-result));
	give_up(r);
}

/* ---- replaying ---- */

struct piece {
	const char *data;
	uint64_t off;
	uint64_t n;
};

struct replay {
	struct source source;
	struct buf text;
	struct piece *pieces;
	size_t n;
	atomic_size_t next; /* reads come in the order in which they were recorded */
};

static int replay_pread(struct source *s, void *ret_buf, size_t n, uint64_t off)
{
	struct replay *r = container_of(s, struct replay, source);
	size_t first = atomic_load(&r->next);

	if (off > s->size || n > s->size - off)
		return -ENODATA;
	for (size_t i = 0; i < r->n; i++) {
		size_t at = (first + i) % r->n;
		const struct piece *p = &r->pieces[at];

		if (off < p->off || n > p->n || off - p->off > p->n - n)
			continue;
		memcpy(ret_buf, p->data + (off - p->off), n);
		atomic_store(&r->next, at);
		return 0;
	}
	return -ENETUNREACH;
}

static void replay_free(struct source *s)
{
	struct replay *r = container_of(s, struct replay, source);

	buf_free(&r->text);
	free(r->pieces);
	free(r);
}

static const struct source_ops replay_ops = { replay_pread, source_part, replay_free, NULL };

/* Finds the pieces of r->text; fails for a text that snapshot_save() did not write. */
static int parse(struct replay *r)
{
	const uint8_t *p = (const uint8_t *)r->text.data, *end = p + r->text.len;
	size_t cap = 0;

	if (r->text.len < HEADER || memcmp(p, MAGIC, SIZE_AT) != 0)
		return -EBADMSG;
	for (p += HEADER; p < end; p += r->pieces[r->n++].n) {
		if ((size_t)(end - p) < READ_HEADER ||
		    get_le64(p + 8) > (size_t)(end - p) - READ_HEADER)
			return -EBADMSG;
		if (r->n == cap) {
			struct piece *more;

			cap = cap ? 2 * cap : 64;
			more = reallocarray(r->pieces, cap, sizeof(*more));
			if (!more)
				return -ENOMEM;
			r->pieces = more;
		}
		r->pieces[r->n] = (struct piece){
			.off = get_le64(p),
			.n = get_le64(p + 8),
			.data = (const char *)p + READ_HEADER,
		};
		p += READ_HEADER;
	}
	return 0;
}

/* The bytes of the cached object, if they are what its name says. */
static int load(struct cache *cache, const uint8_t sha256[SHA256_SIZE], struct buf *ret)
{
	uint8_t found[SHA256_SIZE];
	uint64_t size;
	int fd, r = cache_lookup(cache, sha256, &fd, &size);

	if (r < 0)
		return r;
	*ret = buf_init(MAX_SNAPSHOT);
	r = buf_reserve(ret, (size_t)MIN(size, SIZE_MAX));
	if (r == 0)
		r = pread_full(fd, ret->data, (size_t)size, 0);
	if (r == 0) {
		ret->len = (size_t)size;
		r = sha256_mem(ret->data, ret->len, found);
	}
	if (r == 0 && memcmp(found, sha256, SHA256_SIZE) != 0) {
		cache_drop(cache, sha256, fd);
		r = -ENOENT;
	}
	fd_close(fd);
	return r;
}

int snapshot_open(struct cache *cache, const char *url, struct source **ret, int64_t *ret_mtime)
{
	uint8_t key[SHA256_SIZE], sha256[SHA256_SIZE];
	char hex[2 * SHA256_SIZE + 1];
	struct replay *r = calloc(1, sizeof(*r));
	int result = r ? make_key(url, key) : -ENOMEM;

	if (result == 0)
		result = cache_note_get(cache, key, hex, sizeof(hex));
	if (result == 0 &&
	    (strlen(hex) != sizeof(hex) - 1 || !hex_decode(hex, SHA256_SIZE, sha256)))
		result = -ENOENT;
	if (result == 0)
		result = load(cache, sha256, &r->text);
	if (result == 0)
		result = parse(r);
	if (result < 0) {
		if (r)
			replay_free(&r->source);
		return result == -ENOMEM ? result : -ENOENT;
	}
	r->source.ops = &replay_ops;
	r->source.refs = 1;
	r->source.fd = -1;
	r->source.size = get_le64((const uint8_t *)r->text.data + SIZE_AT);
	*ret_mtime = (int64_t)get_le64((const uint8_t *)r->text.data + MTIME_AT);
	*ret = &r->source;
	return 0;
}
