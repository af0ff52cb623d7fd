/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the cache has of hubs. Notes say which object: "<sha256> <commit>" of a carton, "<sha256>"
 * of a signature; hints say it of small files. All objects are hashed before they are used, and
 * small files are compared with their git ids. Texts of an artifact are found by their digests.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/budget.h"
#include "base/ingest.h"
#include "cache/file.h"
#include "cache/room.h"
#include "import/internal.h"

#define HEX (2 * SHA256_SIZE)

/* ---- cartons ---- */

/* The key of the note of a revision; a commit is a revision, too. */
static int key_of(const struct listing *l, const char *revision, uint8_t ret[SHA256_SIZE])
{
	const struct repository *repo = l->repo;
	struct buf text = buf_init(HTTP_MAX_URL);
	int r;

	buf_addf(&text, "%s 1 %s %s %s %s", l->late ? "late" : "hub", repo->server, repo->kind,
		 repo->name, revision);
	r = listing_add_runner(l->runner, &text);
	if (r == 0)
		r = sha256_mem(text.data, text.len, ret);
	buf_finish(&text);
	return r;
}

/* Writes the note for the commit, and for the revision that the user has named. */
static int put_notes(const struct import *im, const struct listing *l, const char *note)
{
	const char *const revisions[] = { l->commit, l->repo->revision };
	uint8_t key[SHA256_SIZE];
	int r = 0;

	for (size_t i = 0; i < ARRAY_SIZE(revisions) && r == 0; i++) {
		r = key_of(l, revisions[i], key);
		if (r == 0)
			r = cache_note_put(im->cache, key, note);
	}
	return r;
}

/* Copies a source to a file, and sets `ret` to the sha256 of the bytes. */
static int copy(struct source *source, struct file *file, uint8_t ret[SHA256_SIZE])
{
	struct ingest job = { .size = source->size, .hash = true };
	struct ingested in;
	struct stream *from;
	int r = source_stream(source, 0, source->size, &from);

	if (r == 0)
		r = file_stream(file, 0, from, &job.in);
	if (r < 0)
		return r;
	r = ingest_run(&job, &in);
	if (r == 0)
		memcpy(ret, in.sha256, SHA256_SIZE);
	stream_close(job.in);
	return r;
}

/*
 * Opens an unnamed copy of an object, to which no other process can write: the bytes that are
 * parsed later are those that were hashed. 0; -ENOENT; -EBADMSG: it was damaged, and is dropped;
 * -errno.
 */
static int open_copy(struct cache *cache, const uint8_t sha256[SHA256_SIZE], struct source **ret)
{
	struct room room = { .cache = cache };
	uint8_t found[SHA256_SIZE];
	struct source *source;
	struct file *file;
	int r = cache_source(cache, sha256, &source);

	if (r < 0)
		return r;
	room.size = source->size;
	r = room_open(&room, &file);
	if (r < 0) {
		source_unref(source);
		return r;
	}
	r = copy(source, file, found);
	if (r == 0 && memcmp(found, sha256, SHA256_SIZE) != 0) {
		cache_drop(cache, sha256, source->fd);
		r = -EBADMSG;
	}
	if (r == 0)
		r = file_commit(file, NULL, source->size, ret);
	else
		file_abort(file, false);
	source_unref(source);
	return r;
}

int kept_open(const struct import *im, struct listing *l, struct source **ret)
{
	bool known = *l->commit;
	char note[MAX_CACHE_VALIDATOR + 1];
	uint8_t key[SHA256_SIZE], sha256[SHA256_SIZE];
	int r = im->cache ? key_of(l, known ? l->commit : l->repo->revision, key) : -ENOENT;

	if (r < 0)
		return r;
	if (cache_note_get(im->cache, key, note, sizeof(note)) < 0 || strlen(note) <= HEX ||
	    note[HEX] != ' ' || !hex_decode(note, SHA256_SIZE, sha256) ||
	    strlen(note + HEX + 1) >= LISTING_COMMIT ||
	    (known && strcmp(note + HEX + 1, l->commit) != 0))
		return -ENOENT;
	r = open_copy(im->cache, sha256, ret);
	if (r == 0 && known)
		put_notes(im, l, note);
	if (r == 0)
		snprintf(l->commit, sizeof(l->commit), "%s", note + HEX + 1);
	return r == -ENOMEM ? r : r < 0 ? -ENOENT : 0;
}

/* Begins to write an object to the cache. 0; -EEXIST: the cache has it; or -errno. */
static int put_begin(struct cache *cache, const uint8_t sha256[SHA256_SIZE], uint64_t size,
		     struct file **ret)
{
	int r = file_cache(cache, sha256, ret);

	if (r < 0)
		return r;
	r = file_restart(*ret, NULL);
	if (r == 0)
		r = file_reserve(*ret, size, true);
	if (r < 0)
		file_abort(*ret, false);
	return r;
}

/* Commits the object if `result`, of the writing, is 0; else aborts it. */
static int put_end(struct file *file, int result, const uint8_t sha256[SHA256_SIZE], uint64_t size)
{
	struct source *source;

	if (result < 0) {
		file_abort(file, false);
		return result;
	}
	result = file_commit(file, sha256, size, &source);
	if (result == 0)
		source_unref(source);
	return result;
}

