/* SPDX-License-Identifier: Apache-2.0 */
/*
 * OMS signatures that are attached to an artifact: manifests that refer to it and have one layer, a
 * sigstore bundle. The registry lists them; one that cannot has an index under the tag sha256-HEX.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/budget.h"
#include "http/oci.h"
#include "import/internal.h"
#include "import/referrers.h"
#include "import/scan.h"

#define MAX_PAGES 16

struct found {
	struct artifact_blob blob;
	char artifact_type[ARTIFACT_TYPE], predicate[ARTIFACT_TYPE]; /* or "" */
};

struct search {
	const char *member; /* of the object, whose array has them */
	const char *name;
	struct artifact_blob found[MAX_SIGNATURES];
	size_t n, more; /* more: that are not in `found` */
};

/* ---- descriptors ---- */

static int read_predicate(struct scan *s, struct found *f)
{
	int r = scan_begin(s, JSON_OBJECT);

	if (r <= 0)
		return r;
	while (r >= 0 && (r = scan_key(s)) > 0)
		r = scan_is(s, REFERRER_PREDICATE) ?
			    scan_string(s, f->predicate, sizeof(f->predicate)) :
			    scan_skip(s);
	return r;
}

static int read_found(struct scan *s, struct found *f)
{
	int r = 0;

	*f = (struct found){ 0 };
	while (r >= 0 && (r = scan_key(s)) > 0) {
		if (scan_is(s, "mediaType"))
			r = scan_string(s, f->blob.type, sizeof(f->blob.type));
		else if (scan_is(s, "artifactType"))
			r = scan_string(s, f->artifact_type, sizeof(f->artifact_type));
		else if (scan_is(s, "digest"))
			r = scan_string(s, f->blob.digest, sizeof(f->blob.digest));
		else if (scan_is(s, "size"))
			r = scan_number(s, &f->blob.size);
		else if (scan_is(s, "annotations"))
			r = read_predicate(s, f);
		else
			r = scan_skip(s);
	}
	return r;
}

/* Other bundles are about how it was built, or scanned; not each tool says so in the list. */
static bool is_signature(const struct found *f)
{
	const char *type = *f->artifact_type ? f->artifact_type : f->blob.type;

	return strcmp(type, REFERRER_BUNDLE) == 0 &&
	       (!*f->predicate || strcmp(f->predicate, REFERRER_OMS) == 0);
}

static void note(struct search *all, const struct found *f)
{
	if (!is_signature(f) || !oci_is_digest(f->blob.digest))
		return;
	for (size_t i = 0; i < all->n; i++)
		if (strcmp(all->found[i].digest, f->blob.digest) == 0)
			return;
	if (all->n < MAX_SIGNATURES)
		all->found[all->n++] = f->blob;
	else
		all->more++;
}

static int read_array(struct scan *s, struct search *all)
{
	struct found f;
	int r = scan_begin(s, JSON_ARRAY);

	while (r > 0 && (r = scan_item(s)) > 0) {
		r = read_found(s, &f);
		if (r == 0)
			note(all, &f);
		r = r < 0 ? r : 1;
	}
	return r;
}

static int read_text(const struct buf *text, struct search *all)
{
	struct scan *s = scan_new(text->data ? text->data : "", text->len);
	int r = s ? scan_begin(s, JSON_OBJECT) : -ENOMEM;

	while (r > 0 && (r = scan_key(s)) > 0) {
		r = scan_is(s, all->member) ? read_array(s, all) : scan_skip(s);
		r = r < 0 ? r : 1;
	}
	if (r == -EBADMSG)
		log_error(r, all->name, "what the registry has of signatures is no JSON: %s",
			  s->json.fault);
	scan_free(s);
	return r;
}

int referrers_read(const char *name, const struct buf *text, const char *member,
		   struct artifact_blob ret[MAX_SIGNATURES])
{
	struct search all = { .member = member, .name = name };
	int r = read_text(text, &all);

	memcpy(ret, all.found, all.n * sizeof(*ret));
	return r < 0 ? r : (int)all.n;
}

/* ---- the list ---- */

/* Replaces the URL of a page by that of the next one, or "" after the last. */
static int go_on(const struct listing *l, const char *next, char url[HTTP_MAX_URL])
{
	char *page = NULL;
	int r = *next ? import_next(url, next, &page) : 0;

	if (r == 0)
		snprintf(url, HTTP_MAX_URL, "%s", page ? page : "");
	free(page);
	if (r == -EBADMSG)
		return log_error(r, l->name, "the list of its signatures goes on as another list");
	return r;
}

static int list_from(const struct import *im, struct listing *l, struct search *all,
		     char url[HTTP_MAX_URL])
{
	int r = 0;

	for (size_t page = 0; r == 0 && *url && page < MAX_PAGES; page++) {
		struct import_question q = { .url = url,
					     .accept = REFERRER_INDEX,
					     .may_lack = true };
		struct buf text = { 0 };

		r = import_get(im, l, &q, &text);
		if (r == 0)
			r = read_text(&text, all);
		import_forget(im, &text);
		if (r == 0)
			r = go_on(l, q.answer.next, url);
	}
	return r;
}

static int list(const struct import *im, struct listing *l, struct search *all)
{
	const struct repository *repo = l->repo;
	char url[HTTP_MAX_URL];
	int r;

	snprintf(url, sizeof(url), "%s/v2/%s/referrers/%s?artifactType=%s", repo->server,
		 repo->name, l->commit, REFERRER_BUNDLE_ENCODED);
	r = list_from(im, l, all, url);
	if (r != -ENOENT && r != -EPROTO)
		return r;
	snprintf(url, sizeof(url), "%s/v2/%s/manifests/sha256-%s", repo->server, repo->name,
		 l->commit + strlen("sha256:"));
	r = list_from(im, l, all, url);
	return r == -ENOENT ? 0 : r;
}

/* ---- one of them ---- */

static void forget(struct listing *l, struct buf *text)
{
	budget_give(l->budget, text->len);
	l->taken -= text->len;
	buf_finish(text);
}

/* Gets the bundle that a manifest has as its layer. */
static int get_bundle(const struct import *im, struct listing *l, const char *digest,
		      struct buf *ret)
{
	struct artifact_blob layers[MAX_SIGNATURES];
	struct buf text = { 0 };
	int r = oci_get(im, l, "manifests", digest, &text);

	if (r == 0)
		r = referrers_read(l->name, &text, "layers", layers);
	if (r == 0)
		r = log_error(-EBADMSG, l->name, "the signature %s has no bundle", digest);
	forget(l, &text);
	return r < 0 ? r : oci_get_blob(im, l, &layers[0], MAX_LISTING_PAGE, ret);
}

int oci_signatures(const struct import *im, struct listing *l, import_signature_fn *take, void *ctx)
{
	struct search all = { .member = "manifests", .name = l->name };
	int r = list(im, l, &all);

	if (r == 0 && all.more > 0)
		carton_log(CARTON_LOG_WARNING, l->name,
			   "has %zu signatures: only %d of them are looked at", all.n + all.more,
			   MAX_SIGNATURES);
	for (size_t i = 0; i < all.n && r == 0; i++) {
		struct buf text = { 0 };

		r = get_bundle(im, l, all.found[i].digest, &text);
		if (r == 0)
			r = take(ctx, &text);
		/* one that is damaged was logged, and the next may be right */
		else if (r == -EBADMSG || r == -EFBIG || r == -ENOENT)
			r = 0;
		forget(l, &text);
	}
	return r;
}
