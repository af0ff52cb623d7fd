/* SPDX-License-Identifier: Apache-2.0 */
/* A blob, and the manifest, on their way to the registry. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "http/http.h"
#include "push/internal.h"

#define BLOB_TYPE "application/octet-stream"
#define RESUMED MIB /* so much more at the registry makes a try a good one */
/* Bytes of a body after larger ones were refused: ghcr.io takes the first, proxies the second. */
#define SMALL (4 * MIB)
#define SMALLEST MIB
#define MAX_FAILED_PARTS 2 /* so often parts of a blob may fail, then it is sent as a whole */

/* What a status of a refusal means, where the registry's own words do not help. */
static const char *meaning(int status)
{
	switch (status) {
	case 404:
		return "it has no such repository, or nobody may push there";
	case 405:
		return "it cannot be written to";
	case 413:
		return "it is too large for this registry";
	default:
		return NULL;
	}
}

/*
 * What is not 2xx: 0, or the -errno. Logged, unless it may pass. `let_in`: the registry has let the
 * upload begin.
 */
static int check(const struct push *p, const char *what, const struct push_answer *a, bool let_in)
{
	int status = a->head.status, r = http_status_errno(status);
	const char *why = *a->why ? a->why : meaning(status);

	if (r == 0 || error_passes(r))
		return r;
	if (r == -EACCES && !(let_in && status == 403))
		return log_error(r, p->to->name,
				 "the registry does not let you push there: docker login %s or "
				 "podman login %s saves who you are",
				 p->host, p->host);
	/* the words of a registry are about bytes, which are right here */
	return log_error(r == -ENOENT ? -EIO : r, what, "%s refuses it with status %d%s%s", p->host,
			 status, why ? ": " : "", why ? why : "");
}

static const char *name_of(const struct push_blob *b)
{
	return b->path ? b->path : "the config";
}

static ssize_t read_blob(void *ctx, void *ret, size_t n, uint64_t off)
{
	const struct push_blob *b = ctx;

	off += b->there;
	if (b->file)
		return carton_read(from_node(b->file), ret, n, off, false);
	memcpy(ret, b->text->data + off, n);
	return (ssize_t)n;
}

/* Is it at the registry? Then its size is known. 1, 0, or -errno of a failure that may pass. */
static int is_there(struct push *p, struct push_blob *b, const char *digest)
{
	struct http_request q = { .method = HTTP_HEAD };
	struct push_answer a = { .body = NULL };
	char *url;
	int r;

	if (asprintf(&url, "%s/v2/%s/blobs/%s", p->to->server, p->to->name, digest) < 0)
		return -ENOMEM;
	q.url = url;
	r = push_ask(p, &q, &a);
	free(url);
	if (r == 0) {
		free(a.location);
		r = http_status_errno(a.head.status);
	}
	/* who may not read, or gets no token for it, may still write: that is asked next */
	if (r < 0)
		return error_passes(r) ? r : 0;
	if (a.head.length < 0 || (b->size_known && b->size != (uint64_t)a.head.length))
		return 0;
	b->size = (uint64_t)a.head.length;
	return 1;
}

static int no_location(const struct push *p)
{
	return log_error(-EPROTO, p->to->name,
			 "the registry %s does not say where to send it, or names another server, "
			 "which gets nothing",
			 p->host);
}

/* ---- another repository of the registry ---- */

/* The repository that has the blob by what the user has named: it may be read with the login. */
static const char *find_other(const struct push *p, const struct push_blob *b, size_t *ret_len)
{
	const struct link *l = links_find(p->c->links, b->sha256);
	size_t n = strlen(p->to->server);

	for (size_t i = 0; l && l->user && i < l->n_urls; i++) {
		const char *at = l->urls[i] + n, *end = strstr(l->urls[i], "/blobs/sha256:");

		if (end && strncmp(l->urls[i], p->to->server, n) == 0 &&
		    strncmp(at, "/v2/", 4) == 0) {
			*ret_len = (size_t)(end - at - 4);
			return at + 4;
		}
	}
	*ret_len = p->mount_from ? strlen(p->mount_from) : 0;
	return p->mount_from;
}

