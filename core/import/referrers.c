/* SPDX-License-Identifier: Apache-2.0 */
/*
 * OMS signatures that are attached to an artifact: manifests that refer to it and have one layer, a
 * sigstore bundle. The registry lists them; one that cannot has an index under the tag sha256-HEX.
 */
#include <search.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/budget.h"
#include "http/oci.h"
#include "import/internal.h"
#include "import/referrers.h"
#include "import/scan.h"

/* ---- descriptors ---- */

struct found {
	struct artifact_blob blob;
	char artifact_type[ARTIFACT_TYPE], predicate[ARTIFACT_TYPE]; /* or "" */
};

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

static int read_array(struct scan *s, referrer_fn *take, void *ctx)
{
	struct found f;
	int r = scan_begin(s, JSON_ARRAY);

	while (r > 0 && (r = scan_item(s)) > 0) {
		r = read_found(s, &f);
		if (r == 0 && is_signature(&f) && oci_is_digest(f.blob.digest))
			r = take(ctx, &f.blob);
		r = r < 0 ? r : 1;
	}
	return r;
}

int referrers_read(const struct buf *text, const char *member, referrer_fn *take, void *ctx,
		   struct reason *why)
{
	struct scan *s = scan_new(text->data ? text->data : "", text->len);
	int r = s ? scan_begin(s, JSON_OBJECT) : -ENOMEM;

	while (r > 0 && (r = scan_key(s)) > 0) {
		r = scan_is(s, member) ? read_array(s, take, ctx) : scan_skip(s);
		r = r < 0 ? r : 1;
	}
	if (r == -EBADMSG)
		reason_set(why, r, "what the registry has of signatures is no JSON: %s",
			   s->json.fault);
	scan_free(s);
	return r;
}

/* ---- the search ---- */

/* A signature of a page of the list. */
struct attached {
	char digest[OCI_DIGEST_SIZE]; /* of its manifest */
	uint64_t size;
	struct attached *next;
};

struct search {
	const struct import *im;
	struct listing *l;
	import_signature_fn *take;
	void *ctx;
	int64_t deadline_ms;
	uint64_t left;		      /* bytes that may be fetched */
	bool more;		      /* there was no time, or no room in `left`, for some */
	size_t n, bad;		      /* how many were looked at, and how many could not be read */
	void *met;		      /* the digests that were seen: a tree of tsearch(3) */
	size_t n_met;		      /* number of digests in `met` */
	struct attached *page, **end; /* those of a page that are new */
};

static int compare(const void *a, const void *b)
{
	return strcmp(a, b);
}

/* Digests live as long as the listing, and only the nodes of the tree are freed. */
static void keep_digest(void *digest)
{
	(void)digest;
}

/* 1: it is a new one, and *ret is it; 0: it was met before; -ENOMEM or -EFBIG. */
static int meet(struct search *s, const struct artifact_blob *blob, struct attached **ret)
{
	struct attached *a;

	if (tfind(blob->digest, &s->met, compare))
		return 0;
	a = arena_alloc(&s->l->names, sizeof(*a));
	if (!a)
		return arena_error(&s->l->names);
	memcpy(a->digest, blob->digest, sizeof(a->digest));
	a->size = blob->size;
	a->next = NULL;
	if (!tsearch(a->digest, &s->met, compare))
		return -ENOMEM;
	s->n_met++;
	*ret = a;
	return 1;
}

/* A referrer_fn: of the list. */
static int note(void *ctx, const struct artifact_blob *manifest)
{
	struct search *s = ctx;
	struct attached *a;
	int r;

	/* there would be no room to look at more of them */
	if (s->n_met >= MAX_ATTACHED / ATTACHED_COST) {
		s->more = true;
		return 0;
	}
	r = meet(s, manifest, &a);
	if (r > 0) {
		*s->end = a;
		s->end = &a->next;
	}
	return r;
}

/* Are there time and bytes left for an answer of `n` bytes? If not, sets s->more. */
static bool may_ask(struct search *s, uint64_t n)
{
	uint64_t cost = n > MAX_LISTING_PAGE ? ATTACHED_COST : MAX(n, ATTACHED_COST);
	bool may = cost <= s->left && now_ms() < s->deadline_ms;

	s->more |= !may;
	return may;
}

/* Counts an answer that should have had `n` bytes, which were read for `r`. */
static void count(struct search *s, const struct buf *text, int r, uint64_t n)
{
	bool unknown = !text->data && (r == -EFBIG || r == -EBADMSG) && n <= MAX_LISTING_PAGE;
	uint64_t cost = MAX(unknown ? n : text->len, ATTACHED_COST);

	s->left -= MIN(cost, s->left);
}

/* ---- one of them ---- */

static void forget(struct listing *l, struct buf *text)
{
	budget_give(l->budget, text->len);
	l->taken -= text->len;
	buf_finish(text);
}

/* Is what one signature failed with of no matter for the others? */
static bool may_go_on(int r)
{
	return r == -EBADMSG || r == -EFBIG || r == -ENOENT || r == -EACCES || r == -EPROTO;
}

/* A referrer_fn: the first of the layers. */
static int take_layer(void *ctx, const struct artifact_blob *layer)
{
	struct artifact_blob *ret = ctx;

	if (!*ret->digest)
		*ret = *layer;
	return 0;
}

