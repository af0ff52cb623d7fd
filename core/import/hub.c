/* SPDX-License-Identifier: Apache-2.0 */
/* The API of a hub: the commit of a revision, and the pages of its tree. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "http/hf.h"
#include "import/internal.h"
#include "import/scan.h"

/*
 * The address of the repository at `hub`, and `end` behind it: the kind is a part of it unless that
 * is models. malloc'ed; NULL: no memory.
 */
static char *address_of(const struct repository *repo, const char *hub, const char *end)
{
	bool model = strcmp(repo->kind, "models") == 0;
	char *text;
	int n = asprintf(&text, "%s/%s%s%s%s", hub, model ? "" : repo->kind, model ? "" : "/",
			 repo->name, end);

	return n < 0 ? NULL : text;
}

/* A URL of the API. `encoded` is percent-encoded here, `query` is not. NULL: no memory. */
static char *url_of(const struct repository *repo, const char *what, const char *encoded,
		    const char *query)
{
	struct buf url = buf_init(HTTP_MAX_URL);

	buf_addf(&url, "%s/api/%s/%s/%s/", repo->server, repo->kind, repo->name, what);
	buf_add_encoded(&url, encoded, strlen(encoded), "-._~");
	if (buf_adds(&url, query) == 0)
		return url.data;
	buf_finish(&url);
	return NULL;
}

static int malformed(const struct listing *l, const struct scan *s, const char *what)
{
	return log_error(-EBADMSG, l->name, "the hub's answer %s%s", what,
			 s->json.fault ? s->json.fault : "");
}

/* ---- the commit ---- */

static bool is_commit(const char *text)
{
	return strlen(text) == 2 * SHA1_SIZE && hex_valid(text, SHA1_SIZE);
}

/* Is it written as a license of SPDX? Another text is left out. */
static bool is_license(const char *text)
{
	for (; *text; text++)
		if (!isalnum((unsigned char)*text) && !strchr("-.+ ()", *text))
			return false;
	return true;
}

static int read_card(struct scan *s, struct listing *l)
{
	char license[128];
	int r = scan_begin(s, JSON_OBJECT);

	if (r <= 0)
		return r;
	while (r >= 0 && (r = scan_key(s)) > 0) {
		if (!scan_is(s, "license") || l->license) {
			r = scan_skip(s);
			continue;
		}
		r = scan_string(s, license, sizeof(license));
		if (r > 0 && *license && is_license(license) && !(l->license = strdup(license)))
			r = -ENOMEM;
	}
	return r;
}

int hub_read_revision(struct listing *l, const struct buf *text)
{
	struct scan *s = scan_new(text->data, text->len);
	int r = s ? scan_begin(s, JSON_OBJECT) : -ENOMEM;

	while (r >= 0 && (r = scan_key(s)) > 0) {
		if (scan_is(s, "sha"))
			r = scan_string(s, l->commit, sizeof(l->commit));
		else if (scan_is(s, "cardData"))
			r = read_card(s, l);
		else
			r = scan_skip(s);
	}
	if (r == -EBADMSG)
		malformed(l, s, "is no JSON: ");
	else if (r == 0 && !is_commit(l->commit))
		r = malformed(l, s, "has no commit");
	scan_free(s);
	return r;
}

/* Logs what the status of the hub's answer means for the user. Returns `r`. */
static int explain(const struct repository *repo, int r)
{
	char *address = r == -EACCES ? address_of(repo, repo->server, "") : NULL;

	if (r == -ENOENT)
		carton_log(CARTON_LOG_ERROR, repo->name,
			   "the hub has no such repository, or no revision \"%s\" of it",
			   repo->revision);
	if (address)
		carton_log(CARTON_LOG_ERROR, repo->name,
			   "the hub does not show it without a token that may see it: it is gated, "
			   "private, or not there. Ask for access at %s, and give a token in "
			   "HF_TOKEN",
			   address);
	free(address);
	return r;
}

static int resolve(const struct import *im, struct listing *l)
{
	const struct repository *repo = l->repo;
	char next[HTTP_MAX_NEXT], *url = url_of(repo, "revision", repo->revision, "");
	struct buf text = { 0 };
	int r = url ? import_ask(im, url, &text, next) : -ENOMEM;

	r = r < 0 ? explain(repo, r) : hub_read_revision(l, &text);
	/* nor may a branch have the name of a commit */
	if (r == 0 && is_commit(repo->revision) && strcmp(l->commit, repo->revision) != 0)
		r = log_error(-EBADMSG, repo->name, "the hub's answer is about another commit, %s",
			      l->commit);
	buf_finish(&text);
	free(url);
	return r;
}

/* ---- the files ---- */

struct found {
	char type[16], path[MAX_PATH_LEN + 1], oid[2 * SHA1_SIZE + 1], sha256[2 * SHA256_SIZE + 1];
	uint64_t size, lfs_size;
	bool has_size, lfs, has_lfs_size;
};

