/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the blob of a layer as a tar. A compressed blob is unpacked into an object of the cache.
 *
 * Other processes may write to a file after it was fetched and hashed. So the bytes that are
 * unpacked and listed are hashed again, in the buffer from which they are used.
 */
#include <stdio.h>
#include <stdlib.h>

#include "archive/unpack.h"
#include "base/budget.h"
#include "fetch/fetcher.h"
#include "import/layer.h"

#define HEX (2 * SHA256_SIZE)
#define ESTARGZ " estargz" /* behind the hash in the note of a tar, if the blob is one */
#define TAR_NOTE (HEX + sizeof(ESTARGZ))
/* the footer of eStargz: a gzip member without data, whose extra field says where the index is */
#define FOOTER 51

/* ---- a stream that hashes and counts the bytes that pass through it ---- */

struct hashed {
	struct stream stream;
	struct stream *in;
	struct layer_get *get;
	struct hasher hasher;
	uint64_t n, max;
	uint8_t end[FOOTER]; /* the last bytes */
};

static void keep_end(struct hashed *h, const uint8_t *data, size_t n)
{
	size_t new = MIN(n, (size_t)FOOTER);

	memmove(h->end, h->end + new, FOOTER - new);
	memcpy(h->end + FOOTER - new, data + n - new, new);
}

/* Is the blob an eStargz? Such a blob ends with a footer that has the word STARGZ. */
static bool is_estargz(const struct hashed *h)
{
	static const uint8_t head[] = { 0x1f, 0x8b, 8, 4 }, extra[] = { 26, 0, 'S', 'G', 22, 0 };

	return h->n >= FOOTER && memcmp(h->end, head, sizeof(head)) == 0 &&
	       memcmp(h->end + 10, extra, sizeof(extra)) == 0 &&
	       memcmp(h->end + 32, "STARGZ", 6) == 0;
}

static ssize_t hashed_read(struct stream *s, void *ret_buf, size_t n)
{
	struct hashed *h = container_of(s, struct hashed, stream);
	/* checks for cancellation here, as input without end may unpack to no output */
	ssize_t got = cancel_fired(h->get->cancel) ? -ECANCELED : stream_read(h->in, ret_buf, n);
	int r = got > 0 ? hasher_feed(&h->hasher, ret_buf, (size_t)got) : 0;

	if (got < 0 || r < 0)
		return got < 0 ? got : r;
	keep_end(h, ret_buf, (size_t)got);
	h->n += (uint64_t)got;
	if (h->n > h->max)
		return log_error(-EFBIG, h->get->name,
				 "a layer unpacks to more than %d times its size: refused",
				 MAX_UNPACKED_RATIO);
	if (h->max == UINT64_MAX && h->get->im->fetch)
		fetch_show(h->get->im->fetch, h->n, h->get->layer->blob_size);
	return got;
}

/* Does nothing: hashed_end() closes the stream. */
static void hashed_close(struct stream *s)
{
	(void)s;
}

/* Takes over `in`, also on failure. */
static int hashed_begin(struct layer_get *g, struct stream *in, uint64_t max, struct hashed *ret)
{
	static const struct stream_ops ops = { hashed_read, hashed_close };
	int r;

	*ret = (struct hashed){ .stream.ops = &ops, .in = in, .get = g, .max = max };
	r = hasher_begin(&ret->hasher, NULL, true);
	if (r < 0)
		stream_close(in);
	return r;
}

/* Closes the stream. Unless `result` is an error, sets the hash of the bytes that were read. */
static int hashed_end(struct hashed *h, int result, uint8_t ret_hash[SHA256_SIZE])
{
	struct ingested in;

	if (result == 0)
		result = hasher_end(&h->hasher, &in);
	else
		hasher_abort(&h->hasher);
	if (result == 0)
		memcpy(ret_hash, in.sha256, SHA256_SIZE);
	stream_close(h->in);
	return result;
}

/* ---- reading ---- */

static ssize_t no_bytes(struct stream *s, void *ret_buf, size_t n)
{
	(void)s;
	(void)ret_buf;
	(void)n;
	return 0;
}

static int open_blob(struct layer_get *g, const struct layer_blob *b, struct stream **ret)
{
	static const struct stream_ops ops = { no_bytes, hashed_close };
	static struct stream none = { &ops };

	return b->source ? source_stream(b->source, 0, b->source->size, ret) :
			   file_stream(b->file, g->layer->blob_size, &none, ret);
}

static int read_head(struct layer_get *g, const struct layer_blob *b, enum unpack_coding *ret)
{
	char head[UNPACK_MAGIC];
	size_t n = (size_t)MIN(g->layer->blob_size, (uint64_t)sizeof(head));
	int r = b->source ? source_pread(b->source, head, n, 0) : file_read(b->file, head, n, 0);

	*ret = r == 0 ? unpack_coding(head, n) : UNPACK_NONE;
	return r;
}

