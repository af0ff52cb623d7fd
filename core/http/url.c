/* SPDX-License-Identifier: Apache-2.0 */
/* URLs: what they lead to, what is signed in them; and the library that reads them. */
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "base/library.h"
#include "http/hf.h"
#include "http/internal.h"

#define MAX_LIFE_S (100L * 365 * 24 * 3600)

/* ---- libcurl ---- */

#define CURL_DEFINE(name) typeof(lazy_##name) lazy_##name;
CURL_FUNCTIONS(CURL_DEFINE)

#define CURL_FIND(name) { #name, (void **)&lazy_##name },
static const struct library_function functions[] = { CURL_FUNCTIONS(CURL_FIND) };

_Static_assert(sizeof(LIBCURL_FILE) > 1, "the Makefile has not found the library");

static int outcome;

static void load(void)
{
	outcome = library_load(LIBCURL_FILE, functions, ARRAY_SIZE(functions));
}

int http_load_curl(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, load);
	return outcome;
}

/* ---- URLs ---- */

static int url_get(CURLU *u, CURLUPart part, unsigned flags, char **ret)
{
	char *text = NULL;
	CURLUcode code = curl_url_get(u, part, &text, flags);

	if (code == CURLUE_OUT_OF_MEMORY)
		return -ENOMEM;
	if (code != CURLUE_OK)
		return -EINVAL;
	*ret = strdup(text);
	curl_free(text);
	return *ret ? 0 : -ENOMEM;
}

/* As url_get; a part that is not there is NULL. */
static int url_get_optional(CURLU *u, CURLUPart part, char **ret)
{
	char *text = NULL;
	bool there = curl_url_get(u, part, &text, 0) == CURLUE_OK;

	curl_free(text);
	return there ? url_get(u, part, CURLU_URLDECODE, ret) : 0;
}

static int target_host(CURLU *u, struct http_target *ret)
{
	char *zone = NULL;
	size_t n;
	int r = url_get(u, CURLUPART_HOST, 0, &ret->host);

	if (r < 0)
		return r;
	n = strlen(ret->host);
	if (ret->host[0] != '[')
		return 0;
	if (n < 3)
		return -EINVAL; /* a zone of no address, which libcurl does not read again */
	memmove(ret->host, ret->host + 1, n - 1);
	ret->host[n - 2] = '\0';
	r = url_get_optional(u, CURLUPART_ZONEID, &zone);
	if (r == 0 && zone) {
		char *host;

		r = asprintf(&host, "%s%%%s", ret->host, zone) < 0 ? -ENOMEM : 0;
		if (r == 0) {
			free(ret->host);
			ret->host = host;
		}
	}
	free(zone);
	return r;
}

/* The zone of an address may have bytes that no host has. */
static bool host_ok(const char *host)
{
	for (; *host; host++)
		if ((unsigned char)*host <= ' ' || (unsigned char)*host >= 0x7f ||
		    strchr("/?#@\\[]", *host))
			return false;
	return true;
}

/* Splits a URL that libcurl has parsed; takes its userinfo and fragment off. */
static int target_split(CURLU *u, struct http_target *ret, const char **ret_why)
{
	char *scheme = NULL, *port = NULL;
	int r = url_get(u, CURLUPART_SCHEME, 0, &scheme);

	if (r == 0 && strcmp(scheme, "http") != 0 && strcmp(scheme, "https") != 0) {
		*ret_why = "only http and https are allowed";
		r = -EACCES;
	}
	if (r == 0)
		ret->https = !strcmp(scheme, "https");
	free(scheme);
	if (r == 0)
		r = target_host(u, ret);
	if (r == 0 && !host_ok(ret->host))
		r = -EINVAL;
	if (r == 0)
		r = url_get(u, CURLUPART_PORT, CURLU_DEFAULT_PORT, &port);
	if (r == 0)
		ret->port = (unsigned)strtoul(port, NULL, 10);
	free(port);
	if (r == 0)
		r = url_get_optional(u, CURLUPART_USER, &ret->user);
	if (r == 0)
		r = url_get_optional(u, CURLUPART_PASSWORD, &ret->password);
	if (r < 0)
		return r;
	if (curl_url_set(u, CURLUPART_USER, NULL, 0) ||
	    curl_url_set(u, CURLUPART_PASSWORD, NULL, 0) ||
	    curl_url_set(u, CURLUPART_OPTIONS, NULL, 0) ||
	    curl_url_set(u, CURLUPART_FRAGMENT, NULL, 0))
		return -ENOMEM;
	return url_get(u, CURLUPART_URL, 0, &ret->url);
}