static int read_lfs(struct scan *s, struct found *f)
{
	int r = scan_begin(s, JSON_OBJECT);

	if (r <= 0)
		return r;
	f->lfs = true;
	while (r >= 0 && (r = scan_key(s)) > 0) {
		if (scan_is(s, "oid")) {
			r = scan_string(s, f->sha256, sizeof(f->sha256));
		} else if (scan_is(s, "size")) {
			r = scan_number(s, &f->lfs_size);
			f->has_lfs_size = r > 0;
		} else {
			r = scan_skip(s);
		}
	}
	return r;
}

static int read_found(struct scan *s, struct found *f)
{
	int r = 0;

	*f = (struct found){ 0 };
	while (r >= 0 && (r = scan_key(s)) > 0) {
		if (scan_is(s, "type")) {
			r = scan_string(s, f->type, sizeof(f->type));
		} else if (scan_is(s, "path")) {
			r = scan_string(s, f->path, sizeof(f->path));
		} else if (scan_is(s, "oid")) {
			r = scan_string(s, f->oid, sizeof(f->oid));
		} else if (scan_is(s, "size")) {
			r = scan_number(s, &f->size);
			f->has_size = r > 0;
		} else if (scan_is(s, "lfs")) {
			r = read_lfs(s, f);
		} else {
			r = scan_skip(s);
		}
	}
	return r;
}

static int add(struct listing *l, const struct scan *s, const struct found *f)
{
	uint8_t oid[SHA1_SIZE], sha256[SHA256_SIZE];

	if (strcmp(f->type, "directory") == 0)
		return 0;
	if (strcmp(f->type, "file") != 0 || !*f->path || !f->has_size ||
	    !hex_decode(f->oid, SHA1_SIZE, oid))
		return malformed(l, s, "has a file without a path, a size or a git id");
	if (!f->lfs)
		return listing_add(l, f->path, f->size, oid, NULL);
	if (!f->has_lfs_size || f->lfs_size != f->size ||
	    !hex_decode(f->sha256, SHA256_SIZE, sha256))
		return log_error(-EBADMSG, f->path,
				 "listed by the repository %s, has no sha256, or two sizes",
				 l->name);
	return listing_add(l, f->path, f->size, oid, sha256);
}

int hub_read_page(struct listing *l, const struct buf *text)
{
	struct scan *s = scan_new(text->data, text->len);
	struct found *f = malloc(sizeof(*f));
	int r = s && f ? scan_begin(s, JSON_ARRAY) : -ENOMEM;

	if (r == 0)
		r = malformed(l, s, "is no list of files");
	while (r > 0 && (r = scan_item(s)) > 0) {
		r = read_found(s, f);
		if (r == 0)
			r = add(l, s, f);
		r = r < 0 ? r : 1;
	}
	if (r == -EBADMSG && s->json.fault)
		malformed(l, s, "is no JSON: ");
	free(f);
	scan_free(s);
	return r;
}

/* Checks where a page leads: to the same server, and not from an empty page. */
static int next_page(const struct repository *repo, const struct listing *l, size_t before,
		     const char *next)
{
	size_t n = strlen(repo->server);

	if (strncmp(next, repo->server, n) != 0 || next[n] != '/')
		return log_error(-EBADMSG, l->name,
				 "the list of its files goes on at another server, which is not "
				 "asked");
	if (l->n == before)
		return log_error(-EBADMSG, l->name,
				 "the list of its files has an empty page, and goes on");
	return 0;
}

static int list(const struct import *im, struct listing *l)
{
	const struct repository *repo = l->repo;
	char next[HTTP_MAX_NEXT],
		*url = url_of(repo, "tree", l->commit, "?recursive=true&expand=false");
	int r = url ? 0 : -ENOMEM;

	for (size_t page = 0; r == 0 && url; page++) {
		struct buf text = { 0 };
		size_t before = l->n;

		r = page < MAX_LISTING_PAGES ? import_ask(im, url, &text, next) :
					       log_error(-EFBIG, l->name,
							 "the list of its files has more than %d "
							 "pages",
							 MAX_LISTING_PAGES);
		if (r == 0)
			r = hub_read_page(l, &text);
		if (r == 0 && *next)
			r = next_page(repo, l, before, next);
		buf_finish(&text);
		free(url);
		url = r == 0 && *next ? strdup(next) : NULL;
		if (r == 0 && *next && !url)
			r = -ENOMEM;
	}
	return r;
}

/* ---- addresses ---- */

static char *url(const struct listing *l, const struct listed *f)
{
	const char *path = f->path + strlen("model/");
	struct buf out = buf_init(HTTP_MAX_URL);
	char *base = address_of(l->repo, l->repo->server, "/resolve/");

	if (base) {
		buf_addf(&out, "%s%s/", base, l->commit);
		free(base);
		if (buf_add_encoded(&out, path, strlen(path), "-._~/") == 0)
			return out.data;
	}
	buf_finish(&out);
	return NULL;
}

static char *homepage(const struct listing *l)
{
	return address_of(l->repo, hf_form.server, "");
}

static bool takes(const char *source)
{
	return repository_is_whole(&hf_form, source);
}

static int parse(const char *source, struct repository *ret)
{
	return repository_parse(&hf_form, source, ret);
}

const struct lister hub_lister = {
	.takes = takes,
	.parse = parse,
	.is_commit = is_commit,
	.resolve = resolve,
	.list = list,
	.url = url,
	.homepage = homepage,
};