static int drain(struct layer_get *g, struct stream *in)
{
	char *block = malloc(256 * KIB);
	ssize_t got = block ? 1 : -ENOMEM;

	while (got > 0)
		got = cancel_fired(g->cancel) ? -ECANCELED : stream_read(in, block, 256 * KIB);
	free(block);
	return (int)got;
}

/* Reads all of a tar, and gives its entries to the scan, if there is one. */
static int read_tar(struct layer_get *g, struct stream *in)
{
	const struct layer_scan *s = g->scan;
	int r;

	if (!s)
		return drain(g, in);
	r = s->begin(s->ctx);
	return r < 0 ? r :
		       tar_scan(&(struct tar_scan){ in, g->name, s->tagger, g->cancel, s->entry,
						    s->ctx });
}

int layer_compare(struct layer_get *g, const uint8_t found[SHA256_SIZE])
{
	char hex[2 * SHA256_SIZE + 1];

	if (memcmp(found, g->layer->blob, SHA256_SIZE) == 0)
		return 0;
	hex_encode(found, SHA256_SIZE, hex);
	return log_error(-EBADMSG, g->l->name,
			 "a layer has the hash %s, not %s: its bytes are wrong", hex, g->name);
}

/*
 * Ends a reading, which gave `result`. That a tar is faulty is returned only if the bytes match
 * their hash, so then the rest is read for the hash.
 */
static int end_reading(struct layer_get *g, struct hashed *h, int result,
		       uint8_t ret_hash[SHA256_SIZE])
{
	bool faulty = result == -EBADMSG || result == -EOPNOTSUPP || result == -EFBIG;

	return hashed_end(h, faulty ? drain(g, &h->stream) : result, ret_hash);
}

/* The same for the blob. */
static int end_blob(struct layer_get *g, struct hashed *h, int result)
{
	uint8_t found[SHA256_SIZE];
	int r = end_reading(g, h, result, found);

	g->layer->estargz = is_estargz(h);
	g->sound = r == 0 && memcmp(found, g->layer->blob, SHA256_SIZE) == 0;
	if (r == 0)
		r = layer_compare(g, found);
	return r < 0 ? r : result;
}

/* Reads a blob that is an uncompressed tar. */
static int read_plain(struct layer_get *g, const struct layer_blob *b)
{
	struct stream *in;
	struct hashed h;
	int r = open_blob(g, b, &in);

	if (r == 0)
		r = hashed_begin(g, in, UINT64_MAX, &h);
	if (r < 0)
		return r;
	r = end_blob(g, &h, read_tar(g, &h.stream));
	if (r < 0)
		return r;
	memcpy(g->layer->tar, g->layer->blob, SHA256_SIZE);
	g->layer->size = g->layer->blob_size;
	g->layer->source = source_ref(b->source);
	return 0;
}

/* The key of the cache entry while the hash of the tar is not known, and of the note of it. */
static int key_of(struct layer_get *g, uint8_t ret[SHA256_SIZE])
{
	char text[sizeof(g->name) + 16];
	int n = snprintf(text, sizeof(text), "tar 1 %s", g->name);

	return sha256_mem(text, (size_t)n, ret);
}

/* Waits while another process fills the entry, or unpacks a blob that it has fetched there. */
static int wait_for(struct layer_get *g, const struct room *room)
{
	int timeout_ms = (int)g->im->fetch->timeout_ms;
	int r = cache_wait(room->cache, room->key, timeout_ms, g->cancel);
	uint8_t key[SHA256_SIZE];
	uint64_t n;

	g->waited = true;
	if (r == -ETIMEDOUT && key_of(g, key) == 0 && memcmp(key, room->key, SHA256_SIZE) != 0 &&
	    cache_is_filling(room->cache, key, &n) == 1)
		r = cache_wait(room->cache, key, timeout_ms, g->cancel);
	return r;
}

int layer_room(struct layer_get *g, struct room *room, struct file **ret)
{
	int r;

	while ((r = room_open(room, ret)) == -EAGAIN) {
		r = wait_for(g, room);
		/* the process that fills it was stopped */
		if (r == -ETIMEDOUT)
			room_next(room, r, 0);
		else if (r < 0)
			return r;
	}
	return r;
}

/* ---- unpacking ---- */

/* The most bytes that a layer may unpack to. */
static uint64_t most_of(const struct listed_layer *layer)
{
	return MAX_UNPACKED_START + MIN(layer->blob_size, MAX_FETCHED) * MAX_UNPACKED_RATIO;
}

/* Unpacks a blob into `dest`. Reads it to its end; hashes the blob and the tar. */
static int unpack_to(struct layer_get *g, const struct layer_blob *b, enum unpack_coding coding,
		     struct file *dest)
{
	struct listed_layer *layer = g->layer;
	struct stream *in, *tar;
	struct hashed blob, h;
	int r = open_blob(g, b, &in);

