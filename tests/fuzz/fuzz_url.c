/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any text as a URL (the first line), as a redirect from there (the second) and as no_proxy (the
 * third). What our rules take for scheme, host and port is what libcurl reads in the URL that it is
 * given, and a host that the resolver takes for an address has the class of that address.
 */
#include <locale.h>
#include <netdb.h>
#include <string.h>
#include <sys/socket.h>

#include "http/internal.h"

#include "fuzz.h"

#define LINES 3

/* What libcurl reads where it is given `url` (CURLOPT_URL): one malloc'ed part. */
static char *part_of(const char *url, CURLUPart part, unsigned flags)
{
	CURLU *u = curl_url();
	char *text = NULL, *copy;

	CHECK(u);
	CHECK(curl_url_set(u, CURLUPART_URL, url, CURLU_NON_SUPPORT_SCHEME) == CURLUE_OK);
	CHECK(curl_url_get(u, part, &text, flags) == CURLUE_OK);
	copy = strdup(text);
	CHECK(copy);
	curl_free(text);
	curl_url_cleanup(u);
	return copy;
}

static bool is_part(const char *url, CURLUPart part)
{
	CURLU *u = curl_url();
	char *text = NULL;
	CURLUcode code;

	CHECK(u && curl_url_set(u, CURLUPART_URL, url, 0) == CURLUE_OK);
	code = curl_url_get(u, part, &text, 0);
	curl_free(text);
	curl_url_cleanup(u);
	return code == CURLUE_OK;
}

static void check_class(const char *host)
{
	const struct addrinfo hints = { .ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM };
	enum http_address_class class = http_host_class(host);
	struct addrinfo *found;

	/* the resolver takes more forms of IPv4 addresses than dotted ones */
	if (getaddrinfo(host, NULL, &hints, &found) == 0) {
		CHECK(http_address_class(found->ai_addr) == class);
		freeaddrinfo(found);
	}
}

static void check_target(const struct http_target *t)
{
	char *scheme = part_of(t->url, CURLUPART_SCHEME, 0);
	char *host = part_of(t->url, CURLUPART_HOST, 0);
	char *port = part_of(t->url, CURLUPART_PORT, CURLU_DEFAULT_PORT);
	size_t n = strlen(host);

	CHECK(strcmp(scheme, t->https ? "https" : "http") == 0);
	CHECK(strtoul(port, NULL, 10) == t->port && t->port <= 65535);
	if (*host == '[')
		CHECK(strncmp(t->host, host + 1, n - 2) == 0 &&
		      (!t->host[n - 2] || t->host[n - 2] == '%'));
	else
		CHECK(strcmp(t->host, host) == 0);
	CHECK(*t->host && !t->host[strcspn(t->host, "/?#@\\ []\r\n")]);
	/* a name of other letters is one of these when libcurl connects */
	for (const char *p = t->host; *p; p++)
		CHECK((unsigned char)*p > ' ' && (unsigned char)*p < 0x7f);
	for (const char *p = t->url; *p; p++)
		CHECK((unsigned char)*p > ' ' && *p != 0x7f);
	CHECK(strlen(t->url) <= HTTP_MAX_URL);
	CHECK(!is_part(t->url, CURLUPART_USER) && !is_part(t->url, CURLUPART_PASSWORD));
	CHECK(!is_part(t->url, CURLUPART_FRAGMENT));
	check_class(t->host);
	free(scheme);
	free(host);
	free(port);
}

/* What is parsed is parsed again to the same. */
static void check_again(const struct http_target *t)
{
	struct http_target again;
	const char *why = NULL;

	CHECK(http_target_parse(NULL, t->url, &again, &why) == 0);
	CHECK(strcmp(again.url, t->url) == 0 && strcmp(again.host, t->host) == 0);
	CHECK(http_same_origin(&again, t) && http_same_origin(t, &again) && !again.user);
	http_target_finish(&again);
}

/* Without its signature it leads to the same place, and no signature is left. */
static void check_unsigned(const struct http_target *t)
{
	char *plain = http_url_unsigned(t->url), *again;
	struct http_target target;
	const char *why;

	CHECK(plain && strlen(plain) <= strlen(t->url));
	again = http_url_unsigned(plain);
	CHECK(again && strlen(again) <= strlen(plain));
	CHECK(http_url_expiry(t->url) >= 0 && http_url_expiry(plain) >= 0);
	CHECK(http_target_parse(NULL, plain, &target, &why) == 0 && http_same_origin(&target, t));
	http_target_finish(&target);
	free(again);
	free(plain);
}

static bool parse(const struct http_target *base, const char *text, struct http_target *ret)
{
	const char *why = NULL;
	int r = http_target_parse(base, text, ret, &why);

	CHECK(r == 0 || ((r == -EINVAL || r == -EACCES) && why && *why));
	if (r < 0)
		return false;
	check_target(ret);
	check_again(ret);
	check_unsigned(ret);
	return true;
}

static void check_proxy(char *no, const struct http_target *t)
{
	const struct http_proxies proxies = { .http = (char *)"p", .https = (char *)"q", .no = no };
	const char *proxy = http_proxy_for(&proxies, t);

	CHECK(!proxy || strcmp(proxy, t->https ? "q" : "p") == 0);
	CHECK(strcmp(no, "*") != 0 || !proxy);
	/* a name excludes itself, and what is below it */
	CHECK(strcmp(no, t->host) != 0 || *no == '.' || strlen(no) > 255 || strpbrk(no, ", \t%") ||
	      !proxy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	char *text = strndup((const char *)data, n), *lines[LINES] = { text }, *end;
	struct http_target target, next;
	const struct scheme *scheme;

	/* libcurl reads host names of other letters by the locale */
	setlocale(LC_CTYPE, "C.UTF-8");
	CHECK(text && http_load_curl() == 0);
	for (int i = 1; i < LINES; i++) {
		end = strchr(lines[i - 1], '\n');
		lines[i] = end ? end + 1 : lines[i - 1] + strlen(lines[i - 1]);
		if (end)
			*end = '\0';
	}
	http_url_expiry(text);
	scheme = scheme_of(text);
	if (parse(NULL, text, &target)) {
		CHECK(scheme && !scheme->fault && scheme_like(text) == scheme);
		CHECK(!http_url_fault(text));
		check_proxy(lines[2], &target);
		if (parse(&target, lines[1], &next)) {
			/* what is not a URL by itself stays where it is */
			CHECK(strpbrk(lines[1], "/:\\") || http_same_origin(&target, &next));
			http_target_finish(&next);
		}
		http_target_finish(&target);
	} else if (!scheme || !scheme->fault) {
		CHECK(http_url_fault(text));
	}
	free(text);
	return 0;
}