/*
 * A host of other letters is another name when libcurl connects (IDNA), which may be an address or localhost: it is
 * replaced by that name.
 */
static int target_ascii(CURLU *u, const char **ret_why)
{
	char *host = NULL, *text = NULL;
	CURLUcode code = CURLUE_OK;
	int r = url_get_optional(u, CURLUPART_HOST, &host);

	if (r == 0 && host && !is_ascii(host)) {
		*ret_why = "the host name cannot be written in ASCII";
		code = curl_url_get(u, CURLUPART_URL, &text, CURLU_PUNYCODE);
		if (code == CURLUE_OK)
			code = curl_url_set(u, CURLUPART_URL, text, 0);
		r = code == CURLUE_OK ? 0 : -EINVAL;
		curl_free(text);
	}
	free(host);
	return r;
}

/* Has libcurl read `text`; CURLU_URLENCODE for redirects, which come with spaces and UTF-8. */
static int target_read(CURLU *u, const struct http_target *base, const char *text,
		       const char **ret_why)
{
	CURLUcode code = CURLUE_OK;

	if (strlen(text) > HTTP_MAX_URL) {
		*ret_why = "the URL is too long";
		return -EINVAL;
	}
	if (!base && strncasecmp(text, "http://", 7) && strncasecmp(text, "https://", 8)) {
		*ret_why = strstr(text, "://") ? "only http and https are allowed" :
						 "not an absolute http or https URL";
		return strstr(text, "://") ? -EACCES : -EINVAL;
	}
	if (base)
		code = curl_url_set(u, CURLUPART_URL, base->url, 0);
	if (code == CURLUE_OK)
		code = curl_url_set(u, CURLUPART_URL, text,
				    base ? CURLU_URLENCODE | CURLU_ALLOW_SPACE : 0);
	if (code == CURLUE_OUT_OF_MEMORY)
		return -ENOMEM;
	*ret_why = code == CURLUE_UNSUPPORTED_SCHEME ? "only http and https are allowed" :
						       "not a valid URL";
	if (code == CURLUE_UNSUPPORTED_SCHEME)
		return -EACCES;
	return code == CURLUE_OK ? target_ascii(u, ret_why) : -EINVAL;
}

int http_target_parse(const struct http_target *base, const char *text, struct http_target *ret,
		      const char **ret_why)
{
	struct http_target target = { 0 };
	int r = http_load_curl();
	CURLU *u;

	if (r < 0)
		return r;
	u = curl_url();
	if (!u)
		return -ENOMEM;
	r = target_read(u, base, text, ret_why);
	if (r == 0)
		r = target_split(u, &target, ret_why);
	curl_url_cleanup(u);
	if (r == 0 && strlen(target.url) > HTTP_MAX_URL) {
		*ret_why = "the URL is too long";
		r = -EINVAL;
	}
	if (r < 0)
		http_target_free(&target);
	else
		*ret = target;
	return r;
}

void http_target_free(struct http_target *target)
{
	if (!target)
		return;
	free(target->url);
	free(target->host);
	free(target->user);
	free(target->password);
	*target = (struct http_target){ 0 };
}

bool http_same_origin(const struct http_target *a, const struct http_target *b)
{
	return a->host && b->host && a->https == b->https && a->port == b->port &&
	       !strcasecmp(a->host, b->host);
}