/* Gets an answer that is a part of a signature. */
static int get_part(struct search *s, const struct oci_part *p, struct buf *ret)
{
	int r = oci_get_attached(s->im, s->l, p, ret);

	count(s, ret, r, p->size);
	return r;
}

static int read_layer(const struct search *s, const struct oci_part *p, const struct buf *text,
		      struct artifact_blob *ret)
{
	struct reason why = { 0 };
	int r = referrers_read(text, "layers", take_layer, ret, &why);

	if (r == 0 && !*ret->digest)
		r = reason_set(&why, -EBADMSG, "the signature %s has no bundle", p->digest);
	if (r == -EBADMSG && !p->quiet)
		log_error(r, s->l->name, "%s", why.text);
	return r;
}

/* Gets the bundle that a manifest has as its layer. 1; 0: it is not looked at; or -errno. */
static int get_bundle(struct search *s, const struct attached *a, struct buf *ret)
{
	bool quiet = s->bad >= MAX_REPORTED;
	struct oci_part p = { "manifests", a->digest, a->size, quiet };
	struct artifact_blob layer = { 0 };
	struct attached *bundle = NULL;
	struct buf text = { 0 };
	int r = get_part(s, &p, &text);

	if (r == 0)
		r = read_layer(s, &p, &text, &layer);
	forget(s->l, &text);
	/* one that many manifests have is looked at once */
	if (r == 0)
		r = meet(s, &layer, &bundle);
	if (r <= 0 || !may_ask(s, bundle->size))
		return MIN(r, 0);
	p = (struct oci_part){ "blobs", bundle->digest, bundle->size, quiet };
	r = get_part(s, &p, ret);
	return r < 0 ? r : 1;
}

/* 1: it was taken; 0: it was not, or could not be read; or -errno. */
static int look_at(struct search *s, const struct attached *a)
{
	struct buf text = { 0 };
	int r = get_bundle(s, a, &text);

	if (r > 0) {
		s->n++;
		r = s->take(s->ctx, &text);
	} else if (may_go_on(r)) {
		s->bad++;
		r = 0;
	}
	forget(s->l, &text);
	return r;
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

/* Reads a page of the list into s->page. */
static int read_page(struct search *s, char url[HTTP_MAX_URL])
{
	struct import_question q = { .url = url, .accept = REFERRER_INDEX, .may_lack = true };
	struct buf text = { 0 };
	struct reason why;
	int r = import_get(s->im, s->l, &q, &text);

	count(s, &text, r, MAX_LISTING_PAGE);
	s->page = NULL;
	s->end = &s->page;
	if (r == 0) {
		r = referrers_read(&text, "manifests", note, s, &why);
		if (r == -EBADMSG)
			log_error(r, s->l->name, "%s", why.text);
	}
	import_forget(s->im, &text);
	return r < 0 ? r : go_on(s->l, q.answer.next, url);
}

/* Looks at what each page has before it asks for the next one. */
static int search_list(struct search *s, char url[HTTP_MAX_URL])
{
	int r = 0;

	for (size_t page = 0; r == 0 && *url && may_ask(s, 0); page++) {
		if (page == MAX_LISTING_PAGES) {
			s->more = true;
			break;
		}
		r = read_page(s, url);
		for (const struct attached *a = s->page; a && r == 0 && may_ask(s, a->size);
		     a = a->next)
			r = look_at(s, a);
	}
	return r;
}

static int search(struct search *s)
{
	const struct repository *repo = s->l->repo;
	const char *commit = s->l->commit;
	char url[HTTP_MAX_URL];
	int r;

	snprintf(url, sizeof(url), "%s/v2/%s/referrers/%s?artifactType=%s", repo->server,
		 repo->name, commit, REFERRER_BUNDLE_ENCODED);
	r = search_list(s, url);
	if (r != -ENOENT && r != -EPROTO)
		return r;
	snprintf(url, sizeof(url), "%s/v2/%s/manifests/sha256-%s", repo->server, repo->name,
		 commit + strlen("sha256:"));
	r = search_list(s, url);
	return r == -ENOENT ? 0 : r;
}

/* Says what was not read. */
static void report(const struct search *s)
{
	const char *name = s->l->name;

	if (s->bad > MAX_REPORTED)
		carton_log(CARTON_LOG_WARNING, name, "has %zu signatures more that cannot be read",
			   s->bad - MAX_REPORTED);
	if (s->more)
		carton_log(CARTON_LOG_WARNING, name,
			   "has more signatures than the %zu that were looked at, of which none is "
			   "the right one: no more than %llu MiB of them are read, %d pages of the "
			   "list, or for %lld s; signature= names the right one",
			   s->n, (unsigned long long)(MAX_ATTACHED / MIB), MAX_LISTING_PAGES,
			   (long long)(s->im->attached_ms / 1000));
}

int oci_signatures(const struct import *im, struct listing *l, import_signature_fn *take, void *ctx)
{
	struct search s = {
		.im = im,
		.l = l,
		.take = take,
		.ctx = ctx,
		.deadline_ms = now_ms() + im->attached_ms,
		.left = MAX_ATTACHED,
	};
	int r = search(&s);

	tdestroy(s.met, keep_digest);
	if (r == 0)
		report(&s);
	return r;
}
