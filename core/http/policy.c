/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http/hf.h"
#include "http/internal.h"

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
	memmove(ret->host, ret->host + 1, n - 1);
	ret->host[n - 2] = '\0';
	if (url_get_optional(u, CURLUPART_ZONEID, &zone) == 0 && zone) {
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
	return code == CURLUE_OK ? 0 : -EINVAL;
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

/* ---- proxies ---- */

static int copy_env(const char *lower, const char *upper, char **ret)
{
	const char *value = getenv(lower);

	if (!value && upper)
		value = getenv(upper);
	if (!value || !*value)
		return 0;
	*ret = strdup(value);
	return *ret ? 0 : -ENOMEM;
}

int http_proxies_load(struct http_proxies *ret)
{
	struct http_proxies proxies = { 0 };

	/* No HTTP_PROXY: a CGI server sets it from a request's header. */
	if (copy_env("http_proxy", NULL, &proxies.http) < 0 ||
	    copy_env("https_proxy", "HTTPS_PROXY", &proxies.https) < 0 ||
	    copy_env("all_proxy", "ALL_PROXY", &proxies.all) < 0 ||
	    copy_env("no_proxy", "NO_PROXY", &proxies.no) < 0) {
		http_proxies_free(&proxies);
		return -ENOMEM;
	}
	*ret = proxies;
	return 0;
}

void http_proxies_free(struct http_proxies *proxies)
{
	free(proxies->http);
	free(proxies->https);
	free(proxies->all);
	free(proxies->no);
	*proxies = (struct http_proxies){ 0 };
}

/* Is the literal address `host` in `token`, an address or a network ADDRESS/BITS? */
static bool address_in_token(const struct sockaddr_storage *host, const char *token)
{
	size_t at = host->ss_family == AF_INET ? offsetof(struct sockaddr_in, sin_addr) :
						 offsetof(struct sockaddr_in6, sin6_addr);
	unsigned bits = host->ss_family == AF_INET ? 32 : 128;
	const uint8_t *a = (const uint8_t *)host + at, *b;
	char text[INET6_ADDRSTRLEN], *end;
	struct sockaddr_storage net;
	size_t n = strcspn(token, "/");
	unsigned long v;

	if (n >= sizeof(text))
		return false;
	memcpy(text, token, n);
	text[n] = '\0';
	if (!http_parse_address(text, &net) || net.ss_family != host->ss_family)
		return false;
	if (token[n] == '/') {
		v = strtoul(token + n + 1, &end, 10);
		if (end == token + n + 1 || *end || v > bits)
			return false;
		bits = (unsigned)v;
	}
	b = (const uint8_t *)&net + at;
	return !memcmp(a, b, bits / 8) &&
	       (bits % 8 == 0 || ((a[bits / 8] ^ b[bits / 8]) >> (8 - bits % 8)) == 0);
}

static bool token_matches(const char *token, const char *host)
{
	struct sockaddr_storage address;

	if (!strcmp(token, "*"))
		return true;
	if (http_parse_address(host, &address))
		return address_in_token(&address, token);
	token += *token == '.';
	return *token && http_in_domain(host, http_name_len(host), token, http_name_len(token));
}

const char *http_proxy_for(const struct http_proxies *proxies, const struct http_target *target)
{
	const char *proxy = target->https ? proxies->https : proxies->http;
	const char *no = proxies->no ? proxies->no : "";

	while (*(no += strspn(no, ", \t"))) {
		size_t n = strcspn(no, ", \t");
		char token[256];

		if (n < sizeof(token)) {
			memcpy(token, no, n);
			token[n] = '\0';
			if (token_matches(token, target->host))
				return NULL;
		}
		no += n;
	}
	return proxy ? proxy : proxies->all;
}

/* ---- the user's headers ---- */

bool http_header_value_ok(const char *value)
{
	if (!*value)
		return false;
	for (; *value; value++) {
		if (((unsigned char)*value < 0x20 && *value != '\t') || *value == 0x7f)
			return false;
	}
	return true;
}

/* NULL when the line may be sent, else what is wrong with it. */
static const char *header_fault(const char *line)
{
	static const char *const ours[] = {
		"host",
		"range",
		"accept-encoding",
		"connection",
		"te",
		"trailer",
		"upgrade",
		"expect",
		"content-length",
		"transfer-encoding",
		"if-match",
		"if-none-match",
		"if-range",
		"if-modified-since",
		"if-unmodified-since",
		"proxy-connection",
		"keep-alive",
	};
	size_t n = strspn(line, "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
				"ABCDEFGHIJKLMNOPQRSTUVWXYZ");

	if (n == 0 || line[n] != ':')
		return "not a line `Name: value`";
	for (size_t i = 0; i < ARRAY_SIZE(ours); i++) {
		if (strlen(ours[i]) == n && !strncasecmp(ours[i], line, n))
			return "this header is not the user's to set";
	}
	line += n + 1;
	line += strspn(line, " \t");
	return http_header_value_ok(line) ? NULL : "an empty value or a control character";
}

static int read_file(const char *path, struct buf *b)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), r = 0;
	char chunk[4096];
	ssize_t n = 0;

	if (fd < 0)
		return -errno;
	while (r == 0 && (n = read(fd, chunk, sizeof(chunk))) != 0) {
		if (n < 0 && errno != EINTR)
			r = -errno;
		else if (n > 0)
			r = buf_add(b, chunk, (size_t)n);
	}
	fd_close(fd);
	if (r == 0 && b->len > 0 && memchr(b->data, '\0', b->len))
		r = -EINVAL;
	return r;
}

static int add_header(char **headers, size_t *n, const char *line, size_t len)
{
	if (*n == HTTP_MAX_FILE_HEADERS)
		return -EFBIG;
	headers[*n] = strndup(line, len);
	return headers[*n] ? ((*n)++, 0) : -ENOMEM;
}

static int parse_headers(const char *path, const char *text, char **headers)
{
	size_t n = 0;
	int r = 0;

	for (unsigned no = 1; r == 0 && *text; no++) {
		size_t len = strcspn(text, "\n"), cut = len;
		const char *fault;

		if (cut > 0 && text[cut - 1] == '\r')
			cut--;
		if (cut > 0 && *text != '#') {
			r = add_header(headers, &n, text, cut);
			fault = r == 0 ? header_fault(headers[n - 1]) : NULL;
			if (fault) {
				carton_log(CARTON_LOG_ERROR, path, "header file, line %u: %s", no,
					   fault);
				r = -EINVAL;
			}
		}
		text += len + (text[len] == '\n');
	}
	return r;
}

int http_headers_load(const char *path, char ***ret)
{
	struct buf text = buf_init(HTTP_MAX_HEADER_FILE);
	char **headers = calloc(HTTP_MAX_FILE_HEADERS + 1, sizeof(*headers));
	int r = headers ? read_file(path, &text) : -ENOMEM;

	if (r < 0 && r != -ENOMEM)
		carton_log(CARTON_LOG_ERROR, path, "the header file cannot be read: %s",
			   r == -EINVAL ? "it holds a NUL" : strerror(-r));
	if (r == 0)
		r = parse_headers(path, text.data ? text.data : "", headers);
	buf_free(&text);
	if (r < 0) {
		http_headers_free(headers);
		return r;
	}
	*ret = headers;
	return 0;
}

void http_headers_free(char **headers)
{
	for (char **h = headers; h && *h; h++) {
		explicit_bzero(*h, strlen(*h)); /* they are secrets more often than not */
		free(*h);
	}
	free(headers);
}
