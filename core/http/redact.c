/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the secrets of a URL: its userinfo, and the parameters of its query that sign or permit a
 * request. Each URL that is shown, or given to another server, comes from here.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "http/aws.h"
#include "http/internal.h"

#define SCHEME_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-."
#define MAX_LIFE_S (100L * 365 * 24 * 3600)
#define MAX_NAME 64	/* bytes of a parameter's name; a longer one is taken for a secret */
#define MAX_DECODINGS 4 /* as URLs in URLs in URLs have */

/* ---- form ---- */

/*
 * A name, an address or one in brackets, and perhaps a port. Bytes above ASCII are those of a name,
 * but those of fullwidth forms (which begin with EF), which IDNA makes : / and @ of. Braces are
 * those of templates.
 */
static bool is_host(const char *text, size_t n, bool port_allowed)
{
	static const char chars[] =
		"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-._~{}";
	size_t len = 0, most = n;

	if (n > 0 && *text == '[') {
		len = 1 + strspn(text + 1, "0123456789abcdefghijklmnopqrstuvwxyz"
					   "ABCDEFGHIJKLMNOPQRSTUVWXYZ:.%-_~");
		if (len >= n || text[len++] != ']')
			return false;
	} else {
		while (len < most &&
		       (strchr(chars, text[len]) ||
			((unsigned char)text[len] >= 0x80 && (unsigned char)text[len] != 0xef)))
			len++;
	}
	if (len == 0 || len == n)
		return len > 0;
	if (text[len] != ':' || !port_allowed)
		return false;
	for (len++; len < n && isdigit((unsigned char)text[len]); len++)
		;
	return len == n;
}

bool http_url_split(const char *url, struct http_url_parts *ret)
{
	struct http_url_parts p = { .scheme = strspn(url, SCHEME_CHARS) };
	const struct scheme *scheme = scheme_of(url);
	const char *at;
	bool named;

	if (!isalpha((unsigned char)*url) || strncmp(url + p.scheme, "://", 3) != 0)
		return false;
	p.userinfo = p.scheme + 3;
	p.path = p.userinfo + strcspn(url + p.userinfo, "/?#");
	p.query = p.path + strcspn(url + p.path, "?#");
	for (size_t i = p.userinfo; i < p.path; i++)
		if ((unsigned char)url[i] <= ' ' || url[i] == 0x7f || url[i] == '\\')
			return false;
	at = memrchr(url + p.userinfo, '@', p.path - p.userinfo);
	named = at && scheme && scheme->is_name &&
		scheme->is_name(url + p.userinfo, (size_t)(at - url) - p.userinfo);
	p.host = at && !named ? (size_t)(at + 1 - url) : p.userinfo;
	/* a bucket has no port, and the keys of a store may have slashes: s3://ID:SECRET@BUCKET/ */
	if (!named && !is_host(url + p.host, p.path - p.host, !scheme || scheme->port))
		return false;
	*ret = p;
	return true;
}

bool http_is_url(const char *text)
{
	return scheme_like(text) != NULL;
}

/* A path of the file system: not //, which is how a URL without its scheme begins. */
static bool is_path(const char *text)
{
	return *text == '.' || (text[0] == '/' && text[1] != '/');
}

/* The length of SCHEME in SCHEME://, 0: there is none. */
static size_t any_scheme(const char *text)
{
	const char *end = strstr(text, "://");

	return end && strcspn(text, "/?#") > (size_t)(end - text) ? (size_t)(end - text) : 0;
}

/* ---- parameters ---- */

/*
 * Parameters of signatures. `with`: the name is that of a signature only if this parameter is in
 * the query too.
 */
