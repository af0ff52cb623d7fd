/* SPDX-License-Identifier: Apache-2.0 */
#include "http/repository.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "base/limits.h"
#include "base/util.h"

#define WORD "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
#define NAME WORD "."

/* Is it `.` or `..`, percent-encoded or not? */
static bool is_dots(const char *text, size_t n)
{
	unsigned dots = 0;

	for (const char *end = text + n; text < end; dots++) {
		size_t one = *text == '.' ? 1 : strncasecmp(text, "%2e", 3) == 0 ? 3 : 0;

		if (!one)
			return false;
		text += one;
	}
	return dots == 1 || dots == 2;
}

/* Moves *at behind a name, to one of the characters `ends`, or to the end. */
static bool skip_name(const char **at, const char *ends)
{
	size_t n = strspn(*at, NAME);

	if (n == 0 || is_dots(*at, n) || !memchr(ends, (*at)[n], strlen(ends) + 1))
		return false;
	*at += n;
	return true;
}

/* The length of `datasets/` or `spaces/` in front of a name on a hub; else 0. */
static size_t kind_len(const struct repository_form *form, const char *text)
{
	static const char *const kinds[] = { "datasets/", "spaces/" };

	for (size_t i = 0; i < ARRAY_SIZE(kinds) && form->hub; i++)
		if (strncmp(text, kinds[i], strlen(kinds[i])) == 0)
			return strlen(kinds[i]);
	return 0;
}

/* The length of a revision. It ends at a slash, but a hub has revisions with slashes: refs[]. */
static size_t revision_len(const struct repository_form *form, const char *text)
{
	static const char *const refs[][2] = { { "refs/pr/", "0123456789" },
					       { "refs/convert/", WORD } };

	for (size_t i = 0; i < ARRAY_SIZE(refs) && form->hub; i++) {
		size_t n = strlen(refs[i][0]), more;

		more = strncmp(text, refs[i][0], n) == 0 ? strspn(text + n, refs[i][1]) : 0;
		if (more && (!text[n + more] || text[n + more] == '/'))
			return n + more;
	}
	return strcspn(text, "/");
}

const char *repository_split(const struct repository_form *form, const char *url,
			     struct repository_parts *ret)
{
	const char *p = url + strlen(form->scheme);

	ret->repo = p;
	ret->name = p += kind_len(form, p);
	if (!skip_name(&p, "/@") || (*p == '/' && p[1] ? p++, !skip_name(&p, "/@") : !form->hub))
		return form->faults[0];
	ret->repo_len = (size_t)(p - ret->repo);
	ret->revision = p + (*p == '@');
	ret->revision_len = revision_len(form, ret->revision);
	if ((*p == '@') != (ret->revision_len > 0) || is_dots(ret->revision, ret->revision_len))
		return form->faults[1];
	ret->path = NULL;
	/* a slash at the end is as none */
	if (!ret->revision[ret->revision_len] || !ret->revision[ret->revision_len + 1])
		return NULL;
	ret->path = ret->revision + ret->revision_len + 1;
	/* libcurl would resolve these components */
	for (p = ret->path - 1; p; p = strchr(p + 1, '/'))
		if (is_dots(p + 1, strcspn(p + 1, "/")))
			return "a path with the component . or .. cannot be asked for";
	return NULL;
}

const char *repository_file_fault(const struct repository_form *form, const char *url)
{
	struct repository_parts parts;
	const char *what = strlen(url) > HTTP_MAX_URL / 4 ? "the URL is too long" :
							    repository_split(form, url, &parts);

	return what || parts.path ? what : form->faults[2];
}

/* The server that the user wants: its base URL, *ret_n characters of it. */
static const char *find_server(const struct repository_form *form, int *ret_n)
{
	const char *server = getenv(form->endpoint);
	int n;

	server = server && *server ? server : form->server;
	for (n = (int)MIN(strlen(server), (size_t)HTTP_MAX_URL); n > 0 && server[n - 1] == '/';)
		n--;
	*ret_n = n;
	return server;
}

char *repository_server(const struct repository_form *form)
{
	int n;
	const char *server = find_server(form, &n);

	return strndup(server, (size_t)n);
}

char *repository_resolve(const struct repository_form *form, const char *url)
{
	struct buf out = buf_init(HTTP_MAX_URL + 1);
	struct repository_parts p;
	const char *server;
	int n, r;

	if (repository_split(form, url, &p) || !p.path)
		return NULL;
	server = find_server(form, &n);
	r = buf_addf(&out, "%.*s/%s%.*s/resolve/", n, server, form->above, (int)p.repo_len, p.repo);
	if (r == 0 && p.revision_len > 0)
		r = buf_add_encoded(&out, p.revision, p.revision_len, "-._~%");
	else if (r == 0)
		r = buf_adds(&out, form->revision);
	if (r == 0)
		r = buf_addc(&out, '/');
	if (r == 0)
		r = buf_add_encoded(&out, p.path, strlen(p.path), "-._~/{}");
	if (r < 0) {
		buf_finish(&out);
		return NULL;
	}
	return out.data;
}

/* ---- a repository ---- */

bool repository_is_whole(const struct repository_form *form, const char *url)
{
	struct repository_parts p;

	return strncasecmp(url, form->scheme, strlen(form->scheme)) == 0 &&
	       strlen(url) <= HTTP_MAX_URL / 4 && !repository_split(form, url, &p) && !p.path;
}

/* "%2F" is a slash; what is no escape stays. */
static void decode(char *text)
{
	char *to = text;

	for (; *text; text++) {
		unsigned c;

		if (*text == '%' && isxdigit((unsigned char)text[1]) &&
		    isxdigit((unsigned char)text[2]) && sscanf(text + 1, "%2x", &c) == 1) {
			*to++ = (char)c;
			text += 2;
		} else {
			*to++ = *text;
		}
	}
	*to = '\0';
}

int repository_parse(const struct repository_form *form, const char *url, struct repository *ret)
{
	struct repository_parts p;

	repository_split(form, url, &p);
	*ret = (struct repository){ .kind = p.name == p.repo ? "models" :
					    *p.repo == 'd'   ? "datasets" :
							       "spaces" };
	ret->server = repository_server(form);
	ret->name = strndup(p.name, p.repo_len - (size_t)(p.name - p.repo));
	ret->revision = p.revision_len ? strndup(p.revision, p.revision_len) :
					 strdup(form->revision);
	if (!ret->server || !ret->name || !ret->revision) {
		repository_finish(ret);
		return -ENOMEM;
	}
	decode(ret->revision);
	return 0;
}

void repository_by_http(struct repository *r, bool http)
{
	const char *rest = strstr(r->server, "://"), *scheme = http ? "http" : "https";
	char *text;

	/* where there is no memory, it stays as it is */
	if (rest && asprintf(&text, "%s%s", scheme, rest) >= 0) {
		free(r->server);
		r->server = text;
	}
}

void repository_finish(struct repository *r)
{
	free(r->server);
	free(r->name);
	free(r->revision);
	*r = (struct repository){ 0 };
}
