/* SPDX-License-Identifier: Apache-2.0 */
/* A blob, and the manifest, on their way to the registry. */
#include <stdio.h>
#include <stdlib.h>

#include "fetch/version.h"
#include "http/http.h"
#include "push/internal.h"

#define MANIFEST_TYPE "application/vnd.oci.image.manifest.v1+json"
#define BLOB_TYPE "application/octet-stream"

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

/* What is not 2xx: 0, or the -errno. Logged, unless it may pass. */
static int check(const struct push *p, const char *what, const struct push_answer *a)
{
	int status = a->head.status, r = http_status_errno(status);
	const char *why = *a->why ? a->why : meaning(status);

	if (r == 0 || fetch_error_passes(r))
		return r;
	if (r == -EACCES)
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

	if (b->file)
		return carton_read(from_node(b->file), ret, n, off, false);
	memcpy(ret, b->text->data + off, n);
	return (ssize_t)n;
}

/* Is it at the registry? Then its size is known. 1, 0, or -errno of a failure that may pass. */
static int is_there(struct push *p, struct push_blob *b, const char *digest)
{
	struct http_request q = { .method = HTTP_HEAD };
	struct push_answer a;
	char *url;
	int r;

	if (asprintf(&url, "%s/v2/%s/blobs/%s", p->to->server, p->to->name, digest) < 0)
		return -ENOMEM;
	q.url = url;
	r = push_ask(p, &q, &a);
	free(url);
	if (r < 0)
		return r;
	free(a.location);
	r = http_status_errno(a.head.status);
	/* who may not read may still write: that is asked next */
	if (r < 0)
		return fetch_error_passes(r) ? r : 0;
	if (a.head.length < 0 || (b->size_known && b->size != (uint64_t)a.head.length))
		return 0;
	b->size = (uint64_t)a.head.length;
	return 1;
}

/* Begins an upload. 0, and the URL for the bytes, as the registry says, malloc'ed in *ret. */
static int begin(struct push *p, const char *what, char **ret)
{
	struct http_request q = { .method = HTTP_POST };
	struct push_answer a;
	char *url;
	int r;

	if (asprintf(&url, "%s/v2/%s/blobs/uploads/", p->to->server, p->to->name) < 0)
		return -ENOMEM;
	q.url = url;
	r = push_ask(p, &q, &a);
	free(url);
	if (r == 0)
		r = check(p, what, &a);
	if (r < 0) {
		free(a.location);
		return r;
	}
	if (!a.location)
		return log_error(-EPROTO, p->to->name,
				 "the registry %s does not say where to send it, or names another "
				 "server, which gets nothing",
				 p->host);
	*ret = a.location;
	return 0;
}

static int put(struct push *p, const char *what, const struct http_request *q,
	       struct http_response *ret)
{
	struct push_answer a;
	int r = push_ask(p, q, &a);

	if (r < 0)
		return r;
	free(a.location);
	*ret = a.head;
	return check(p, what, &a);
}

static int send_blob(struct push *p, struct push_blob *b, const char *digest)
{
	struct http_request q = { .method = HTTP_PUT,
				  .body = { BLOB_TYPE, b->size, read_blob, b } };
	struct http_response head;
	char *location = NULL, *url;
	int r = begin(p, name_of(b), &location);

	if (r < 0)
		return r;
	if (asprintf(&url, "%s%cdigest=%s", location, strchr(location, '?') ? '&' : '?', digest) <
	    0)
		url = NULL;
	q.url = url;
	r = url ? put(p, name_of(b), &q, &head) : -ENOMEM;
	free(location);
	free(url);
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

/* -EINPROGRESS: after a pause, for a failure that may pass; else what it was. */
static int try_again(struct push *p, int r, unsigned attempt)
{
	int64_t pause = server_pause(attempt, atomic_load(&p->retry_after_s));

	if (r >= 0 || !fetch_error_passes(r) || cancel_fired(&p->cancel))
		return r;
	/* that it is not reached was logged */
	if (attempt == MAX_FETCH_ATTEMPTS)
		return r != -EAGAIN && r != -EBUSY ?
			       r :
			       log_error(-EREMOTEIO, p->to->name,
					 "the registry %s is overloaded, or fails; try again later",
					 p->host);
	cancel_sleep(&p->cancel, MIN(pause, p->c->fetch.timeout_ms));
	return -EINPROGRESS;
}

int push_blob(struct push *p, struct push_blob *b)
{
	char digest[PUSH_DIGEST];
	unsigned attempt = 0;
	bool held = false;
	int r;

	push_digest(b->sha256, digest);
	do {
		r = is_there(p, b, digest);
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
		r = try_again(p, r, ++attempt);
	} while (r == -EINPROGRESS);
	if (held)
		carton_unpin(from_node(b->file));
	return r;
}

int push_tag(struct push *p, const char *digest)
{
	struct push_blob text = { .text = &p->artifact };
	struct http_request q = { .method = HTTP_PUT };
	struct http_response head;
	unsigned attempt = 0;
	char *url;
	int r;

	q.body = (struct http_body){ MANIFEST_TYPE, p->artifact.len, read_blob, &text };
	if (asprintf(&url, "%s/v2/%s/manifests/%s", p->to->server, p->to->name, p->to->revision) <
	    0)
		return -ENOMEM;
	q.url = url;
	do {
		r = put(p, "the manifest", &q, &head);
		if (r == 0 && *head.digest && strcmp(head.digest, digest) != 0)
			r = log_error(
				-EBADMSG, p->to->name,
				"the registry %s has taken another manifest than was sent: %s",
				p->host, head.digest);
		r = try_again(p, r, ++attempt);
	} while (r == -EINPROGRESS);
	free(url);
	return r;
}
