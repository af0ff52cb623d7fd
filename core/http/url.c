/* SPDX-License-Identifier: Apache-2.0 */
/* URLs: what they lead to, as libcurl reads them. */
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "http/internal.h"

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

/* As url_get(); a missing part is NULL. */
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

/*
 * The zone of an address may have bytes that no host has. A percent sign elsewhere is not read
 * again.
 */
static bool host_ok(const char *host)
{
	const char *zone = strchr(host, ':') ? strchr(host, '%') : NULL;

	for (const char *p = host; *p; p++)
		if ((unsigned char)*p <= ' ' || (unsigned char)*p >= 0x7f ||
		    strchr("/?#@\\[]", *p) || (*p == '%' && p != zone))
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
 * The URL of a redirect is kept, and given to libcurl again, which must read the same host. So a
 * host is refused that no URL has, or a number that libcurl has decoded only now.
 */
static int target_read_again(const struct http_target *t)
{
	struct http_target again = { 0 };
	struct http_url_parts parts;
	CURLU *u = curl_url();
	int r = !u ? -ENOMEM :
		!http_url_split(t->url, &parts) || curl_url_set(u, CURLUPART_URL, t->url, 0) ?
		     -EINVAL :
		     target_host(u, &again);

	if (r == 0 && strcmp(again.host, t->host) != 0)
		r = -EINVAL;
	http_target_finish(&again);
	curl_url_cleanup(u);
	return r;
}

/*
 * libcurl connects to another name where a host has letters outside ASCII (IDNA), which may be an
 * address or localhost: the host is replaced by that name.
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

/* Why libcurl refused `text`. Its query is not shown, so the user is told what is in there. */
static const char *refusal(const char *text)
{
	static const char *const faults[][2] = {
		{ "not a valid URL: its path has a space; write %20",
		  "not a valid URL: its path has a control character" },
		{ "not a valid URL: its query has a space; write %20",
		  "not a valid URL: its query has a control character" },
		{ "not a valid URL: its fragment has a space; write %20",
		  "not a valid URL: its fragment has a control character" },
	};
	size_t at = 0, part;

	while ((unsigned char)text[at] > ' ' && text[at] != 0x7f)
		at++;
	part = at < strcspn(text, "?#") ? 0 : at < strcspn(text, "#") ? 1 : 2;
	return text[at] ? faults[part][text[at] != ' '] : "not a valid URL";
}

/* Makes libcurl parse `text`; CURLU_URLENCODE for redirects, which come with spaces and UTF-8. */
static int target_read(CURLU *u, const struct http_target *base, const char *text,
		       const char **ret_why)
{
	const struct scheme *scheme = scheme_of(text), *like = scheme_like(text);
	CURLUcode code = CURLUE_OK;
	struct http_url_parts parts;

	if (strlen(text) > HTTP_MAX_URL) {
		*ret_why = "the URL is too long";
		return -EINVAL;
	}
	/* libcurl also reads http:///user:password@host, where others do not see a password */
	if (!base && like && !http_url_split(text, &parts)) {
		*ret_why = like->misspelt;
		return -EINVAL;
	}
	if (!base && (!scheme || scheme->fault)) {
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
		   base				     ? "not a valid URL" :
						       refusal(text);
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
	if (r == 0)
		r = target_read_again(&target);
	curl_url_cleanup(u);
	if (r == 0 && strlen(target.url) > HTTP_MAX_URL) {
		*ret_why = "the URL is too long";
		r = -EINVAL;
	}
	if (r < 0)
		http_target_finish(&target);
	else
		*ret = target;
	return r;
}

void http_target_finish(struct http_target *target)
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
	const struct scheme *scheme = scheme_of(url);
	struct http_target target;
	const char *why = "out of memory";

	if (scheme && scheme->fault)
		return scheme->fault(url);
	if (http_target_parse(NULL, url, &target, &why) < 0)
		return why;
	http_target_finish(&target);
	return NULL;
}