static const struct {
	const char *name, *with;
} signatures[] = {
	{ "x-amz-*", NULL },
	{ "x-goog-*", NULL },
	{ "x-oss-*", NULL },
	{ "expires", "signature" },
	{ "signature", "signature" },
	{ "key-pair-id", "signature" },
	{ "policy", "signature" },
	{ "awsaccesskeyid", "signature" },
	{ "googleaccessid", "signature" },
	{ "ossaccesskeyid", "signature" },
	{ "hash-algorithm", "signature" },
	{ "q-*", "q-signature" },
	/* Azure's shared access signatures */
	{ "sv", "sig" },
	{ "ss", "sig" },
	{ "srt", "sig" },
	{ "sp", "sig" },
	{ "st", "sig" },
	{ "se", "sig" },
	{ "sr", "sig" },
	{ "sig", "sig" },
	{ "sip", "sig" },
	{ "spr", "sig" },
	{ "skoid", "sig" },
	{ "sktid", "sig" },
	{ "skt", "sig" },
	{ "ske", "sig" },
	{ "sks", "sig" },
	{ "skv", "sig" },
};

/*
 * Words in the name of a parameter whose value is a secret; with *, also at the end of a word.
 */
static const char *const secret_words[] = {
	"*token",	"*secret",   "*password", "*passwd",   "*signature", "*credential",
	"*credentials", "*apikey",   "*session",  "sessionid", "*cookie",    "authorization",
	"accesskey",	"secretkey", "auth",	  "bearer",    "hdnea",	     "hdntl",
	"hdnts",	"hmac",	     "jwt",	  "key",       "otp",	     "pass",
	"pwd",		"sas",	     "sid",	  "sig",       "sign",	     "ticket",
};

static bool is_word(const char *word, size_t n)
{
	for (size_t i = 0; i < ARRAY_SIZE(secret_words); i++) {
		const char *w = secret_words[i];
		size_t tail = *w == '*', len = strlen(w + tail);

		if ((tail ? n >= len : n == len) && strncasecmp(word + n - len, w + tail, len) == 0)
			return true;
	}
	return false;
}

/*
 * access_token, X-Api-Key, accessToken, auth[key], TOKEN; not monkey, author. `humps`: a capital
 * begins a word.
 */
static bool has_secret_word(const char *name, size_t n, bool humps)
{
	size_t start = 0;

	for (size_t i = 0; i < n; i++) {
		bool ends = i + 1 == n || !isalnum((unsigned char)name[i + 1]) ||
			    (humps && islower((unsigned char)name[i]) &&
			     isupper((unsigned char)name[i + 1]));

		if (!isalnum((unsigned char)name[i]))
			start = i + 1;
		else if (ends && is_word(name + start, i + 1 - start))
			return true;
		else if (ends)
			start = i + 1;
	}
	return false;
}

static bool is_secret_name(const char *name, size_t n)
{
	return n > MAX_NAME || has_secret_word(name, n, true) || has_secret_word(name, n, false);
}

/* Decodes percent signs until there are none to decode. The new length; 0: too often. */
static size_t decode(char *text, size_t n)
{
	for (unsigned i = 0; i < MAX_DECODINGS; i++) {
		size_t to = 0;

		for (size_t at = 0; at < n; at++) {
			bool encoded = text[at] == '%' && n - at > 2 &&
				       isxdigit((unsigned char)text[at + 1]) &&
				       isxdigit((unsigned char)text[at + 2]);
			char hex[3] = "";

			if (encoded)
				memcpy(hex, text + at + 1, 2);
			text[to++] = encoded ? (char)strtoul(hex, NULL, 16) : text[at];
			at += encoded ? 2 : 0;
		}
		if (to == n)
			return n;
		n = to;
	}
	return 0;
}

/* The next parameter of a query; *at is at the ? or & before it. NULL: the end. */
static const char *next_parameter(const char **at, size_t *ret_n)
{
	const char *p = *at;

	if (!*p || *p == '#')
		return NULL;
	*ret_n = strcspn(++p, "&#");
	*at = p + *ret_n;
	return p;
}

/* The value of a parameter of the query, cut to n - 1 bytes; false: there is none. */
static bool parameter(const char *url, const char *name, char *ret, size_t n)
{
	const char *at = url + strcspn(url, "?#"), *p;
	size_t len = strlen(name), got;

	while ((p = next_parameter(&at, &got)))
		if (got > len && p[len] == '=' && strncasecmp(p, name, len) == 0) {
			snprintf(ret, n, "%.*s", (int)MIN(got - len - 1, n), p + len + 1);
			return true;
		}
	return false;
}

