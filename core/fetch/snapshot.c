/* SPDX-License-Identifier: Apache-2.0 */
#include "fetch/snapshot.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/util.h"
#include "cache/file.h"
#include "cache/read.h"
#include "http/http.h"

#define MAGIC "cfsnap01"
#define SIZE_AT 8
#define MTIME_AT 16
#define HEADER 24
#define RECORD_HEADER 16

/* ---- cached ranges ---- */

struct cached_range {
	char *data;
	uint64_t off, n;
};

struct cached_ranges {
	pthread_mutex_t lock;	   /* guards what follows */
	struct cached_range *list; /* oldest first */
	size_t n, cap;
	size_t last; /* the one that was read last: reads come in the order of the list */
	uint64_t bytes, max;
	bool dropped; /* one has given way */
};

struct cached_ranges *cached_ranges_new(uint64_t max)
{
	struct cached_ranges *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	pthread_mutex_init(&h->lock, NULL);
	h->max = max;
	return h;
}

void cached_ranges_free(struct cached_ranges *h)
{
	if (!h)
		return;
	for (size_t i = 0; i < h->n; i++)
		free(h->list[i].data);
	free(h->list);
	pthread_mutex_destroy(&h->lock);
	free(h);
}

/* Drops the oldest until `more` bytes fit. Lock held. */
static void make_room(struct cached_ranges *h, uint64_t more)
{
	size_t k = 0;

	while (k < h->n && h->bytes > h->max - MIN(more, h->max)) {
		h->bytes -= h->list[k].n;
		free(h->list[k++].data);
	}
	if (k == 0)
		return;
	h->dropped = true;
	h->n -= k;
	h->last = 0;
	memmove(h->list, h->list + k, h->n * sizeof(*h->list));
}

static int add(struct cached_ranges *h, char *data, uint64_t n, uint64_t off)
{
	make_room(h, n);
	if (h->n == h->cap) {
		size_t cap = MAX(2 * h->cap, (size_t)16);
		void *list = reallocarray(h->list, cap, sizeof(*h->list));

		if (!list)
			return -ENOMEM;
		h->list = list;
		h->cap = cap;
	}
	h->list[h->n++] = (struct cached_range){ data, off, n };
	h->bytes += n;
	return 0;
}

int cached_ranges_add(struct cached_ranges *h, char *data, uint64_t n, uint64_t off)
{
	int r;

	pthread_mutex_lock(&h->lock);
	r = add(h, data, n, off);
	pthread_mutex_unlock(&h->lock);
	if (r < 0)
		free(data);
	return r;
}

bool cached_ranges_read(struct cached_ranges *h, void *ret_buf, uint64_t n, uint64_t off)
{
	bool found = false;

	pthread_mutex_lock(&h->lock);
	for (size_t i = 0; i < h->n && !found; i++) {
		size_t at = (h->last + i) % h->n;
		const struct cached_range *s = &h->list[at];

		found = off >= s->off && n <= s->n && off - s->off <= s->n - n;
		if (found && ret_buf)
			memcpy(ret_buf, s->data + (off - s->off), n);
		if (found)
			h->last = at;
	}
	pthread_mutex_unlock(&h->lock);
	return found;
}

void cached_ranges_trim(struct cached_ranges *h, uint64_t max)
{
	pthread_mutex_lock(&h->lock);
	h->max = max;
	make_room(h, 0);
	pthread_mutex_unlock(&h->lock);
}

/*
 * Appends all ranges, in their order. 0; -EFBIG: some had to give way, or the buffer is full;
 * -ENOMEM.
 */
static int save(struct cached_ranges *h, struct buf *to)
{
	uint8_t header[RECORD_HEADER];
	int r;

	pthread_mutex_lock(&h->lock);
	r = h->dropped ? -EFBIG : 0;
	for (size_t i = 0; i < h->n && r == 0; i++) {
		put_le64(header, h->list[i].off);
		put_le64(header + 8, h->list[i].n);
		r = buf_add(to, header, sizeof(header));
		if (r == 0)
			r = buf_add(to, h->list[i].data, h->list[i].n);
	}
	pthread_mutex_unlock(&h->lock);
	return r;
}

/* ---- what is kept ---- */

/* The key of a URL's note. */
static int make_key(const char *url, uint8_t ret_key[SHA256_SIZE])
{
	struct buf name = buf_init(SIZE_MAX);
	char *plain = http_url_unsigned(url);
	int r = plain ? buf_addf(&name, "snapshot %s", plain) : -ENOMEM;

	free(plain);
	if (r == 0)
		r = sha256_mem(name.data, name.len, ret_key);
	buf_finish(&name);
	return r;
}

static int store(struct cache *cache, const uint8_t sha256[SHA256_SIZE], const struct buf *text)
{
	struct source *source;
	struct file *dest;
	int r = file_cache(cache, sha256, &dest);

	if (r < 0)
		return r == -EEXIST ? 0 : r;
	r = file_restart(dest, NULL);
	if (r == 0)
		r = file_reserve(dest, text->len, true);
	if (r == 0)
		r = file_write(dest, text->data, text->len, 0);
	if (r < 0) {
		file_abort(dest, false);
		return r;
	}
	r = file_commit(dest, NULL, text->len, &source);
	if (r == 0)
		source_unref(source);
	return r;
}

