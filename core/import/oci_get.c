/* SPDX-License-Identifier: Apache-2.0 */
/* Gets the parts of an artifact from a registry, and compares them with their digests. */
#include <stdio.h>
#include <stdlib.h>

#include "base/budget.h"
#include "http/oci.h"
#include "import/internal.h"

#define ACCEPT                                                   \
	"application/vnd.oci.image.manifest.v1+json, "           \
	"application/vnd.oci.image.index.v1+json, "              \
	"application/vnd.docker.distribution.manifest.v2+json, " \
	"application/vnd.docker.distribution.manifest.list.v2+json"

int oci_digest(const struct buf *text, char ret[OCI_DIGEST_SIZE])
{
	uint8_t sha256[SHA256_SIZE];
	int r = sha256_mem(text->data ? text->data : "", text->len, sha256);

	memcpy(ret, "sha256:", 7);
	hex_encode(sha256, SHA256_SIZE, ret + 7);
	return r;
}

/* From here on, an answer takes the memory that it needs, which listing_finish() gives back. */
static int keep(const struct import *im, struct listing *l, struct buf *answer)
{
	int r;

	import_uncount(im, answer);
	r = budget_take(l->budget, answer->len);
	if (r == 0)
		l->taken += answer->len;
	else
		buf_finish(answer);
	return r;
}

/* A part of an artifact that one server is asked for. */
struct part {
	const char *what, *which; /* WHAT/WHICH of the URL; if WHICH is a digest, it is compared */
	uint64_t max;		  /* bytes that it may have; 0: as many as a page */
	bool mirror;		  /* the server is a mirror */
	bool quiet;		  /* as in a question */
};

/* Compares `text` with the digest that was asked for, and with `said`, that of the server. */
static int check(const struct listing *l, const struct part *p, const char *said,
		 const struct buf *text)
{
	const char *name = l->repo->name;
	char digest[OCI_DIGEST_SIZE];
	bool other, lies;
	int r = oci_digest(text, digest);

	if (r < 0)
		return r;
	other = oci_is_digest(p->which) && strcmp(p->which, digest) != 0;
	lies = oci_is_digest(said) && strcmp(said, digest) != 0;
	if ((other || lies) && p->quiet)
		return -EBADMSG;
	if (other)
		return log_error(-EBADMSG, name, "the registry sends other bytes than %s",
				 p->which);
	return !lies ? 0 :
		       log_error(-EBADMSG, name,
				 "the registry says that \"%s\" is %s, but sends other bytes",
				 p->which, said);
}

static int get_at(const struct import *im, struct listing *l, const char *base,
		  const struct part *p, struct buf *ret)
{
	struct import_question q = { .accept = strcmp(p->what, "manifests") == 0 ? ACCEPT : NULL,
				     .anywhere = oci_is_digest(p->which),
				     .max = p->max,
				     .mirror = p->mirror,
				     .quiet = p->quiet };
	char *url;
	int r;

	if (asprintf(&url, "%s/%s/%s", base, p->what, p->which) < 0)
		return -ENOMEM;
	q.url = url;
	r = import_get(im, l, &q, ret);
	free(url);
	if (r == 0)
		r = keep(im, l, ret);
	if (r == 0)
		r = check(l, p, q.answer.digest, ret);
	return r;
}

/*
 * Asks the mirrors one by one. A mirror is trusted to say which manifest a tag is. 0; -ENOENT: no
 * mirror has the part; -ENOMEM; -ECANCELED.
 */
static int get_at_mirrors(const struct import *im, struct listing *l, const struct part *p,
			  struct buf *ret)
{
	bool manifest = strcmp(p->what, "manifests") == 0, pinned = oci_is_digest(p->which);
	const struct part asked = { p->what, p->which, p->max, true, true };

