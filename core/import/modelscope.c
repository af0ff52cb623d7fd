/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The API of ModelScope: one answer lists a revision. Each file has a sha256 there, so none is
 * fetched, and the commit that has changed it last, which leads to it for ever. There is no git id
 * that could be compared.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "http/ms.h"
#include "import/internal.h"
#include "import/scan.h"

#define COMMIT_TEXT (2 * SHA1_SIZE + 1)

static int malformed(const struct listing *l, const struct scan *s, const char *what)
{
	return log_error(-EBADMSG, l->name, "ModelScope's answer %s%s", what,
			 s->json.fault ? s->json.fault : "");
}

/* ---- files ---- */

struct found {
	char type[16], path[LISTING_NAME], sha256[2 * SHA256_SIZE + 1], commit[COMMIT_TEXT];
	uint64_t size;
	bool has_path, has_size;
};

static int read_found(struct scan *s, struct found *f)
{
	int r = 0;

	*f = (struct found){ 0 };
	while (r >= 0 && (r = scan_key(s)) > 0) {
		if (scan_is(s, "Type")) {
			r = scan_string(s, f->type, sizeof(f->type));
		} else if (scan_is(s, "Path")) {
			r = scan_name(s, f->path, sizeof(f->path));
			f->has_path = r > 0;
		} else if (scan_is(s, "Sha256")) {
			r = scan_string(s, f->sha256, sizeof(f->sha256));
		} else if (scan_is(s, "Revision")) {
			r = scan_string(s, f->commit, sizeof(f->commit));
		} else if (scan_is(s, "Size")) {
			r = scan_number(s, &f->size);
			f->has_size = r > 0;
		} else {
			r = scan_skip(s);
		}
	}
	return r;
}

static int add(struct listing *l, const struct scan *s, struct found *f)
{
	uint8_t sha256[SHA256_SIZE];
	struct listed *last;
	int r;

	if (strcmp(f->type, "tree") == 0)
		return 0;
	if (strcmp(f->type, "blob") != 0 || !f->has_path || !f->has_size)
		return malformed(l, s, "has a file without a path or a size");
	/* some are written in capitals */
	for (char *p = f->sha256; *p; p++)
		*p = (char)tolower((unsigned char)*p);
	if (!hex_decode(f->sha256, SHA256_SIZE, sha256))
		return log_error(-EBADMSG, f->path,
				 "listed by the repository %s, has no sha256, without which "
				 "nothing can be verified",
				 l->name);
	r = listing_add(l, f->path, f->size, NULL, sha256);
	if (r != 0 || !listing_is_commit(f->commit))
		return r;
	last = &l->files[l->n - 1];
	last->commit = arena_text(&l->names, f->commit, strlen(f->commit));
	return last->commit ? 0 : arena_error(&l->names);
}

static int read_files(struct scan *s, struct listing *l)
{
	struct found *f = malloc(sizeof(*f));
	int r = f ? scan_begin(s, JSON_ARRAY) : -ENOMEM;

	while (r > 0 && (r = scan_item(s)) > 0) {
		r = read_found(s, f);
		if (r == 0)
			r = add(l, s, f);
		r = r < 0 ? r : 1;
	}
	free(f);
	return r;
}

/* ---- the commit ---- */

/* Id is the commit, or empty, and ShortId how it begins. */
static int read_latest(struct scan *s, struct listing *l)
{
	char begins[COMMIT_TEXT] = "", id[COMMIT_TEXT] = "";
	int r = scan_begin(s, JSON_OBJECT);

	if (r <= 0)
		return r;
	while (r >= 0 && (r = scan_key(s)) > 0) {
		if (scan_is(s, "Id"))
			r = scan_string(s, id, sizeof(id));
		else if (scan_is(s, "ShortId"))
			r = scan_string(s, begins, sizeof(begins));
		else
			r = scan_skip(s);
	}
	snprintf(l->commit, sizeof(l->commit), "%s", listing_is_commit(id) ? id : begins);
	return r;
}

/* Could `f` be of the commit which begins so? */
static bool begins_with(const struct listed *f, const char *begins)
{
	return f->commit && strncmp(f->commit, begins, strlen(begins)) == 0;
}

/*
 * Finds the commit, of which the answer may have the beginning only: one that files say which it
 * has changed last, or the only one. Else l->commit is "".
 */
static void find_commit(struct listing *l)
{
	const char *found = NULL;

	for (size_t i = 0; i < l->n; i++) {
		const char *commit = l->files[i].commit;

		if (!begins_with(&l->files[i], l->commit))
			continue;
		if (found && strcmp(found, commit) != 0) {
			found = NULL;
			break;
		}
		found = commit;
	}
	snprintf(l->commit, sizeof(l->commit), "%s", found ? found : "");
}