/* The URL for beginning an upload; malloc'ed; NULL: no memory. */
static char *upload_url(const struct push *p, const struct push_blob *b, const char *digest,
			bool mount)
{
	struct buf url = buf_init(HTTP_MAX_URL);
	size_t n = 0;
	const char *other = mount ? find_other(p, b, &n) : NULL;

	buf_addf(&url, "%s/v2/%s/blobs/uploads/", p->to->server, p->to->name);
	if (n > 0 && (strlen(p->to->name) != n || strncmp(other, p->to->name, n) != 0)) {
		buf_addf(&url, "?mount=%s&from=", digest);
		buf_add_encoded(&url, other, n, "-._/");
	}
	if (buf_adds(&url, "") == 0)
		return url.data;
	buf_finish(&url);
	return NULL;
}

/* ---- uploads ---- */

/*
 * Begins an upload. With `mount`, the registry is asked to take the blob from another repository
 * in its place; if it refuses that, nothing has begun. 1: it has taken it; 0; -errno.
 */
static int begin(struct push *p, struct push_blob *b, const char *digest, bool mount)
{
	char *url = upload_url(p, b, digest, mount);
	struct http_request q = { .method = HTTP_POST, .url = url };
	struct push_answer a = { .body = NULL };
	bool mounts = url && strchr(url, '?');
	int r = !url ? -ENOMEM : mount && !mounts ? 0 : push_ask(p, &q, &a);

	free(url);
	if (r < 0 || (mount && !mounts))
		return r;
	if (mount && a.head.status != 202) {
		free(a.location);
		return a.head.status == 201;
	}
	b->location = a.location;
	b->least = (uint64_t)MAX(a.head.least_part, 0);
	r = check(p, name_of(b), &a, false);
	return r < 0 || b->location ? r : no_location(p);
}

/* What was sent does not count any more. */
static void forget(struct push *p, struct push_blob *b)
{
	free(b->location);
	b->location = NULL;
	atomic_fetch_sub(&p->done, b->there);
	b->there = 0;
	b->tried = false;
}

/* Asks how far an upload has come that was broken off, and goes on there; else none is begun. */
static int look(struct push *p, struct push_blob *b)
{
	struct http_request q = { .url = b->location };
	struct push_answer a = { .body = NULL };
	int r = push_ask(p, &q, &a);
	uint64_t last;

	if (r == 0)
		r = http_status_errno(a.head.status);
	if (error_passes(r)) {
		free(a.location);
		return r;
	}
	forget(p, b);
	last = (uint64_t)MAX(a.head.upload_last, 0);
	/* 0-0 is what registries say of nothing, too */
	if (r < 0 || last == 0 || last >= b->size || !a.location) {
		free(a.location);
		return 0;
	}
	b->location = a.location;
	b->there = last + 1;
	atomic_fetch_add(&p->done, b->there);
	return 0;
}

/* ---- in one body, or in parts ---- */

/*
 * A blob larger than p->most is sent in parts, so that an upload of hours that breaks off can go on
 * where it was. Some registries take no parts, or only smaller ones, and some take nothing else. So
 * a blob that is refused in one way is sent in the other, and the blobs after it likewise.
 */
static enum push_way way_of(const struct push *p, const struct push_blob *b)
{
	enum push_way way = b->there > 0 || b->size > atomic_load(&p->most) ? PUSH_PARTS :
									      PUSH_WHOLE;
	bool refused = b->refused[way] || atomic_load(&p->refuses[way]);
	bool other = b->refused[!way] || atomic_load(&p->refuses[!way]);

	/* an empty blob has no parts */
	return refused && !other && b->size > 0 ? !way : way;
}

/*
 * The blob was taken in this way. If it was refused in the other way, which has never worked, the
 * blobs after it are not sent in the other way.
 */
static void remember(struct push *p, const struct push_blob *b, enum push_way way)
{
	atomic_store(&p->takes[way], true);
	if (b->refused[!way] && !atomic_load(&p->takes[!way]))
		atomic_store(&p->refuses[!way], true);
}

/*
 * Does a failure of the first part mean that the registry takes no parts, rather than that it is
 * overloaded? One that may pass is tried once more.
 */
static bool fails_at_parts(const struct push *p, struct push_blob *b, const struct push_answer *a)
{
	if (b->there > 0 || a->head.status < 500 || a->head.retry_after_s > 0 ||
	    atomic_load(&p->takes[PUSH_PARTS]))
		return false;
	return a->head.status == 501 || ++b->failed >= MAX_FAILED_PARTS;
}

