/* SPDX-License-Identifier: Apache-2.0 */
#include "fetch/download.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/util.h"
#include "cache/read.h"
#include "cache/room.h"
#include "fetch/fetcher.h"
#include "http/http.h"

/* A note says which version is there: "<sha256> <version>". */
#define NOTE_VERSION (2 * SHA256_SIZE + 1)

struct download {
	const struct fetch_options *options;
	struct cache *cache; /* NULL: there is none, or it has no room */
	const char *url;
	char shown[256]; /* for the log */
	struct room room;
	uint8_t key[SHA256_SIZE];	    /* of the URL in the cache */
	char note[MAX_CACHE_VALIDATOR + 1]; /* of an earlier download; "" */
	bool damaged;			    /* that one is */
	bool told;			    /* that all of it is downloaded */
	char version[256];		    /* the answer's */
	int64_t mtime;
};

/* ---- an earlier download ---- */

static int read_note(struct download *d, uint8_t ret_sha256[SHA256_SIZE])
{
	char *note = d->note;

	if (d->cache && !d->damaged &&
	    cache_note_get(d->cache, d->key, note, sizeof(d->note)) == 0 &&
	    strlen(note) >= NOTE_VERSION && note[NOTE_VERSION - 1] == ' ' &&
	    hex_decode(note, SHA256_SIZE, ret_sha256))
		return 0;
	note[0] = '\0';
	return -ENOENT;
}

/* The intact bytes of an earlier download; -ENOENT. */
static int open_earlier(struct download *d, struct source **ret)
{
	struct cancel *cancel = d->options ? d->options->cancel : NULL;
	uint8_t sha256[SHA256_SIZE];
	struct ingested in;
	int r = read_note(d, sha256);

	if (r < 0)
		return r;
	r = cache_read(d->cache, sha256, &(struct ingest){ .size = UINT64_MAX, .cancel = cancel },
		       ret, &in);
	return r == -EBADMSG ? -ENOENT : r;
}

/* A freshly signed URL is the same file. */
static int make_key(const char *url, uint8_t ret_key[SHA256_SIZE])
{
	char *plain = http_url_unsigned(url);
	int r = plain ? sha256_mem(plain, strlen(plain), ret_key) : -ENOMEM;

	free(plain);
	return r;
}

int download_kept(struct cache *cache, const char *url, struct source **ret)
{
	struct download d = { .cache = cache };
	int r = make_key(url, d.key);

	return r < 0 ? r : open_earlier(&d, ret);
}

static void note_version(struct download *d, const uint8_t sha256[SHA256_SIZE])
{
	char note[NOTE_VERSION + sizeof(d->version)];

	if (!d->version[0])
		return;
	hex_encode(sha256, SHA256_SIZE, note);
	snprintf(note + NOTE_VERSION - 1, sizeof(note) - NOTE_VERSION + 1, " %s", d->version);
	cache_note_put(d->cache, d->key, note);
}

/* ---- one fetch ---- */

/* 1: this version is there already. */
static int answered(void *ctx, const struct http_response *a)
{
	struct download *d = ctx;

	snprintf(d->version, sizeof(d->version), "%s", a->etag[0] ? a->etag : a->last_modified);
	d->mtime = a->last_modified_s;
	if (!d->told)
		carton_log(CARTON_LOG_INFO, d->shown,
			   "the server does not answer Range requests: downloading all of it");
	d->told = true;
	return a->status == 200 && d->note[0] && d->version[0] &&
	       strcmp(d->note + NOTE_VERSION, d->version) == 0;
}

/* Ends the file. 0; 1: what is there already is this version. */
static int fetch_to(struct download *d, struct file *dest, struct source **ret)
{
	struct follow follow = {
		.dest = dest,
		.workers = d->options->workers,
		.cancel = d->options->cancel,
		.hash = true,
	};
	struct fetch_place place = { .url = d->url, .trust = HTTP_USER };
	struct fetch f = {
		.options = d->options,
		.cancel = d->options->cancel,
		.what = FETCH_FILE,
		.places = &place,
		.n_places = 1,
		.whole = true,
		.plain = true,
		.dest = dest,
		.follow = &follow,
		.answered = answered,
		.ctx = d,
	};
	bool cached = file_is_cached(dest);
	uint8_t sha256[SHA256_SIZE];
	struct ingested in = { 0 };
	int r;

	/* as it is now: another process may have downloaded it while this one waited */
	read_note(d, sha256);
	route_init(&place.route);
	follow_init(&follow);
	r = fetch_run(&f, &in.size);
	if (r == 0)
		r = follow_end(&follow, &in);
	follow_finish(&follow);
	route_finish(&place.route);
	if (r != 0) {
		d->room.wanted = file_wanted(dest);
		file_abort(dest, r < 0 && r != -ENOSPC);
		return r;
	}
	/* before the commit, which ends the wait of other processes: they look for the note */
	if (cached)
		note_version(d, in.sha256);
	r = file_commit(dest, cached ? in.sha256 : NULL, in.size, ret);
	if (r == 0 && cached)
		cache_name_put(d->cache, in.sha256, "", d->shown);
	return r;
}

/* Opens a file; waits for another process that downloads the same. */
static int open_dest(struct download *d, struct file **ret)
{
	int r;

	while ((r = room_open(&d->room, ret)) == -EAGAIN) {
		r = cache_wait(d->cache, d->key, (int)d->options->timeout_ms, d->options->cancel);
		/* the process that downloads it was stopped */
		if (r == -ETIMEDOUT)
			room_next(&d->room, r, 0);
		else if (r < 0)
			return r;
	}
	return r;
}

static int download(struct download *d, struct source **ret)
{
	struct file *dest;
	int r;

	d->room = (struct room){
		.name = http_url_redact(d->url, d->shown, sizeof(d->shown)),
		.cache = d->cache,
		.key = d->key,
		.size = UINT64_MAX,
	};
	do {
		r = open_dest(d, &dest);
		if (r < 0)
			return r;
		r = fetch_to(d, dest, ret);
	} while (room_again(&d->room, &r, 0));
	return r;
}

int download_carton(const struct fetch_options *options, struct cache *cache, const char *url,
		    struct source **ret, int64_t *ret_mtime)
{
	struct download d = { .options = options, .cache = cache, .url = url };
	int r = make_key(url, d.key);

	if (r == 0)
		r = download(&d, ret);
	if (r == 1) {
		/* damaged since: then it is fetched after all */
		r = open_earlier(&d, ret);
		d.damaged = true;
		if (r == -ENOENT)
			r = download(&d, ret);
	}
	*ret_mtime = d.mtime;
	return r;
}
