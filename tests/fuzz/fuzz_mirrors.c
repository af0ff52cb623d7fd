/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any text as a template of a mirror (the first line) and as the path of a file (the second): each
 * URL or path that a template makes is at the place that its user has named, whatever the carton
 * calls the file.
 */
#include <errno.h>
#include <string.h>

#include "base/util.h"
#include "fetch/mirrors.h"
#include "http/internal.h"

#include "fuzz.h"

#define SOURCE "https://source.example/a%20b/m.carton"

/* The first URL that a mirror has for an object; false: none, as it would be too long. */
static bool first_url(const struct mirrors *m, const uint8_t sha256[SHA256_SIZE], const char *path,
		      char *ret)
{
	char **urls;
	bool found;

	CHECK(mirrors_urls(m, sha256, path, &urls) == 0);
	found = urls[0];
	if (found) {
		CHECK(!urls[1] && strlen(urls[0]) <= HTTP_MAX_URL);
		strcpy(ret, urls[0]);
	}
	free(urls[0]);
	free(urls);
	return found;
}

/* The path of the file changes neither where it is asked for, nor as whom. */
static void check_place(const char *a, const char *b)
{
	struct http_target at[2];
	const struct scheme *scheme = scheme_of(a);
	const char *why;

	CHECK(scheme_of(b) == scheme);
	if (scheme && scheme->fault) {
		CHECK(scheme->fault(a) || scheme->fault(b) || scheme->links_may(a, b));
		return;
	}
	if (http_target_parse(NULL, a, &at[0], &why) < 0)
		return;
	if (http_target_parse(NULL, b, &at[1], &why) == 0) {
		CHECK(http_same_origin(&at[0], &at[1]));
		CHECK(!at[0].user == !at[1].user &&
		      (!at[0].user || strcmp(at[0].user, at[1].user) == 0));
		http_target_finish(&at[1]);
	}
	http_target_finish(&at[0]);
}

static void check_directories(const struct mirrors *m, const char *template)
{
	const char *const *d = mirrors_directories(m);

	CHECK(!d == (*template != '/'));
	if (d)
		CHECK(!d[1] && **d == '/' &&
		      strncmp(*d, template, MIN(strlen(*d), strlen(template))) == 0 &&
		      !strpbrk(*d, "{"));
}

static void check_mirrors(const struct mirrors *m, const char *template, const char *path)
{
	static const uint8_t zeros[SHA256_SIZE];
	char a[HTTP_MAX_URL + 1], b[HTTP_MAX_URL + 1], *carton;

	CHECK(strchr(template, '{') || *template == '/');
	check_directories(m, template);
	/* a file has a path that is fine in a carton, or it is not there */
	if (path_fault(path, strlen(path)))
		path = "model/x";
	if (first_url(m, zeros, "x", a)) {
		CHECK(mirrors_have_urls(m) && *template != '/');
		if (first_url(m, zeros, path, b))
			check_place(a, b);
	}
	carton = mirrors_carton(m, 0);
	CHECK(!mirrors_carton(m, 1));
	CHECK(!carton || (!mirrors_have_urls(m) && strstr(template, "{source}")));
	free(carton);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	char *text = strndup((const char *)data, n), *nl, *list[2] = { text };
	const char *path;
	struct mirrors *m;
	int r;

	CHECK(text && http_load_curl() == 0);
	nl = strchr(text, '\n');
	path = nl ? nl + 1 : "";
	if (nl)
		*nl = '\0';
	r = mirrors_new(list, SOURCE, &m);
	CHECK(r == 0 || r == -EINVAL || r == -ENOMEM);
	if (r == 0) {
		check_mirrors(m, text, path);
		mirrors_free(m);
	}
	free(text);
	return 0;
}
