/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The URL of the next page of a list. A mirror passes on the link of the hub behind it, with the
 * hub's name and path; other servers leave their name out of the link (RFC 8288). Only the query of
 * the link is used, so that the next request, with its token, goes to the same server.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "import/internal.h"

/* The path of an absolute or relative URL; "" if that is left out. */
static const char *path_of(const char *url)
{
	size_t scheme = strspn(url,
			       "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+.-");

	if (scheme && strncmp(url + scheme, "://", 3) == 0)
		url += scheme + 1;
	return strncmp(url, "//", 2) == 0 ? url + 2 + strcspn(url + 2, "/?#") : url;
}

/* The byte that `text`, %xx in hex of either case, encodes; -1: these are not hex digits. */
static int encoded(const char *text)
{
	int byte = 0;

	for (size_t i = 1; i < 3; i++) {
		if (!isxdigit((unsigned char)text[i]))
			return -1;
		byte = 16 * byte + (isdigit((unsigned char)text[i]) ? text[i] - '0' :
								      (text[i] | 32) - 'a' + 10);
	}
	return byte;
}

/* Is `name` the last component of `path`, which may be percent-encoded? */
static bool is_last(const char *path, size_t n, const char *name, size_t n_name)
{
	while (n > 0 && n_name > 0) {
		int c = n > 2 && path[n - 3] == '%' ? encoded(path + n - 3) : -1;

		n -= c < 0 ? 1 : 3;
		if ((c < 0 ? path[n] : (char)c) != name[--n_name])
			return false;
	}
	return n_name == 0 && (n == 0 || path[n - 1] == '/');
}

int import_next(const char *asked, const char *next, char **ret)
{
	const char *path = path_of(next), *query = path + strcspn(path, "?#");
	size_t n = strcspn(asked, "?"), at = n;

	while (at > 0 && asked[at - 1] != '/')
		at--;
	if (query > path && !is_last(path, (size_t)(query - path), asked + at, n - at))
		return -EBADMSG;
	if (asprintf(ret, "%.*s%.*s", (int)n, asked, (int)strcspn(query, "#"), query) < 0)
		return -ENOMEM;
	return 0;
}
