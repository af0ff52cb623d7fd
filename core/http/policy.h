/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rules for HTTP: URLs, origins, addresses, proxies, the user's headers. Decisions only, no
 * transfer. Private to this folder and its tests. Any thread; nothing here has state.
 */
#ifndef CARTON_HTTP_POLICY_H
#define CARTON_HTTP_POLICY_H

#include "http/http.h"

struct sockaddr_storage;

/*
 * Where the parts of SCHEME://[USERINFO@]HOST[:PORT][PATH][?QUERY][#FRAGMENT] begin, as offsets;
 * `scheme` is the length of the scheme. [host, path) is the host with its port.
 */
struct http_url_parts {
	size_t scheme, userinfo, host, path, query;
};

/* False: the text has another form, or one that programs read as different hosts. */
bool http_url_split(const char *url, struct http_url_parts *ret);

/* A parsed URL. All strings are owned; a zeroed one is empty. */
struct http_target {
	char *url;	       /* normalized, without userinfo and fragment */
	char *host;	       /* ASCII; no brackets; numeric IPv4 in dotted form; zone after % */
	char *user, *password; /* percent-decoded userinfo; NULL: none */
	unsigned port;
	bool https;
};

/*
 * Parses `text`, absolute, or relative to `base` when that is not NULL. Returns 0; -EINVAL for a
 * text that is not a URL or is longer than HTTP_MAX_URL, -EACCES for a scheme other than http and
 * https, both with a constant sentence in `ret_why`; -ENOMEM.
 */
int http_target_parse(const struct http_target *base, const char *text, struct http_target *ret,
		      const char **ret_why);
void http_target_finish(struct http_target *target);

/* Same scheme, host and port? False when either is empty. */
bool http_same_origin(const struct http_target *a, const struct http_target *b);

/* Masks of allowed address classes. */
#define HTTP_ALLOW(class) (1U << (class))
#define HTTP_ALLOW_ALL (~0U)

const char *http_address_class_name(enum http_address_class class);

/* The class of a literal address or a localhost name; PUBLIC for any other name. */
enum http_address_class http_host_class(const char *host);

/* Reads a literal address, without its zone; false for anything else. */
bool http_parse_address(const char *host, struct sockaddr_storage *ret);

/* Is the literal address in a network ADDRESS/BITS? */
bool http_in_network(const char *host, const char *network);

/* The length of a name without the dot of the root. */
size_t http_name_len(const char *name);

/* Is [host, host + n) the domain, or a name in it? */
bool http_in_domain(const char *host, size_t n, const char *domain, size_t domain_n);

/* The proxy variables of the environment; owned strings, NULL where not set. */
struct http_proxies {
	char *http, *https, *all, *no;
};

int http_proxies_load(struct http_proxies *ret);
void http_proxies_finish(struct http_proxies *proxies);

/* The proxy for this URL, NULL for none. Owned by `proxies`. */
const char *http_proxy_for(const struct http_proxies *proxies, const struct http_target *target);

/*
 * The lines of the user's header file, owned, NULL-terminated. Empty lines and lines that begin
 * with '#' are skipped. Returns 0, -EINVAL (logged with the line number: not `Name: value`, a
 * control character, a header that would change what the request means), -EFBIG, -ENOMEM or the
 * open's or read's -errno (logged).
 */
int http_headers_load(const char *path, char ***ret);
void http_headers_free(char **headers);

/* May `value` be sent in a header: not empty, no control character but tabs? */
bool http_header_value_ok(const char *value);

#endif
