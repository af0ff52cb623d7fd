/* SPDX-License-Identifier: Apache-2.0 */
/* The addresses that a request may go to, by kind, and proxies. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/socket.h>

#include "http/policy.h"
#include "base/util.h"

struct ipv4_net {
	uint32_t net;
	unsigned bits;
	enum http_address_class class;
};

/* The IANA special-purpose registry; the first that matches counts, all else is public. */
static const struct ipv4_net ipv4_special[] = {
	{ 0x00000000, 8, HTTP_ADDRESS_UNSPECIFIED },
	{ 0x0a000000, 8, HTTP_ADDRESS_PRIVATE },
	{ 0x64400000, 10, HTTP_ADDRESS_PRIVATE }, /* 100.64, carrier NAT */
	{ 0x7f000000, 8, HTTP_ADDRESS_LOOPBACK },
	{ 0xa9fe0000, 16, HTTP_ADDRESS_LINK_LOCAL },
	{ 0xac100000, 12, HTTP_ADDRESS_PRIVATE },
	{ 0xc0000000, 24, HTTP_ADDRESS_RESERVED }, /* 192.0.0, protocol assignments */
	{ 0xc0000200, 24, HTTP_ADDRESS_RESERVED }, /* documentation, three of them */
	{ 0xc6336400, 24, HTTP_ADDRESS_RESERVED },
	{ 0xcb007100, 24, HTTP_ADDRESS_RESERVED },
	{ 0xc0586300, 24, HTTP_ADDRESS_RESERVED }, /* 192.88.99, old 6to4 relays */
	{ 0xc0a80000, 16, HTTP_ADDRESS_PRIVATE },
	{ 0xc6120000, 15, HTTP_ADDRESS_PRIVATE }, /* 198.18, benchmarks */
	{ 0xe0000000, 4, HTTP_ADDRESS_MULTICAST },
	{ 0xf0000000, 4, HTTP_ADDRESS_RESERVED }, /* and broadcast */
};

static enum http_address_class ipv4_class(uint32_t addr)
{
	for (size_t i = 0; i < ARRAY_SIZE(ipv4_special); i++) {
		const struct ipv4_net *n = &ipv4_special[i];

		if ((addr ^ n->net) >> (32 - n->bits) == 0)
			return n->class;
	}
	return HTTP_ADDRESS_PUBLIC;
}

static enum http_address_class ipv6_class(const uint8_t *a)
{
	static const uint8_t zero[12];
	static const uint8_t nat64[12] = { 0x00, 0x64, 0xff, 0x9b };
	enum http_address_class v4 = ipv4_class(get_be32(a + 12));

	if (!memcmp(a, zero, 12)) {
		if (get_be32(a + 12) <= 1)
			return a[15] ? HTTP_ADDRESS_LOOPBACK : HTTP_ADDRESS_UNSPECIFIED;
		/* IPv4-compatible: long dead, so never fine. */
		return v4 == HTTP_ADDRESS_PUBLIC ? HTTP_ADDRESS_RESERVED : v4;
	}
	if ((!memcmp(a, zero, 10) && a[10] == 0xff && a[11] == 0xff) || !memcmp(a, nat64, 12))
		return v4;
	if (get_be32(a) == 0x0064ff9b && a[4] == 0 && a[5] == 1) /* a NAT64 of the site's own */
		return HTTP_ADDRESS_PRIVATE;
	if (a[0] == 0xff)
		return HTTP_ADDRESS_MULTICAST;
	if ((a[0] & 0xfe) == 0xfc || (a[0] == 0xfe && a[1] >= 0xc0))
		return HTTP_ADDRESS_PRIVATE;
	if (a[0] == 0xfe && a[1] >= 0x80)
		return HTTP_ADDRESS_LINK_LOCAL;
	if ((a[0] & 0xe0) != 0x20) /* only 2000::/3 is in use */
		return HTTP_ADDRESS_RESERVED;
	if (get_be32(a) >> 9 == 0x20010000 >> 9 || /* 2001::/23: Teredo, ORCHID … */
	    get_be32(a) == 0x20010db8 || get_be32(a) >> 12 == 0x3fff0000 >> 12)
		return HTTP_ADDRESS_RESERVED;
	if (a[0] == 0x20 && a[1] == 0x02) /* 6to4 */
		return ipv4_class(get_be32(a + 2));
	if ((get_be32(a + 8) & 0xfdffffff) == 0x00005efe) /* ISATAP */
		return v4;
	return HTTP_ADDRESS_PUBLIC;
}

enum http_address_class http_address_class(const struct sockaddr *address)
{
	if (address->sa_family == AF_INET) {
		struct sockaddr_in in;

		memcpy(&in, address, sizeof(in));
		return ipv4_class(ntohl(in.sin_addr.s_addr));
	}
	if (address->sa_family == AF_INET6) {
		struct sockaddr_in6 in6;

		memcpy(&in6, address, sizeof(in6));
		return ipv6_class(in6.sin6_addr.s6_addr);
	}
	return HTTP_ADDRESS_RESERVED;
}

const char *http_address_class_name(enum http_address_class class)
{
	static const char *const names[] = {
		[HTTP_ADDRESS_PUBLIC] = "public",
		[HTTP_ADDRESS_LOOPBACK] = "loopback",
		[HTTP_ADDRESS_LINK_LOCAL] = "link-local",
		[HTTP_ADDRESS_PRIVATE] = "private",
		[HTTP_ADDRESS_MULTICAST] = "multicast",
		[HTTP_ADDRESS_UNSPECIFIED] = "unspecified",
		[HTTP_ADDRESS_RESERVED] = "reserved",
	};

	return names[class];
}

size_t http_name_len(const char *name)
{
	size_t n = strlen(name);

	return n > 0 && name[n - 1] == '.' ? n - 1 : n;
}

bool http_in_domain(const char *host, size_t n, const char *domain, size_t domain_n)
{
	if (n < domain_n || strncasecmp(host + n - domain_n, domain, domain_n) != 0)
		return false;
	return n == domain_n || host[n - domain_n - 1] == '.';
}

bool http_parse_address(const char *host, struct sockaddr_storage *ret)
{
	struct sockaddr_in in = { .sin_family = AF_INET };
	struct sockaddr_in6 in6 = { .sin6_family = AF_INET6 };
	char text[INET6_ADDRSTRLEN];
	size_t n = strcspn(host, "%");

	if (n >= sizeof(text))
		return false;
	memcpy(text, host, n);
	text[n] = '\0';
	if (inet_pton(AF_INET, text, &in.sin_addr) == 1)
		memcpy(ret, &in, sizeof(in));
	else if (inet_pton(AF_INET6, text, &in6.sin6_addr) == 1)
		memcpy(ret, &in6, sizeof(in6));
	else
		return false;
	return true;
}

enum http_address_class http_host_class(const char *host)
{
	struct sockaddr_storage address;

	if (http_parse_address(host, &address))
		return http_address_class((struct sockaddr *)&address);
	if (http_in_domain(host, http_name_len(host), "localhost", 9) ||
	    http_in_domain(host, http_name_len(host), "localhost.localdomain", 21))
		return HTTP_ADDRESS_LOOPBACK;
	return HTTP_ADDRESS_PUBLIC;
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
		http_proxies_finish(&proxies);
		return -ENOMEM;
	}
	*ret = proxies;
	return 0;
}

void http_proxies_finish(struct http_proxies *proxies)
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

bool http_in_network(const char *host, const char *network)
{
	struct sockaddr_storage address;

	return http_parse_address(host, &address) && address_in_token(&address, network);
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