/* Puts `size` bytes into the cache as the object of that hash. 0 or -errno. */
static int put(struct cache *cache, const uint8_t sha256[SHA256_SIZE], const void *data,
	       uint64_t size)
{
	struct file *file;
	int r = put_begin(cache, sha256, size, &file);

	if (r == 0)
		r = put_end(file, file_write(file, data, size, 0), sha256, size);
	return r == -EEXIST ? 0 : r;
}

static int keep(const struct import *im, const struct listing *l, struct source *source)
{
	char note[HEX + 1 + LISTING_COMMIT];
	uint8_t key[SHA256_SIZE], sha256[SHA256_SIZE];
	struct file *file;
	int r = key_of(l, l->commit, key);

	/* the hash of the carton is not known yet: until then, it has the key of its note */
	if (r == 0)
		r = put_begin(im->cache, key, source->size, &file);
	if (r == 0)
		r = put_end(file, copy(source, file, sha256), sha256, source->size);
	if (r < 0)
		return r;
	hex_encode(sha256, SHA256_SIZE, note);
	snprintf(note + HEX, sizeof(note) - HEX, " %s", l->commit);
	return put_notes(im, l, note);
}

int kept_put(const struct import *im, const struct listing *l, int fd, struct source **ret)
{
	int r = source_from_fd(fd, ret);

	/* the next mount makes it again */
	if (r == 0 && im->cache)
		keep(im, l, *ret);
	return r;
}

/* ---- signatures ---- */

static int signature_key(const struct listing *l, uint8_t ret[SHA256_SIZE])
{
	const struct repository *repo = l->repo;
	struct buf text = buf_init(HTTP_MAX_URL);
	int r = buf_addf(&text, "signature 1 %s %s %s %s", repo->server, repo->kind, repo->name,
			 l->commit);

	if (r == 0)
		r = sha256_mem(text.data, text.len, ret);
	buf_finish(&text);
	return r;
}

int kept_text(const struct import *im, const uint8_t sha256[SHA256_SIZE], struct buf *ret)
{
	uint8_t found[SHA256_SIZE];
	uint64_t size;
	int fd, r;

	if (!im->cache || cache_lookup(im->cache, sha256, &fd, &size) < 0)
		return -ENOENT;
	r = size <= MAX_LISTING_PAGE ? budget_take(im->budget, size) : -ENOENT;
	if (r < 0) {
		fd_close(fd);
		return r;
	}
	r = buf_reserve(ret, size);
	if (r == 0)
		r = pread_full(fd, ret->data, size, 0);
	if (r == 0)
		r = sha256_mem(ret->data, size, found);
	if (r == 0 && memcmp(found, sha256, SHA256_SIZE) != 0)
		r = cache_drop(im->cache, sha256, fd), r = -ENOENT;
	if (r == 0)
		ret->len = size;
	else
		budget_give(im->budget, size);
	fd_close(fd);
	return r < 0 ? -ENOENT : 0;
}

void kept_put_texts(const struct import *im, const struct listing *l)
{
	for (size_t i = 0; i < l->n_texts && im->cache; i++)
		put(im->cache, l->texts[i].sha256, l->texts[i].text.data, l->texts[i].text.len);
}

int kept_signature(const struct import *im, const struct listing *l, struct buf *ret)
{
	uint8_t key[SHA256_SIZE], sha256[SHA256_SIZE];
	char note[HEX + 1];

	if (!im->cache || signature_key(l, key) < 0 ||
	    cache_note_get(im->cache, key, note, sizeof(note)) < 0 ||
	    !hex_decode(note, SHA256_SIZE, sha256))
		return -ENOENT;
	return kept_text(im, sha256, ret);
}

void kept_put_signature(const struct import *im, const struct listing *l, const struct buf *text)
{
	uint8_t key[SHA256_SIZE], sha256[SHA256_SIZE];
	char note[HEX + 1];

	if (!im->cache || signature_key(l, key) < 0 ||
	    sha256_mem(text->data, text->len, sha256) < 0)
		return;
	hex_encode(sha256, SHA256_SIZE, note);
	if (put(im->cache, sha256, text->data, text->len) == 0)
		cache_note_put(im->cache, key, note);
}

/* ---- small files ---- */

static int read_small(struct listing *l, struct listed *f, int fd)
{
	char *data = malloc(f->size + 1);
	int r = data ? pread_full(fd, data, f->size, 0) : -ENOMEM;

	if (r == 0)
		r = listing_take(l, f, data);
	free(data);
	return r;
}

int kept_small(const struct import *im, struct listing *l, struct listed *f)
{
	uint8_t key[SHA256_SIZE], sha256[SHA256_SIZE];
	char note[HEX + 1];
	uint64_t size;
	int fd, r;

	if (!im->cache || git_name(f->oid, key) < 0 ||
	    cache_hint_get(im->cache, key, note, sizeof(note)) < 0 ||
	    !hex_decode(note, SHA256_SIZE, sha256) ||
	    cache_lookup(im->cache, sha256, &fd, &size) < 0)
		return -ENOENT;
	r = size == f->size ? read_small(l, f, fd) : -ENOENT;
	fd_close(fd);
	return r < 0 ? -ENOENT : 0;
}

void kept_put_small(const struct import *im, const struct listed *f, const void *data)
{
	char note[HEX + 1];
	uint8_t key[SHA256_SIZE];

	hex_encode(f->sha256, SHA256_SIZE, note);
	if (im->cache && git_name(f->oid, key) == 0 &&
	    put(im->cache, f->sha256, data, f->size) == 0)
		cache_hint_put(im->cache, key, note);
}