/* Each file is at a commit, its own or that of the listing. */
static int check_commits(const struct listing *l)
{
	for (size_t i = 0; i < l->n; i++)
		if (!l->files[i].commit && !*l->commit)
			return log_error(-EBADMSG, l->files[i].path,
					 "listed by the repository %s, has no commit, so that it "
					 "may change; give one: %s@COMMIT",
					 l->name, l->name);
	return 0;
}

/* ---- the answer ---- */

static int read_data(struct scan *s, struct listing *l)
{
	int r = scan_begin(s, JSON_OBJECT);

	if (r <= 0)
		return r;
	while (r >= 0 && (r = scan_key(s)) > 0) {
		if (scan_is(s, "Files"))
			r = read_files(s, l);
		else if (scan_is(s, "LatestCommitter"))
			r = read_latest(s, l);
		else
			r = scan_skip(s);
	}
	return r;
}

int modelscope_read(struct listing *l, const struct buf *text)
{
	struct scan *s = scan_new(text->data, text->len);
	uint64_t code = 200;
	int r = s ? scan_begin(s, JSON_OBJECT) : -ENOMEM;

	while (r >= 0 && (r = scan_key(s)) > 0) {
		if (scan_is(s, "Data"))
			r = read_data(s, l);
		else if (scan_is(s, "Code"))
			r = scan_number(s, &code);
		else
			r = scan_skip(s);
	}
	if (r == -EBADMSG && s->json.fault)
		malformed(l, s, "is no JSON: ");
	else if (r == 0 && code != 200)
		r = log_error(-EBADMSG, l->name, "ModelScope's answer is the error %llu",
			      (unsigned long long)code);
	scan_free(s);
	if (r < 0)
		return r;
	if (listing_is_commit(l->repo->revision))
		snprintf(l->commit, sizeof(l->commit), "%s", l->repo->revision);
	else if (!listing_is_commit(l->commit))
		find_commit(l);
	return check_commits(l);
}

static char *listing_at(const struct repository *repo)
{
	struct buf url = buf_init(HTTP_MAX_URL);

	buf_addf(&url, "%s/api/v1/models/%s/repo/files?Revision=", repo->server, repo->name);
	buf_add_encoded(&url, repo->revision, strlen(repo->revision), "-._~");
	if (buf_adds(&url, "&Recursive=true") == 0)
		return url.data;
	buf_finish(&url);
	return NULL;
}

static int resolve(const struct import *im, struct listing *l)
{
	char next[HTTP_MAX_NEXT], *url = listing_at(l->repo);
	struct buf text = { 0 };
	int r = url ? import_ask(im, l, url, &text, next) : -ENOMEM;

	if (r == 0)
		r = modelscope_read(l, &text);
	import_forget(im, &text);
	free(url);
	return r;
}

/* resolve() has added all. */
static int list(const struct import *im, struct listing *l)
{
	(void)im;
	(void)l;
	return 0;
}

static void refused(const struct import *im, const struct listing *l, const struct http_response *a)
{
	(void)im;
	if (a->status == 404)
		carton_log(CARTON_LOG_ERROR, l->name,
			   "ModelScope has no such model, or no revision \"%s\" of it",
			   l->repo->revision);
	else if (a->status == 401 || a->status == 403)
		carton_log(CARTON_LOG_ERROR, l->name,
			   "ModelScope does not show it to everybody, and gets no token");
	else
		carton_log(CARTON_LOG_ERROR, l->name, "ModelScope refuses it with status %d",
			   a->status);
}

/* ---- addresses ---- */

static char *url(const struct listing *l, const struct listed *f)
{
	const char *path = f->path + strlen("model/");
	struct buf out = buf_init(HTTP_MAX_URL);

	buf_addf(&out, "%s/models/%s/resolve/%s/", l->repo->server, l->repo->name,
		 f->commit ? f->commit : l->commit);
	if (buf_add_encoded(&out, path, strlen(path), "-._~/") == 0)
		return out.data;
	buf_finish(&out);
	return NULL;
}

static char *homepage(const struct listing *l)
{
	char *text;

	return asprintf(&text, "%s/models/%s", ms_form.server, l->repo->name) < 0 ? NULL : text;
}

const struct lister modelscope_lister = {
	.form = &ms_form,
	.is_commit = listing_is_commit,
	.resolve = resolve,
	.list = list,
	.refused = refused,
	.url = url,
	.homepage = homepage,
};