/* Which of `signatures` may be in the query of a URL: a bit for each. */
static uint64_t signatures_of(const char *url)
{
	uint64_t found = 0;
	char value[1];

	_Static_assert(ARRAY_SIZE(signatures) <= 64, "a bit for each");
	for (size_t i = 0; i < ARRAY_SIZE(signatures); i++) {
		const char *with = signatures[i].with;

		found |= (uint64_t)(!with || parameter(url, with, value, 1)) << i;
	}
	return found;
}

/* Is the name one of those in `among`? */
static bool is_signature(uint64_t among, const char *name, size_t n)
{
	for (size_t i = 0; i < ARRAY_SIZE(signatures); i++) {
		const char *s = signatures[i].name;
		size_t len = strcspn(s, "*");

		if ((among >> i & 1) && (s[len] ? n > len : n == len) &&
		    strncasecmp(name, s, len) == 0)
			return true;
	}
	return false;
}

/*
 * Is the parameter a secret? Also if its value has one, behind ; or ? or in a URL with userinfo:
 * not all readers divide a query alike.
 */
static bool is_secret(uint64_t among, const char *text, size_t n)
{
	char *copy = strndup(text, n), *colon;
	size_t len = copy ? decode(copy, n) : 0, part;
	bool secret = n > 0 && len == 0;

	for (size_t at = 0; at < len && !secret; at += part + 1) {
		char *p = copy + at, *equals;

		for (part = 0; at + part < len && !strchr("&;?#", p[part]);)
			part++;
		equals = memchr(p, '=', part);
		secret = is_secret_name(p, equals ? (size_t)(equals - p) : part) ||
			 is_signature(among, p, equals ? (size_t)(equals - p) : part);
	}
	colon = len ? memchr(copy, ':', len) : NULL;
	secret = secret || (colon && memchr(colon, '@', len - (size_t)(colon - copy)));
	free(copy);
	return secret;
}

/* Appends the query of `url` without its signature, and without secrets if `shown`. 0 or -errno. */
static int add_query(struct buf *to, const char *url, size_t query, bool shown)
{
	const char *at = url + query, *p;
	uint64_t among = signatures_of(url);
	char before = '?';
	int r = 0;
	size_t n;

	while (r == 0 && (p = next_parameter(&at, &n))) {
		const char *equals = memchr(p, '=', n);

		if (is_signature(among, p, equals ? (size_t)(equals - p) : n) ||
		    (shown && is_secret(among, p, n)))
			continue;
		r = buf_addc(to, before);
		if (r == 0)
			r = buf_add(to, p, n);
		before = '&';
	}
	return r;
}

/* ---- what may be shown ---- */

bool http_url_has_userinfo(const char *url)
{
	struct http_url_parts p;

	return http_url_split(url, &p) && p.host > p.userinfo;
}

/*
 * A misspelt URL such as "http:/host/path?query" that has no place for a secret but its query:
 * nowhere an @ in any writing, and no : but that of the scheme.
 */
static bool is_harmless(const char *url)
{
	size_t scheme = strspn(url, SCHEME_CHARS), rest = scheme;

	if (url[scheme] != ':')
		return false;
	while (isalnum((unsigned char)url[++rest]) || (url[rest] && strchr("/._-~", url[rest])))
		;
	if (url[rest] && !strchr("?#", url[rest]))
		return false;
	for (const char *p = url; *p; p++)
		if (*p == '@' || *p == '%' || (unsigned char)*p >= 0x7f)
			return false;
	return true;
}