/* Does the status refuse the body? A failure that may pass does not. */
static bool is_refusal(const struct push *p, struct push_blob *b, const struct http_request *q,
		       const struct push_answer *a)
{
	int r = http_status_errno(a->head.status);

	/*
	 * the registry has let the upload begin: what is in front of it may forbid the method, or a
	 * body of its size
	 */
	if (a->head.status == 403 || (q->method == HTTP_PATCH && fails_at_parts(p, b, a)))
		return true;
	return r < 0 && r != -EACCES && !error_passes(r);
}

/* Lowers p->most, which other blobs may have lowered further. */
static void lower_most(struct push *p, uint64_t less)
{
	uint64_t most = atomic_load(&p->most);

	while (most > less && !atomic_compare_exchange_weak(&p->most, &most, less))
		;
}

/* If the body was too large, lowers p->most. True: the next bodies are smaller. */
static bool lower(struct push *p, struct push_blob *b, const struct http_request *q, int status)
{
	uint64_t n = q->body.size, less = n > SMALL ? SMALL : SMALLEST;
	bool part = q->method == HTTP_PATCH;

	/* 416 is also said where a part does not follow the last one */
	if (status != 413 && !(status == 416 && part && b->there == 0))
		return false;
	if (n <= less || less < b->least || b->refused[PUSH_PARTS] ||
	    atomic_load(&p->refuses[PUSH_PARTS]))
		return false;
	lower_most(p, less);
	return true;
}

/*
 * Both ways were refused, perhaps for the size alone, which some proxies say by 400 or 403. True:
 * the blob is sent in smaller parts, of two sizes at most.
 */
static bool shrink(struct push *p, struct push_blob *b, int status)
{
	uint64_t most = atomic_load(&p->most), less = most > SMALL ? SMALL : SMALLEST;

	if ((status != 400 && status != 403) || b->size <= less || less < b->least ||
	    most <= less || atomic_load(&p->refuses[PUSH_PARTS]))
		return false;
	lower_most(p, less);
	b->refused[PUSH_PARTS] = false;
	return true;
}

/*
 * A body was refused. 1: the blob is sent in another way, or in smaller bodies; -EAGAIN: the upload
 * goes on after a look at it, or is begun again; 0: there is no other way. `again`: the upload was
 * begun by an earlier try.
 */
static int find_way(struct push *p, struct push_blob *b, const struct http_request *q, int status,
		    bool again)
{
	enum push_way way = q->method == HTTP_PATCH || b->there > 0 ? PUSH_PARTS : PUSH_WHOLE;
	bool lost = b->lost;

	if (lower(p, b, q, status)) {
		if (b->there == 0)
			forget(p, b);
		return 1;
	}
	b->lost |= b->there > 0;
	if (again || (q->method == HTTP_PATCH && b->there > 0 && !lost)) {
		/* the registry may have lost the upload, or bytes of it; or it has more of them */
		if (again || status != 416)
			forget(p, b);
		return -EAGAIN;
	}
	b->refused[way] = true;
	if (b->refused[!way] && shrink(p, b, status)) {
		forget(p, b);
		return 1;
	}
	if (b->refused[!way] || atomic_load(&p->refuses[!way]) || b->size == 0 ||
	    (way == PUSH_WHOLE && status == 413))
		return 0;
	forget(p, b);
	return 1;
}

/*
 * Sends a part of an upload, or its end. The answer says where the next goes. 0; 1: the body was
 * refused, see find_way(); -errno.
 */
static int put(struct push *p, struct push_blob *b, const struct http_request *q, bool again)
{
	struct push_answer a = { .body = NULL };
	int r;

	b->tried = true;
	r = push_ask(p, q, &a);
	if (r < 0)
		return r;
	if (is_refusal(p, b, q, &a))
		r = find_way(p, b, q, a.head.status, again);
	if (r == 0)
		r = check(p, name_of(b), &a, true);
	if (r != 0) {
		free(a.location);
		return r;
	}
	free(b->location);
	b->location = a.location;
	return 0;
}

/*
 * Sends all that is not there yet, in parts: some registries keep no part of which they have not
 * got all. As put().
 */
static int send_parts(struct push *p, struct push_blob *b, bool again)
{
	int r = 0;

	while (r == 0 && b->there < b->size) {
		uint64_t n = MIN(MAX(atomic_load(&p->most), b->least), b->size - b->there);
		struct http_request q = { .method = HTTP_PATCH, .url = b->location };
		char range[64];

		snprintf(range, sizeof(range), "%" PRIu64 "-%" PRIu64, b->there, b->there + n - 1);
		q.body = (struct http_body){ BLOB_TYPE, range, n, read_blob, b };
		r = put(p, b, &q, again);
		if (r == 0) {
			b->there += n;
			r = b->location ? 0 : no_location(p);
		}
	}
	return r;
}