	for (size_t i = 0; i < im->n_mirrors; i++) {
		const struct registry_mirror *m = &im->mirrors[i];
		uint64_t taken = l->taken;
		int r;

		if (manifest && !(pinned ? m->digests : m->tags))
			continue;
		r = get_at(im, l, m->base, &asked, ret);
		if (r == 0 || r == -ENOMEM || r == -ECANCELED)
			return r;
		budget_give(l->budget, l->taken - taken);
		l->taken = taken;
		buf_finish(ret);
	}
	return -ENOENT;
}

static int get(const struct import *im, struct listing *l, const struct part *p, struct buf *ret)
{
	char *base;
	int r = get_at_mirrors(im, l, p, ret);

	if (r != -ENOENT)
		return r;
	if (asprintf(&base, "%s/v2/%s", l->repo->server, l->repo->name) < 0)
		return -ENOMEM;
	r = get_at(im, l, base, p, ret);
	free(base);
	return r;
}

/* The text of that sha256 from the cache, in memory that the budget counts. */
static int get_kept(const struct import *im, struct listing *l, const uint8_t sha256[SHA256_SIZE],
		    struct buf *ret)
{
	struct buf text = buf_init(MAX_LISTING_PAGE);
	int r = kept_text(im, sha256, &text);

	if (r == 0) {
		l->taken += text.len;
		*ret = text;
	} else {
		buf_finish(&text);
	}
	return r;
}

/* Adds a copy to l->texts, which are kept once the artifact is complete. Best effort. */
static void remember(struct listing *l, const struct buf *text)
{
	struct listed_text *list = array_grow(l->texts, &l->cap_texts, l->n_texts + 1,
					      sizeof(*list));
	struct listed_text *to;

	if (!list)
		return;
	l->texts = list;
	to = &list[l->n_texts];
	to->text = buf_init(text->len);
	if (!text->len || sha256_mem(text->data, text->len, to->sha256) < 0 ||
	    budget_take(l->budget, text->len) < 0)
		return;
	l->taken += text->len;
	if (buf_add(&to->text, text->data, text->len) == 0)
		l->n_texts++;
}

/* From the cache, else as get(). *ret_fetched: it was not in the cache. */
static int find(const struct import *im, struct listing *l, const struct part *p, struct buf *ret,
		bool *ret_fetched)
{
	uint8_t sha256[SHA256_SIZE];
	bool pinned = oci_is_digest(p->which) &&
		      hex_decode(p->which + strlen("sha256:"), SHA256_SIZE, sha256);
	int r = pinned ? get_kept(im, l, sha256, ret) : -ENOENT;

	*ret_fetched = r == -ENOENT && im->fetch;
	return *ret_fetched ? get(im, l, p, ret) : r;
}

int oci_get(const struct import *im, struct listing *l, const char *what, const char *which,
	    struct buf *ret)
{
	const struct part p = { .what = what, .which = which };
	bool fetched;
	int r = find(im, l, &p, ret, &fetched);

	if (r == 0 && fetched && im->cache)
		remember(l, ret);
	return r;
}

int oci_get_blob(const struct import *im, struct listing *l, const struct artifact_blob *blob,
		 uint64_t max, struct buf *ret)
{
	if (!oci_is_digest(blob->digest))
		return log_error(-EBADMSG, l->name,
				 "a part of the artifact (%s) has no digest that is sha256",
				 blob->type);
	if (blob->size > max)
		return log_error(-EFBIG, l->name,
				 "a part of the artifact (%s) is larger than %llu KiB", blob->type,
				 (unsigned long long)(max / KIB));
	return oci_get(im, l, "blobs", blob->digest, ret);
}

int oci_get_attached(const struct import *im, struct listing *l, const struct oci_part *part,
		     struct buf *ret)
{
	const struct part p = { .what = part->what,
				.which = part->digest,
				.max = MAX(part->size, ATTACHED_COST),
				.quiet = part->quiet };
	bool fetched;

	if (part->size <= MAX_LISTING_PAGE)
		return find(im, l, &p, ret, &fetched);
	return part->quiet ? -EFBIG :
			     log_error(-EFBIG, l->name,
				       "a part of a signature (%s) is larger than %llu KiB",
				       part->digest, (unsigned long long)(MAX_LISTING_PAGE / KIB));
}