const char *http_url_fault(const char *url)
{
	struct http_target target;
	const char *why = "out of memory";

	if (s3_is_url(url))
		return s3_url_fault(url);
	if (hf_is_url(url))
		return hf_url_fault(url);
	if (http_target_parse(NULL, url, &target, &why) < 0)
		return why;
	http_target_free(&target);
	return NULL;
}

char *http_url_redact(const char *url, char *ret, size_t n)
{
	const char *start = strstr(url, "://");
	size_t path = strcspn(url, "?#"), scheme, authority;
	const char *at, *colon;

	scheme = start && start < url + path ? (size_t)(start - url) + 3 : 0;
	authority = scheme + strcspn(url + scheme, "/?#\\");
	at = memrchr(url + scheme, '@', authority - scheme);
	start = at ? at + 1 : url + scheme;
	colon = memrchr(start, ':', authority - (size_t)(start - url));
	/* A password that was not percent-encoded looks like a port that is no number. */
	if (colon && *start != '[' &&
	    colon + 1 + strspn(colon + 1, "0123456789") != url + authority)
		snprintf(ret, n, "%.*s(unreadable)", (int)MIN(scheme, 64), url);
	else
		snprintf(ret, n, "%.*s%.*s", (int)MIN(scheme, 64), url,
			 (int)MIN((size_t)(url + path - start), HTTP_MAX_URL), start);
	return ret;
}

/* ---- signed URLs ---- */

/* The value of a parameter of the query, cut to n - 1 bytes; false: there is none. */
static bool parameter(const char *url, const char *name, char *ret, size_t n)
{
	const char *p = strchr(url, '?');
	size_t len = strlen(name);

	for (; p && *p && *p != '#'; p += strcspn(p, "&#")) {
		p++;
		if (strncasecmp(p, name, len) == 0 && p[len] == '=') {
			snprintf(ret, n, "%.*s", (int)MIN(strcspn(p + len + 1, "&#"), n),
				 p + len + 1);
			return true;
		}
	}
	return false;
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

/* Such names mean something else in the query of a URL that is not signed so. */
static bool is_signature(const char *url, const char *name, size_t n)
{
	static const char *const prefixes[] = { "x-amz-", "x-goog-" };
	static const char *const names[] = { "expires",	      "signature",	"key-pair-id",
					     "policy",	      "awsaccesskeyid", "googleaccessid",
					     "hash-algorithm" };
	/* Azure's shared access signatures */
	static const char *const azure[] = { "sv",  "ss",  "srt", "sp",	 "st",	  "se",
					     "sr",  "sig", "sip", "spr", "skoid", "sktid",
					     "skt", "ske", "sks", "skv" };
	char value[1];

	for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++)
		if (n > strlen(prefixes[i]) && !strncasecmp(name, prefixes[i], strlen(prefixes[i])))
			return true;
	for (size_t i = 0; i < ARRAY_SIZE(names) && parameter(url, "Signature", value, 1); i++)
		if (n == strlen(names[i]) && !strncasecmp(name, names[i], n))
			return true;
	for (size_t i = 0; i < ARRAY_SIZE(azure) && parameter(url, "sig", value, 1); i++)
		if (n == strlen(azure[i]) && !strncmp(name, azure[i], n))
			return true;
	return false;
}

char *http_url_unsigned(const char *url)
{
	char *copy = strdup(url), *query = copy ? strchr(copy, '?') : NULL, *to = query;
	bool first = true;

	if (!query)
		return copy;
	for (const char *p = query; *p && *p != '#';) {
		size_t n = strcspn(++p, "&#");

		if (!is_signature(url, p, MIN(n, strcspn(p, "=")))) {
			*to++ = first ? '?' : '&';
			memmove(to, p, n);
			to += n;
			first = false;
		}
		p += n;
	}
	*to = '\0';
	return copy;
}
