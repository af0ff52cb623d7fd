/* SPDX-License-Identifier: Apache-2.0 */
/*
 * No secret of a URL is in anything that is shown, kept or given to others. The input is lines:
 * what the user typed, where a redirect leads, a template, lines of a header file. Its bytes 1 to 3
 * become a marker, in three ways of writing it. Who reads the lines as libcurl does, or as browsers
 * do, knows where the marker is secret; where it is in nothing else, no output may have it.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "http/hf.h"
#include "http/internal.h"
#include "fetch/mirrors.h"
#include "writer/lists.h"
#include "common/privacy.h"

#include "fuzz.h"

#define MARKER "q7Zk"
#define MAX_TEXT 2048
#define LINES 4

static const char *const written[] = { MARKER, "%717%5ak", "%2571%37%5A%6b" };

/* ---- outputs ---- */

/* Is the marker in it, raw or decoded? */
static bool shows(const char *text)
{
	static char copy[16 * MAX_TEXT];
	size_t n = strlen(text), to = 0;
	unsigned byte;

	if (strcasestr(text, MARKER))
		return true;
	if (!strchr(text, '%'))
		return false;
	CHECK(n < sizeof(copy));
	memcpy(copy, text, n + 1);
	while (to != n) {
		n = to ? to : n;
		to = 0;
		for (size_t i = 0; i < n; i++) {
			if (copy[i] == '%' && isxdigit((unsigned char)copy[i + 1]) &&
			    isxdigit((unsigned char)copy[i + 2]) &&
			    sscanf(copy + i + 1, "%2x", &byte) == 1 && byte) {
				copy[to++] = (char)byte;
				i += 2;
			} else {
				copy[to++] = copy[i];
			}
		}
		copy[to] = '\0';
	}
	return strcasestr(copy, MARKER);
}

static bool quiet; /* the log may not have the marker */

static void on_log(void *ctx, enum carton_log_level level, const char *subject, const char *message)
{
	(void)ctx;
	(void)level;
	CHECK(!quiet || (!(subject && shows(subject)) && !shows(message)));
}

/* ---- where it is secret ---- */

/* For a reader: is the marker in the userinfo, query or fragment; in what else? */
struct seen {
	bool secret, open;
};

static void see(bool *ret, CURLU *u, CURLUPart part)
{
	char *text = NULL;

	if (curl_url_get(u, part, &text, 0) == CURLUE_OK)
		*ret |= shows(text);
	curl_free(text);
}

/* False: libcurl does not read it. */
static bool curl_reads(const char *text, unsigned flags, bool parameters, struct seen *ret)
{
	static const CURLUPart secret[] = { CURLUPART_USER, CURLUPART_PASSWORD, CURLUPART_OPTIONS,
					    CURLUPART_FRAGMENT };
	CURLU *u = curl_url();
	bool good;

	CHECK(u);
	*ret = (struct seen){ false, false };
	good = curl_url_set(u, CURLUPART_URL, text, flags | CURLU_PATH_AS_IS) == CURLUE_OK;
	if (good) {
		for (size_t i = 0; i < ARRAY_SIZE(secret); i++)
			see(&ret->secret, u, secret[i]);
		see(parameters ? &ret->open : &ret->secret, u, CURLUPART_QUERY);
		see(&ret->open, u, CURLUPART_HOST);
		/* a zone is read without its percent sign */
		ret->open |= strchr(text, '[') && shows(strchr(text, '['));
		see(&ret->open, u, CURLUPART_PATH);
		see(&ret->open, u, CURLUPART_SCHEME);
	}
	curl_url_cleanup(u);
	return good;
}

/*
 * As browsers: without controls, with slashes for backslashes, and any number of them. False: no
 * URL of the web.
 */
static bool browser_reads(const char *text, bool parameters, struct seen *ret)
{
	static char copy[MAX_TEXT + 1], userinfo[MAX_TEXT + 1], rest[MAX_TEXT + 1];
	size_t n = 0, authority;
	char *p = copy, *at;

	for (; *text; text++)
		if ((unsigned char)*text > ' ')
			copy[n++] = *text == '\\' ? '/' : *text;
	copy[n] = '\0';
	if (strncasecmp(p, "http:", 5) == 0)
		p += 5;
	else if (strncasecmp(p, "https:", 6) == 0)
		p += 6;
	else
		return false;
	p += strspn(p, "/");
	authority = strcspn(p, "/?#");
	at = memrchr(p, '@', authority);
	n = at ? (size_t)(at - p) : 0;
	memcpy(userinfo, p, n);
	userinfo[n] = '\0';
	strcpy(rest, p + n);
	n = strcspn(rest, "?#");
	at = parameters ? strchr(rest, '#') : rest + n;
	ret->secret = shows(userinfo) || (at && shows(at));
	if (at)
		*at = '\0';
	ret->open = shows(rest);
	return true;
}

