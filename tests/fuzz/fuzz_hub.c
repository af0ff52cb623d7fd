/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any text as an hf:// URL (the first line) and as a saved token (the rest): what is accepted leads
 * to the hub that HF_ENDPOINT names, to just this file below its repository, whatever libcurl makes
 * of dots and percents; a token is one word in one header line.
 */
#include <errno.h>
#include <string.h>

#include "base/util.h"
#include "http/hf.h"
#include "http/internal.h"

#include "fuzz.h"

#define HUB "https://hub.example:8443/base"

/* Undoes percent-encoding, into what has room for it. */
static void decode(const char *text, size_t n, char *ret)
{
	for (size_t i = 0; i < n; i++) {
		unsigned c;

		if (text[i] == '%' && n - i > 2 && sscanf(text + i + 1, "%2x", &c) == 1 &&
		    strspn(text + i + 1, "0123456789abcdefABCDEF") >= 2) {
			*ret++ = (char)c;
			i += 2;
		} else {
			*ret++ = text[i];
		}
	}
	*ret = '\0';
}

/* Is it what stands behind `resolve/REVISION/`, behind the slash and the name of the repository? */
static void check_path(const char *url, size_t repo_n, const char *path)
{
	const char *at = url + strlen(HUB) + repo_n;
	char got[HTTP_MAX_URL + 1];

	CHECK(strncmp(at, "/resolve/", strlen("/resolve/")) == 0);
	at += strlen("/resolve/");
	CHECK(strcspn(at, "/") > 0);
	at += strcspn(at, "/");
	CHECK(*at++ == '/' && !at[strcspn(at, "?#")]);
	decode(at, strlen(at), got);
	CHECK(strcmp(got, path) == 0);
}

/* Up to the slash behind it; refs/pr/1 and refs/convert/x have two. */
static size_t revision_n(const char *at)
{
	size_t n = strcspn(at, "/");
	unsigned char c;
	int end = 0;

	if (strncmp(at, "@refs/pr/", 9) == 0 && sscanf(at, "@refs/pr/%*[0-9]%n%c", &end, &c) == 1 &&
	    c == '/')
		return (size_t)end;
	if (strncmp(at, "@refs/convert/", 14) == 0 &&
	    sscanf(at, "@refs/convert/%*[0-9a-zA-Z_-]%n%c", &end, &c) == 1 && c == '/')
		return (size_t)end;
	return n;
}

static void check_url(const char *url)
{
	char *text;
	struct http_target t;
	size_t repo_n;
	const char *why, *path = url + strlen("hf://");

	CHECK(scheme_of(url) == &hf_scheme);
	if (hf_scheme.fault(url)) {
		CHECK(http_url_fault(url) && scheme_resolve(url, &text, &why) == -EINVAL);
		return;
	}
	CHECK(scheme_resolve(url, &text, &why) == 0 &&
	      strncmp(text, HUB "/", strlen(HUB "/")) == 0);
	CHECK(http_target_parse(NULL, text, &t, &why) == 0);
	/* libcurl leaves it as it is: nothing is resolved */
	CHECK(strcmp(t.url, text) == 0);
	CHECK(t.https && t.port == 8443 && strcmp(t.host, "hub.example") == 0 && !t.user);
	path += strncmp(path, "datasets/", 9) == 0 ? 9 : strncmp(path, "spaces/", 7) == 0 ? 7 : 0;
	path += strcspn(path, "/@");
	/* without an ORG only if a revision follows */
	path += *path == '/' ? 1 + strcspn(path + 1, "/@") : 0;
	repo_n = (size_t)(path - url) - strlen("hf://") + 1;
	path += revision_n(path) + 1;
	check_path(t.url, repo_n, path);
	for (const char *p = t.url; *p; p++)
		CHECK(strncasecmp(p, "/../", 4) != 0 && strncasecmp(p, "/%2e%2e/", 8) != 0 &&
		      strncasecmp(p, "/%2e/", 5) != 0);
	http_target_finish(&t);
	free(text);
}

static void check_token(const char *text, size_t n)
{
	static const char start[] = "Authorization: Bearer ";
	struct login *l = NULL;
	const char *header;
	char path[32];
	int fd = fuzz_file(text, n, path), r;

	CHECK(setenv("HF_TOKEN_PATH", path, 1) == 0);
	r = login_add(&l, "hf://org/repo/x", &(struct login_options){ 0 });
	fd_close(fd);
	header = l ? l->header : NULL;
	CHECK(r == 0 || r == -EINVAL);
	if (r == 0 && header) {
		CHECK(strncmp(header, start, strlen(start)) == 0 && header[strlen(start)]);
		for (const char *p = header + strlen(start); *p; p++)
			CHECK(*p > ' ' && *p < 0x7f);
		/* all of it, or nothing */
		CHECK(memmem(text, n, header + strlen(start), strlen(header + strlen(start))));
		login_free(l);
	} else {
		CHECK(!header);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	const char *nl = memchr(data, '\n', n);
	size_t line = nl ? (size_t)(nl - (const char *)data) : n;
	char *url;

	CHECK(http_load_curl() == 0 && setenv("HF_ENDPOINT", HUB "/", 1) == 0);
	unsetenv("HF_TOKEN");
	unsetenv("HUGGING_FACE_HUB_TOKEN");
	CHECK(asprintf(&url, "hf://%.*s", (int)line, (const char *)data) >= 0);
	check_url(url);
	free(url);
	if (nl)
		check_token(nl + 1, n - line - 1);
	return 0;
}
