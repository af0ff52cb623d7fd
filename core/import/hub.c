/* SPDX-License-Identifier: Apache-2.0 */
/* The API of a hub: the commit of a revision, and the pages of its tree. */
#include <stdio.h>
#include <stdlib.h>

#include "http/hf.h"
#include "import/internal.h"
#include "import/scan.h"

#define MAX_MARKS 16 /* files that a warning names */

/*
 * The address of the repository at `hub`, and `end` behind it: the kind is a part of it unless that
 * is models. malloc'ed; NULL: no memory.
 */
static char *address_of(const struct listing *l, const char *hub, const char *end)
{
	const char *kind = l->repo->kind;
	bool model = strcmp(kind, "models") == 0;
	char *text;
	int n = asprintf(&text, "%s/%s%s%s%s", hub, model ? "" : kind, model ? "" : "/", l->name,
			 end);

	return n < 0 ? NULL : text;
}

/* A URL of the API. `encoded` is percent-encoded here, `query` is not. NULL: no memory. */
static char *url_of(const struct listing *l, const char *what, const char *encoded,
		    const char *query)
{
	struct buf url = buf_init(HTTP_MAX_URL);

	buf_addf(&url, "%s/api/%s/%s/%s/", l->repo->server, l->repo->kind, l->name, what);
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
		if (r > 0)
			r = listing_license(l, license);
	}
	return r;
}

/* Warns of a file that the hub has scanned, and marked. */
static int read_mark(struct scan *s, const struct listing *l, unsigned *n)
{
	char path[MAX_PATH_LEN + 1] = "", level[16] = "";
	int r = 0;

	while (r >= 0 && (r = scan_key(s)) > 0) {
		if (scan_is(s, "path"))
			r = scan_string(s, path, sizeof(path));
		else if (scan_is(s, "level"))
			r = scan_string(s, level, sizeof(level));
		else
			r = scan_skip(s);
	}
	if (r == 0 && (strcmp(level, "unsafe") == 0 || strcmp(level, "suspicious") == 0) &&
	    ++*n <= MAX_MARKS)
		carton_log(CARTON_LOG_WARNING, path, "is marked %s by the hub, in %s", level,
			   l->name);
	return r;
}

static int read_marks(struct scan *s, const struct listing *l)
{
	int r = scan_begin(s, JSON_OBJECT);
	unsigned n = 0;

	if (r <= 0)
		return r;
	while (r >= 0 && (r = scan_key(s)) > 0) {
		r = scan_is(s, "filesWithIssues") ? scan_begin(s, JSON_ARRAY) : scan_skip(s);
		while (r > 0 && (r = scan_item(s)) > 0) {
			r = read_mark(s, l, &n);
			r = r < 0 ? r : 1;
		}
	}
	if (n > MAX_MARKS)
		carton_log(CARTON_LOG_WARNING, l->name, "has %u more files that the hub has marked",
			   n - MAX_MARKS);
	return r;
}

/*
 * The same repository has several names: letters in another case, and those that it had before.
 * MANIFEST and LINKS have the one that the hub says.
 */
static int take_id(struct listing *l)
{
	char url[sizeof("hf://") + sizeof(l->id)];
	struct repository_parts p;

	if (!*l->id)
		return 0;
	snprintf(url, sizeof(url), "hf://%s", l->id);
	if (repository_split(&hf_form, url, &p) || p.name != p.repo || p.repo[p.repo_len])
		return log_error(-EBADMSG, l->name,
				 "the hub calls it by a name that no repository has");
	if (strcasecmp(l->id, l->name) != 0)
		carton_log(CARTON_LOG_WARNING, l->name,
			   "is called %s now: use that name, as another may get the old one",
			   l->id);
	l->name = l->id;
	return 0;
}

/* The value is false, or how requests for access are granted: "auto" or "manual". */
static int read_gated(struct scan *s, struct listing *l)
{
	char how[16];
	int r = scan_string(s, how, sizeof(how));

	l->gated = r > 0;
	return r;
}

int hub_read_revision(struct listing *l, const struct buf *text)
{
	struct scan *s = scan_new(text->data, text->len);
	int r = s ? scan_begin(s, JSON_OBJECT) : -ENOMEM;

	while (r >= 0 && (r = scan_key(s)) > 0) {
		if (scan_is(s, "sha"))
			r = scan_string(s, l->commit, sizeof(l->commit));
		else if (scan_is(s, "id"))
			r = scan_string(s, l->id, sizeof(l->id));
		else if (scan_is(s, "gated"))
			r = read_gated(s, l);
		else if (scan_is(s, "cardData"))
			r = read_card(s, l);
		else if (scan_is(s, "securityRepoStatus"))
			r = read_marks(s, l);
		else
			r = scan_skip(s);
	}
	if (r == -EBADMSG)
		malformed(l, s, "is no JSON: ");
	else if (r == 0 && !listing_is_commit(l->commit))
		r = malformed(l, s, "has no commit");
	scan_free(s);
	return r < 0 ? r : take_id(l);
}

