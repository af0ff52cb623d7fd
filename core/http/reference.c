/* SPDX-License-Identifier: Apache-2.0 */
#include "http/reference.h"

#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "http/policy.h"

#define ALNUM "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define MAX_NAME 255

bool reference_is_host(const char *host, size_t n)
{
	size_t len;

	if (n == 0)
		return false;
	if (*host == '[') {
		len = 1 + strspn(host + 1, "0123456789abcdefABCDEF:.");
		if (len < 4 || host[len++] != ']')
			return false;
	} else {
		len = strspn(host, "-." ALNUM);
		if (len == 0 || strchr("-.", *host))
			return false;
	}
	if (len < n && host[len] == ':') {
		size_t digits = strspn(host + len + 1, "0123456789");

		len += 1 + digits;
		if (digits == 0 || digits > 5)
			return false;
	}
	return len == n;
}

bool reference_is_name(const char *name, size_t n)
{
	const char *end = name + n;

	if (n == 0 || n > MAX_NAME)
		return false;
	for (;; name++) {
		size_t len = strspn(name, "-._~" ALNUM), dots = strspn(name, ".");

		if (len == 0 || (dots == len && dots <= 2) || name + len > end)
			return false;
		name += len;
		if (name == end)
			return true;
		if (*name != '/')
			return false;
	}
}

char *reference_host(const char *host, size_t n, unsigned *ret_port)
{
	bool brackets = *host == '[';
	size_t len = MIN(strcspn(host + brackets, brackets ? "]" : ":/"), n);
	const char *port = host + brackets + len + brackets;

	*ret_port = port < host + n && *port == ':' ? (unsigned)strtoul(port + 1, NULL, 10) : 0;
	return strndup(host + brackets, len);
}

bool reference_is_local(const char *host, size_t n)
{
	unsigned port;
	char *name = reference_host(host, n, &port);
	bool local = name && http_host_class(name) == HTTP_ADDRESS_LOOPBACK;

	free(name);
	return local;
}