char *http_url_redact(const char *url, char *ret, size_t n)
{
	size_t query = strcspn(url, "?#"), first = strcspn(url, "/?#\\"), scheme = any_scheme(url);
	const char *at = memrchr(url, '@', first), *last = strrchr(url, '@');
	const struct scheme *like = scheme_like(url);
	struct http_url_parts p;

	if (http_url_split(url, &p))
		snprintf(ret, n, "%.*s://%.*s", (int)MIN(p.scheme, 64), url,
			 (int)MIN(p.query - p.host, HTTP_MAX_URL), url + p.host);
	else if (like && is_harmless(url))
		snprintf(ret, n, "%.*s", (int)MIN(query, HTTP_MAX_URL), url);
	else if (like)
		snprintf(ret, n, "%s://(unreadable)", like->name);
	else if (scheme && strspn(url, SCHEME_CHARS) == scheme)
		snprintf(ret, n, "%.*s://(unreadable)", (int)MIN(scheme, 64), url);
	else if (scheme)
		snprintf(ret, n, "(unreadable)");
	else if (is_path(url))
		snprintf(ret, n, "%s", url);
	else if (last && memchr(url, ':', (size_t)(last - url)))
		snprintf(ret, n, "(unreadable)");
	else
		snprintf(ret, n, "%.*s",
			 (int)MIN(query - (at ? (size_t)(at + 1 - url) : 0), HTTP_MAX_URL),
			 at ? at + 1 : url);
	return ret;
}

char *http_source_label(const char *source, char *ret, size_t n)
{
	const char *last = strrchr(source, '@'), *at = source + strcspn(source, "?"), *p;
	bool url = http_is_url(source) || any_scheme(source);
	uint64_t among = signatures_of(source);
	size_t len;

	/* a URL whose scheme was forgotten */
	url = url || (!is_path(source) && last && memchr(source, ':', (size_t)(last - source)));
	while (!url && !is_path(source) && (p = next_parameter(&at, &len)))
		url = is_secret(among, p, len);
	if (url)
		return http_url_redact(source, ret, n);
	snprintf(ret, n, "%s", source);
	return ret;
}

char *http_url_public(const char *url)
{
	struct buf out = buf_init(HTTP_MAX_URL + 1);
	struct http_url_parts p;
	int r;

	if (!http_is_url(url))
		return strdup(url);
	if (!http_url_split(url, &p)) {
		char shown[64];

		return strdup(http_url_redact(url, shown, sizeof(shown)));
	}
	r = buf_add(&out, url, p.userinfo);
	if (r == 0)
		r = buf_add(&out, url + p.host, p.query - p.host);
	if (r == 0)
		r = add_query(&out, url, p.query, true);
	if (r == 0)
		r = buf_addc(&out, '\0');
	if (r < 0)
		buf_finish(&out);
	return r < 0 ? NULL : out.data;
}

/* ---- signed URLs ---- */

char *http_url_unsigned(const char *url)
{
	struct buf out = buf_init(SIZE_MAX);
	size_t query = strcspn(url, "?#");
	int r = url[query] == '?' ? buf_add(&out, url, query) : buf_adds(&out, url);

	if (r == 0 && url[query] == '?')
		r = add_query(&out, url, query, false);
	if (r == 0)
		r = buf_addc(&out, '\0');
	if (r < 0)
		buf_finish(&out);
	return r < 0 ? NULL : out.data;
}

int64_t http_url_expiry(const char *url)
{
	static const char *const signers[][2] = { { "X-Amz-Date", "X-Amz-Expires" },
						  { "X-Goog-Date", "X-Goog-Expires" } };
	char from[40], value[40];
	int64_t when;

	for (size_t i = 0; i < ARRAY_SIZE(signers); i++) {
		if (!parameter(url, signers[i][0], from, sizeof(from)) ||
		    !parameter(url, signers[i][1], value, sizeof(value)))
			continue;
		when = aws_time(from);
		/* a server may say anything */
		return when ? when + MIN(MAX(strtol(value, NULL, 10), 0), MAX_LIFE_S) : 0;
	}
	if (parameter(url, "Expires", value, sizeof(value)))
		return MAX(strtol(value, NULL, 10), 0);
	return parameter(url, "se", value, sizeof(value)) ? aws_time(value) : 0;
}