/* Sends a blob in one way, from where an earlier try broke off. As put(). */
static int send_once(struct push *p, struct push_blob *b, const char *digest)
{
	struct http_request q = { .method = HTTP_PUT };
	enum push_way way;
	bool again;
	char *url;
	/* an upload that the answer to `mount` has begun is not old */
	bool old = b->tried && b->location;
	int r = old ? look(p, b) : 0;

	again = old && b->location;
	if (r == 0 && !b->location)
		r = begin(p, b, digest, false);
	way = way_of(p, b);
	if (r == 0 && way == PUSH_PARTS)
		r = send_parts(p, b, again);
	if (r != 0)
		return r;
	if (asprintf(&url, "%s%cdigest=%s", b->location, strchr(b->location, '?') ? '&' : '?',
		     digest) < 0)
		return -ENOMEM;
	q.url = url;
	q.body = (struct http_body){ BLOB_TYPE, NULL, b->size - b->there, read_blob, b };
	r = put(p, b, &q, again);
	free(url);
	if (r == 0)
		remember(p, b, way);
	return r;
}

static int send_blob(struct push *p, struct push_blob *b, const char *digest)
{
	int r;

	/* each time in another way, or in smaller bodies */
	do
		r = send_once(p, b, digest);
	while (r > 0);
	return r;
}

/* Pins the file, once: its bytes are verified, and its size is certain. */
static int hold(struct push *p, struct push_blob *b, bool *held)
{
	int r;

	if (!b->file || *held)
		return 0;
	r = carton_pin_wait(p->c, from_node(b->file));
	if (r < 0)
		return r;
	*held = true;
	atomic_fetch_sub(&p->total, b->size_known ? b->size : 0);
	b->size = node_size(b->file);
	b->size_known = true;
	atomic_fetch_add(&p->total, b->size);
	return 0;
}

/* Is it at the registry, or was it in another repository there? As is_there(). */
static int find(struct push *p, struct push_blob *b, const char *digest)
{
	int r = is_there(p, b, digest);

	if (r == 0 && !b->location) {
		r = begin(p, b, digest, true);
		/* which says its size, too */
		if (r > 0)
			r = is_there(p, b, digest);
	}
	return r;
}

int push_blob(struct push *p, struct push_blob *b)
{
	char digest[PUSH_DIGEST];
	unsigned attempt = 0;
	uint64_t most = 0;
	bool held = false;
	int r;

	push_digest(b->sha256, digest);
	do {
		r = find(p, b, digest);
		if (r == 0) {
			/* its failures were logged, and tried again, where it comes from */
			r = hold(p, b, &held);
			if (r < 0)
				break;
			r = send_blob(p, b, digest);
			b->sent = r == 0;
		} else if (r > 0) {
			atomic_fetch_sub(&p->total, b->size_known ? b->size : 0);
			r = 0;
		}
		if (b->there >= most + RESUMED) {
			most = b->there;
			attempt = 0;
		}
		r = push_try_again(p, r, ++attempt);
	} while (r == -EINPROGRESS);
	free(b->location);
	b->location = NULL;
	if (held)
		carton_unpin(from_node(b->file));
	return r;
}

int push_manifest(struct push *p, const struct push_text *t, const char *reference)
{
	struct push_blob text = { .text = t->text };
	struct http_request q = { .method = HTTP_PUT };
	unsigned attempt = 0;
	char *url;
	int r;

	q.body = (struct http_body){ t->type, NULL, t->text->len, read_blob, &text };
	if (asprintf(&url, "%s/v2/%s/manifests/%s", p->to->server, p->to->name, reference) < 0)
		return -ENOMEM;
	q.url = url;
	do {
		struct push_answer a = { .body = NULL };

		r = push_ask(p, &q, &a);
		if (r == 0)
			r = check(p, t->what, &a, false);
		if (r == 0 && *a.head.digest && strcmp(a.head.digest, t->digest) != 0)
			r = log_error(
				-EBADMSG, p->to->name,
				"the registry %s has taken another manifest than was sent: %s",
				p->host, a.head.digest);
		free(a.location);
		r = push_try_again(p, r, ++attempt);
	} while (r == -EINPROGRESS);
	free(url);
	return r;
}