int snapshot_write(const struct snapshot *s, struct buf *to)
{
	uint8_t header[HEADER] = MAGIC;
	int r;

	put_le64(header + SIZE_AT, s->size);
	put_le64(header + MTIME_AT, (uint64_t)s->mtime);
	r = buf_add(to, header, sizeof(header));
	return r < 0 ? r : save(s->ranges, to);
}

void snapshot_save(const struct snapshot *s, struct cache *cache, const char *url)
{
	uint8_t key[SHA256_SIZE], sha256[SHA256_SIZE];
	struct buf text = buf_init(MAX_SNAPSHOT);
	char hex[2 * SHA256_SIZE + 1], shown[256];
	int r = snapshot_write(s, &text);

	if (r == 0)
		r = make_key(url, key);
	if (r == 0)
		r = sha256_mem(text.data, text.len, sha256);
	if (r == 0) {
		hex_encode(sha256, SHA256_SIZE, hex);
		if (!cache_has(cache, sha256)) {
			r = store(cache, sha256, &text);
			http_url_redact(url, shown, sizeof(shown));
			if (r == 0)
				cache_name_put(cache, sha256, "", shown);
		}
	}
	if (r == 0)
		r = cache_note_put(cache, key, hex);
	buf_finish(&text);
	if (r < 0)
		carton_log(CARTON_LOG_DEBUG, NULL,
			   "nothing is kept for a mount without network: %s",
			   carton_write_error(r));
}

/* What is loaded is hashed in the memory that it is read to. */
struct loading {
	struct source *from;
	uint64_t at;
	struct sha256 *hash;
};

static int take(struct loading *l, void *ret_buf, size_t n)
{
	int r = source_pread(l->from, ret_buf, n, l->at);

	l->at += n;
	return r < 0 ? r : sha256_update(l->hash, ret_buf, n);
}

static int load_range(struct loading *l, struct cached_ranges *to)
{
	uint8_t header[RECORD_HEADER];
	uint64_t off, n;
	char *data;
	int r = take(l, header, sizeof(header));

	if (r < 0)
		return r;
	off = get_le64(header);
	n = get_le64(header + 8);
	if (n > l->from->size - l->at)
		return -EBADMSG;
	data = malloc(n ? n : 1);
	r = data ? take(l, data, n) : -ENOMEM;
	if (r == 0)
		return cached_ranges_add(to, data, n, off);
	free(data);
	return r;
}

static int load_all(struct loading *l, const uint8_t sha256[SHA256_SIZE], struct snapshot *ret)
{
	uint8_t header[HEADER] = { 0 }, found[SHA256_SIZE];
	int r = l->from->size > MAX_SNAPSHOT ? -EFBIG : take(l, header, sizeof(header));

	if (r == 0 && memcmp(header, MAGIC, SIZE_AT) != 0)
		r = -EBADMSG;
	while (r == 0 && l->at < l->from->size)
		r = load_range(l, ret->ranges);
	if (r == 0)
		r = sha256_final(l->hash, found);
	if (r == 0 && memcmp(found, sha256, SHA256_SIZE) != 0)
		r = -EBADMSG;
	ret->size = get_le64(header + SIZE_AT);
	ret->mtime = (int64_t)get_le64(header + MTIME_AT);
	return r;
}

int snapshot_read(struct source *from, const uint8_t sha256[SHA256_SIZE], struct snapshot *ret)
{
	struct loading l = { .from = from };
	int r = sha256_new(&l.hash);

	if (r == 0)
		r = load_all(&l, sha256, ret);
	sha256_free(l.hash);
	return r;
}

/* It could not be loaded: if it is not what its name says, it goes, so that it can be kept anew. */
static void drop_damaged(struct cache *cache, const uint8_t sha256[SHA256_SIZE])
{
	const struct ingest all = { .size = UINT64_MAX };
	struct source *source;
	struct ingested in;

	if (cache_read(cache, sha256, &all, &source, &in) == 0)
		source_unref(source);
}

static int load_object(struct cache *cache, const uint8_t sha256[SHA256_SIZE], struct snapshot *ret)
{
	struct source *source;
	int r = cache_source(cache, sha256, &source);

	if (r < 0)
		return r;
	r = snapshot_read(source, sha256, ret);
	source_unref(source);
	if (r < 0 && r != -ENOMEM)
		drop_damaged(cache, sha256);
	return r;
}

int snapshot_load(struct cache *cache, const char *url, struct snapshot *ret)
{
	uint8_t key[SHA256_SIZE], sha256[SHA256_SIZE];
	struct snapshot s = { .ranges = cached_ranges_new(MAX_SNAPSHOT) };
	char hex[2 * SHA256_SIZE + 1];
	int r = s.ranges ? make_key(url, key) : -ENOMEM;

	if (r == 0)
		r = cache_note_get(cache, key, hex, sizeof(hex));
	if (r == 0 && (strlen(hex) != sizeof(hex) - 1 || !hex_decode(hex, SHA256_SIZE, sha256)))
		r = -ENOENT;
	if (r == 0)
		r = load_object(cache, sha256, &s);
	if (r < 0) {
		cached_ranges_free(s.ranges);
		return r == -ENOMEM ? r : -ENOENT;
	}
	*ret = s;
	return 0;
}