/* hf://NAME@REVISION, where NAME is no token. */
static bool is_revision(const char *text)
{
	size_t n;

	if (strncasecmp(text, "hf://", 5) != 0)
		return false;
	text += 5;
	n = strspn(text, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_.");
	return text[n] == '@' && !memchr(text + n + 1, '@', strcspn(text + n + 1, "/?#")) &&
	       strncasecmp(text, "hf_", 3) != 0 && strncasecmp(text, "api_", 4) != 0;
}

/* Must all output of a URL be without the marker? `parameters`: a query may be seen. */
static bool is_secret(const char *text, bool parameters)
{
	static const unsigned flags[] = { 0, CURLU_URLENCODE | CURLU_ALLOW_SPACE |
						     CURLU_NON_SUPPORT_SCHEME };
	struct seen seen;
	/* else it is the name of a file, with a colon in it */
	bool url = http_is_url(text) || strncmp(text + strcspn(text, "/:?#"), "://", 3) == 0;

	if (is_revision(text))
		return false;
	for (size_t i = 0; url && i < ARRAY_SIZE(flags); i++)
		if (curl_reads(text, flags[i], parameters, &seen) && seen.secret)
			return !seen.open;
	return browser_reads(text, parameters, &seen) && seen.secret && !seen.open;
}

/* Is it nowhere but in the userinfo, the fragment and parameters with such a name? */
static bool is_in_secret_parameter(const char *text)
{
	static const char *const names[] = { "token",
					     "access_token",
					     "sig",
					     "X-Amz-Signature",
					     "Signature",
					     "api_key",
					     "X-Goog-Signature",
					     "password",
					     "key",
					     "X-Amz-Credential",
					     "X-Amz-Security-Token" };
	size_t query = strcspn(text, "?#");
	struct seen whole;
	static char head[MAX_TEXT + 1], parameter[MAX_TEXT + 1];
	bool secret = false;

	memcpy(head, text, query);
	head[query] = '\0';
	if (!http_is_url(head) || !curl_reads(head, 0, false, &whole) || whole.open)
		return false;
	for (const char *p = text + query; *p && *p != '#';) {
		size_t n = strcspn(++p, "&#"), name = strcspn(p, "=&#");
		bool listed = false;

		memcpy(parameter, p, n);
		parameter[n] = '\0';
		for (size_t i = 0; i < ARRAY_SIZE(names); i++)
			listed |= strlen(names[i]) == name && strncasecmp(p, names[i], name) == 0;
		/* Azure's and CloudFront's need no other */
		if (shows(parameter) && !listed)
			return false;
		secret |= shows(parameter);
		p += n;
	}
	return secret || whole.secret || shows(text + query);
}

/* ---- what makes output ---- */

static void check_shown(const char *text, bool secret)
{
	static char shown[HTTP_MAX_URL + 128], arg[MAX_TEXT + 64];
	char small[40];

	http_url_redact(text, shown, sizeof(shown));
	CHECK(!secret || !shows(shown));
	CHECK(http_url_redact(text, small, sizeof(small)) == small &&
	      strlen(small) < sizeof(small));
	http_source_label(text, shown, sizeof(shown));
	CHECK(!secret || !shows(shown));
	strcpy(arg, text);
	privacy_hide(arg);
	CHECK(!secret || !shows(arg));
	snprintf(arg, sizeof(arg), "mirror=%s", text);
	privacy_hide(arg);
	CHECK(!secret || !shows(arg));
	snprintf(arg, sizeof(arg), "-oallow_other,mirror=%s,timeout=5", text);
	privacy_hide(arg);
	CHECK(!secret || !shows(arg));
	snprintf(arg, sizeof(arg), "--url=%s", text);
	privacy_hide(arg);
	CHECK(!secret || !shows(arg));
}

/*
 * The URL as others get it: still a URL, the same again, no userinfo; and what is harmless stays.
 */
static void check_public(const char *text, bool secret)
{
	static const char identity[] = "?id=5";
	char *public = http_url_public(text), *again, *plain = http_url_unsigned(text);
	size_t n = strlen(text), tail = strlen(identity);
	struct seen seen;

	CHECK(!public || !secret || !http_is_url(text) || !shows(public));
	CHECK(!public || !is_in_secret_parameter(text) || !shows(public));
	/* what follows a bucket or a repository is a name, of which any part may be missing */
	if (public && !http_url_fault(text) && strncasecmp(text, "http", 4) == 0) {
		CHECK(!http_url_fault(public) && !http_url_has_userinfo(public));
		CHECK(curl_reads(public, 0, true, &seen) && !strchr(public, '#'));
		again = http_url_public(public);
		CHECK(again && strcmp(again, public) == 0);
		free(again);
		if (n > tail && !strpbrk(text, "#;:@%") && strcmp(text + n - tail, identity) == 0)
			CHECK(strcmp(public + strlen(public) - tail, identity) == 0);
	}
	CHECK(!plain || strlen(plain) <= n);
	http_url_expiry(text);
	free(public);
	free(plain);
}

/* A redirect: what is logged is where it leads, never its userinfo. */
static void check_redirect(const char *from, const char *to)
{
	struct http_target base = { 0 }, next = { 0 };
	const char *why = NULL;
	struct seen seen;

	if (http_target_parse(NULL, from, &base, &why) < 0)
		return;
	CHECK(!strchr(base.url, '#') && !http_url_has_userinfo(base.url));
	if (http_target_parse(&base, to, &next, &why) == 0) {
		/* a zone may have a space, which makes the URL one that is not read again */
		if (!curl_reads(next.url, 0, false, &seen))
			seen = (struct seen){ false, false };
		CHECK(!http_url_has_userinfo(next.url));
		check_shown(next.url, seen.secret && !seen.open);
		/* credentials stay with scheme, host and port */
		if (http_same_origin(&base, &next))
			CHECK(base.https == next.https && base.port == next.port &&
			      strcasecmp(base.host, next.host) == 0);
	}
	http_target_finish(&next);
	http_target_finish(&base);
}

static void check_template(const char *text, const char *source)
{
	static const uint8_t sha256[32];
	char *templates[] = { (char *)text, NULL };
	bool only_secret = is_in_secret_parameter(source) && !http_url_fault(source);
	struct mirrors *m = NULL;
	char **urls, *url;

	quiet = is_secret(text, false);
	lists_template_fault(text);
	/* templates of S3 look for keys */
	if (mirrors_new(templates, source, &m) < 0)
		return;
	quiet = only_secret && !shows(text);
	for (size_t i = 0; (url = mirrors_carton(m, i)); i++) {
		CHECK(!quiet || !shows(url));
		free(url);
	}
	CHECK(mirrors_urls(m, sha256, "model/x", &urls) == 0);
	for (size_t i = 0; urls[i]; i++) {
		CHECK(!quiet || !shows(urls[i]));
		free(urls[i]);
	}
	free(urls);
	mirrors_free(m);
}

/* What a header file has is never told, whatever is wrong with it. */
static void check_headers(const char *text)
{
	static int fd = -1;
	char path[32], **headers;

	if (fd < 0)
		fd = memfd_create("headers", 0);
	CHECK(fd >= 0 && ftruncate(fd, 0) == 0);
	CHECK(pwrite(fd, text, strlen(text), 0) == (ssize_t)strlen(text));
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	quiet = true;
	if (http_headers_load(path, &headers) == 0)
		http_headers_free(headers);
}

/*
 * The lines of an answer, of which redirects and validators are kept; and libcurl's text of a
 * proxy.
 */
static void check_answer(const char *text, const char *from)
{
	struct http_header header;
	bool end = false;
	static struct http http;
	static struct http_stream s = { .http = &http, .proxied = true };
	const char *why;
	static char line[MAX_TEXT + 32];

	http_header_init(&header);
	http_header_line(&header, "HTTP/1.1 302 x", 14, &end);
	snprintf(line, sizeof(line), "Location: %s", text);
	http_header_line(&header, line, strlen(line), &end);
	snprintf(line, sizeof(line), "WWW-Authenticate: Basic realm=\"%s\"", text);
	http_header_line(&header, line, strlen(line), &end);
	if (http_header_redirect(&header))
		check_redirect(from, http_header_redirect(&header));
	http_header_finish(&header);
	snprintf(s.error_text, sizeof(s.error_text), "Unsupported proxy syntax in '%s'", text);
	http_hop_error(&s, CURLE_COULDNT_RESOLVE_PROXY, &why);
	CHECK(!shows(why));
}

/* ---- the input ---- */

static void expand(const uint8_t *data, size_t n, char *ret)
{
	size_t to = 0;

	for (size_t i = 0; i < n && to + 16 < MAX_TEXT; i++) {
		if (data[i] >= 1 && data[i] <= 3)
			to += (size_t)sprintf(ret + to, "%s", written[data[i] - 1]);
		else if (data[i])
			ret[to++] = (char)data[i];
	}
	ret[to] = '\0';
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static char lines[LINES][MAX_TEXT + 1];
	const uint8_t *p = data, *end = data + n;

	CHECK(http_load_curl() == 0);
	carton_log_set(on_log, NULL);
	for (size_t i = 0; i < LINES; i++) {
		const uint8_t *newline = p < end ? memchr(p, '\n', (size_t)(end - p)) : NULL;
		const uint8_t *last = newline && i + 1 < LINES ? newline : end;

		expand(p, (size_t)(last - p), lines[i]);
		p = newline && i + 1 < LINES ? newline + 1 : end;
	}
	quiet = is_secret(lines[0], false);
	for (size_t i = 0; i < 3; i++) {
		check_shown(lines[i], is_secret(lines[i], false));
		check_public(lines[i], is_secret(lines[i], true));
	}
	quiet = false;
	check_redirect(lines[0], lines[1]);
	check_template(lines[2], lines[0]);
	check_headers(lines[3]);
	check_answer(lines[1], lines[0]);
	return 0;
}