	if (r == 0)
		r = hashed_begin(g, in, UINT64_MAX, &blob);
	if (r < 0)
		return r;
	r = unpack_open(&blob.stream, g->name, coding, g->im->budget, &tar);
	if (r == 0)
		r = file_stream(dest, 0, tar, &tar);
	if (r == 0)
		r = hashed_begin(g, tar, most_of(layer), &h);
	if (r == 0) {
		r = read_tar(g, &h.stream);
		layer->size = h.n;
		r = hashed_end(&h, r, layer->tar);
	}
	return end_blob(g, &blob, r);
}

/* Notes which tar is in the blob: who waits for the layer, or reads it later, fetches nothing. */
static void note_tar(struct layer_get *g)
{
	char note[TAR_NOTE];
	uint8_t key[SHA256_SIZE];

	hex_encode(g->layer->tar, SHA256_SIZE, note);
	if (g->layer->estargz)
		memcpy(note + HEX, ESTARGZ, sizeof(ESTARGZ));
	if (key_of(g, key) == 0)
		cache_note_put(g->im->cache, key, note);
}

/* Commits the tar, as the object of its hash if it is in the cache. */
static int commit(struct layer_get *g, struct file *dest)
{
	struct listed_layer *layer = g->layer;
	bool cached = file_is_cached(dest);
	int r = file_commit(dest, cached ? layer->tar : NULL, layer->size, &layer->source);

	if (r == 0 && cached) {
		cache_name_put(g->im->cache, layer->tar, "", g->l->name);
		note_tar(g);
	}
	return r;
}

static int unpack(struct layer_get *g, const struct layer_blob *b, enum unpack_coding coding)
{
	struct listed_layer *layer = g->layer;
	uint8_t key[SHA256_SIZE], known[SHA256_SIZE];
	struct room room = {
		.name = g->name, .cache = g->im->cache, .key = key, .size = UINT64_MAX
	};
	struct file *dest;
	int r = key_of(g, key);

	if (r < 0)
		return r;
	memcpy(known, layer->tar, SHA256_SIZE);
	do {
		r = layer_room(g, &room, &dest);
		if (r < 0)
			return r;
		r = file_restart(dest, NULL);
		if (r == 0)
			r = unpack_to(g, b, coding, dest);
		/* the digest pins what it unpacks to */
		if (r == 0 && !g->scan && memcmp(known, layer->tar, SHA256_SIZE) != 0)
			r = log_error(-EBADMSG, g->name, "unpacks to other bytes than before");
		if (r == 0)
			return commit(g, dest);
		room.wanted = file_wanted(dest);
		file_abort(dest, false);
	} while (room_again(&room, &r, layer->size));
	return r;
}

/* ---- a tar that was unpacked before ---- */

/* Reads the tar and compares its hash. -ENOENT: it was damaged and is dropped. */
static int read_kept(struct layer_get *g, struct source *tar, const uint8_t hash[SHA256_SIZE])
{
	uint8_t found[SHA256_SIZE];
	struct stream *in;
	struct hashed h;
	int r = source_stream(tar, 0, tar->size, &in), result;

	if (r == 0)
		r = hashed_begin(g, in, tar->size, &h);
	if (r < 0)
		return r;
	result = read_tar(g, &h.stream);
	r = end_reading(g, &h, result, found);
	if (r == 0 && memcmp(found, hash, SHA256_SIZE) != 0) {
		cache_drop(g->im->cache, hash, tar->fd);
		return -ENOENT;
	}
	return r < 0 ? r : result;
}

/* Opens the tar that the note names. */
static int read_noted(struct layer_get *g)
{
	char note[TAR_NOTE];
	uint8_t key[SHA256_SIZE], hash[SHA256_SIZE];
	struct source *tar;
	int r = key_of(g, key);

	if (r == 0)
		r = cache_note_get(g->im->cache, key, note, sizeof(note));
	if (r < 0 || !hex_decode(note, SHA256_SIZE, hash) ||
	    cache_source(g->im->cache, hash, &tar) < 0)
		return -ENOENT;
	r = read_kept(g, tar, hash);
	if (r < 0) {
		source_unref(tar);
		return r;
	}
	memcpy(g->layer->tar, hash, SHA256_SIZE);
	g->layer->size = tar->size;
	g->layer->source = tar;
	g->layer->estargz = strcmp(note + HEX, ESTARGZ) == 0;
	return 0;
}

int layer_kept(struct layer_get *g)
{
	struct listed_layer *layer = g->layer;

	if (!g->im->cache)
		return -ENOENT;
	if (g->scan)
		return read_noted(g);
	return cache_lists(g->im->cache, layer->tar, layer->size) &&
			       cache_source(g->im->cache, layer->tar, &layer->source) == 0 ?
		       0 :
		       -ENOENT;
}

int layer_is_plain(struct layer_get *g, const struct layer_blob *b)
{
	enum unpack_coding coding;
	int r = read_head(g, b, &coding);

	return r < 0 ? r : coding == UNPACK_NONE;
}

int layer_read(struct layer_get *g, const struct layer_blob *b)
{
	enum unpack_coding coding;
	int r = read_head(g, b, &coding);

	if (r < 0)
		return r;
	return coding == UNPACK_NONE ? read_plain(g, b) : unpack(g, b, coding);
}