static int resolve(const struct import *im, struct listing *l)
{
	const char *revision = l->repo->revision;
	/* of models, which files the hub has found to be unsafe */
	bool model = strcmp(l->repo->kind, "models") == 0;
	char next[HTTP_MAX_NEXT],
		*url = url_of(l, "revision", revision, model ? "?securityStatus=true" : "");
	struct buf text = { 0 };
	int r = url ? import_ask(im, l, url, &text, next) : -ENOMEM;

	if (r == 0)
		r = hub_read_revision(l, &text);
	/* nor may a branch have the name of a commit */
	if (r == 0 && listing_is_commit(revision) && strcmp(l->commit, revision) != 0)
		r = log_error(-EBADMSG, l->name, "the hub's answer is about another commit, %s",
			      l->commit);
	import_forget(im, &text);
	free(url);
	return r;
}

/* ---- the files ---- */

struct found {
	char type[16], path[LISTING_NAME], oid[2 * SHA1_SIZE + 1], sha256[2 * SHA256_SIZE + 1];
	uint64_t size, lfs_size;
	bool has_path, has_size, lfs, has_lfs_size;
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
			r = scan_name(s, f->path, sizeof(f->path));
			f->has_path = r > 0;
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
	if (strcmp(f->type, "file") != 0 || !f->has_path || !f->has_size ||
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

/* Replaces the URL of a page by that of the next one, or NULL after the last. */
static int go_on(const struct listing *l, const char *next, const char *earlier, char **url)
{
	char *asked = *url;
	int r;

	*url = NULL;
	r = *next ? import_next(asked, next, url) : 0;
	free(asked);
	if (r == -EBADMSG)
		return log_error(r, l->name, "the list of its files goes on at another commit");
	if (r == 0 && *url && strcmp(*url, earlier) == 0)
		return log_error(-EBADMSG, l->name,
				 "the list of its files goes on where it has been, in a circle");
	return r;
}

static int list(const struct import *im, struct listing *l)
{
	char next[HTTP_MAX_NEXT], earlier[HTTP_MAX_URL + HTTP_MAX_NEXT] = "";
	char *url = url_of(l, "tree", l->commit, "?recursive=true&expand=false");
	int r = url ? 0 : -ENOMEM;

	for (size_t page = 0; r == 0 && url; page++) {
		struct buf text = { 0 };

		r = page < MAX_LISTING_PAGES ? import_ask(im, l, url, &text, next) :
					       log_error(-EFBIG, l->name,
							 "the list of its files has more than %d "
							 "pages",
							 MAX_LISTING_PAGES);
		if (r == 0)
			r = hub_read_page(l, &text);
		import_forget(im, &text);
		if (r == 0)
			r = go_on(l, next, earlier, &url);
		/* a circle comes back to one of these, however long it is */
		if (r == 0 && url && (page & (page + 1)) == 0)
			snprintf(earlier, sizeof(earlier), "%s", url);
	}
	free(url);
	return r;
}

/* ---- refusals ---- */

/* What X-Error-Code says; without one, 401 is also what hides that a repository exists. */
static void refused(const struct import *im, const struct listing *l, const struct http_response *a)
{
	const char *code = a->reason, *revision = l->repo->revision;
	bool unknown = strcmp(code, "RepoNotFound") == 0;
	char *at = address_of(l, l->repo->server, "");

	if (!at)
		return;
	if (strcmp(code, "GatedRepo") == 0 || (a->status == 403 && !*code))
		carton_log(CARTON_LOG_ERROR, l->name, "is gated: ask for access at %s%s", at,
			   im->token ? "; the account of your token has none" :
				       ", and give a token in HF_TOKEN");
	else if (strcmp(code, "RevisionNotFound") == 0)
		carton_log(CARTON_LOG_ERROR, l->name,
			   "has no revision \"%s\": its branches and tags are at %s", revision, at);
	else if (a->status == 401 && !im->token)
		carton_log(CARTON_LOG_ERROR, l->name,
			   "does not exist, or is private: then a token is needed, in HF_TOKEN or "
			   "as hf auth login saves it");
	else if (a->status == 401 && !unknown)
		carton_log(CARTON_LOG_ERROR, l->name,
			   "the hub refuses your token: give another in HF_TOKEN, or run hf auth "
			   "login");
	else if (unknown)
		carton_log(CARTON_LOG_ERROR, l->name,
			   "does not exist, or your token may not see it: look at %s", at);
	else if (*l->commit && !*code && a->status >= 404 && a->status <= 405)
		carton_log(CARTON_LOG_ERROR, l->name,
			   "%s has its commit, but %s; is it a proxy of a hub? Set HF_ENDPOINT to "
			   "one that has all, or mount what cartonctl import makes where there is "
			   "one",
			   l->repo->server,
			   l->n == 0 ? "does not list its files (/api/.../tree)" :
				       "not all that it lists");
	else if (a->status == 404 && !*code)
		carton_log(
			CARTON_LOG_ERROR, l->name,
			"the hub has no such repository, or no revision \"%s\" of it: look at %s",
			revision, at);
	else
		carton_log(CARTON_LOG_ERROR, l->name,
			   "the hub refuses it with status %d%s%s: look at %s", a->status,
			   *code ? ", " : "", code, at);
	free(at);
}

/* ---- addresses ---- */

static char *url(const struct listing *l, const struct listed *f)
{
	const char *path = f->path + strlen("model/");
	struct buf out = buf_init(HTTP_MAX_URL);
	char *base = address_of(l, l->repo->server, "/resolve/");

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
	return address_of(l, hf_form.server, "");
}

const struct lister hub_lister = {
	.form = &hf_form,
	.git_ids = true,
	.is_commit = listing_is_commit,
	.resolve = resolve,
	.list = list,
	.refused = refused,
	.url = url,
	.homepage = homepage,
};
