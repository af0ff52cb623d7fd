/* SPDX-License-Identifier: Apache-2.0 */
#include "process/quotes.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Does the kernel read this option itself? It expects the quotes. "-o" may be in front. */
static bool is_for_kernel(const char *option)
{
	static const char *const names[] = { "context=", "fscontext=", "defcontext=",
					     "rootcontext=" };

	if (strncmp(option, "-o", 2) == 0)
		option += 2;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strncmp(option, names[i], strlen(names[i])) == 0)
			return true;
	return false;
}

/* Returns the first character of the option's value, if that is a quote; else NULL. */
static const char *first_quote(const char *option)
{
	const char *end = option + strcspn(option, "=,");

	return end[0] == '=' && end[1] == '"' ? end + 1 : NULL;
}

/* Returns the quote that ends the value which begins with the quote `first`; NULL: none does. */
static const char *last_quote(const char *first)
{
	const char *end = strchr(first + 1, '"');

	return end && (end[1] == ',' || !end[1]) ? end : NULL;
}

char *quotes_remove(const char *options)
{
	char *ret = malloc(2 * strlen(options) + 1), *to = ret;
	const char *at = options;

	while (ret && *at) {
		const char *first = first_quote(at), *last = first ? last_quote(first) : NULL;
		bool keep = is_for_kernel(at);

		if (last) {
			to = mempcpy(to, at, (size_t)(first - at) + keep);
			for (at = first + 1; at < last; at++) {
				if (*at == ',' && at[-1] != '\\')
					*to++ = '\\';
				*to++ = *at;
			}
			at = last + !keep;
		}
		/* the rest of the option, or all of it if it has no quotes, and the comma behind */
		while (*at && (*to++ = *at++) != ',')
			;
	}
	if (ret)
		*to = '\0';
	return ret;
}
