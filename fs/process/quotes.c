/* SPDX-License-Identifier: Apache-2.0 */
#include "process/quotes.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* The values of these stay in quotes: the kernel reads them. */
static bool is_for_kernel(const char *option)
{
	static const char *const names[] = { "context=", "fscontext=", "defcontext=",
					     "rootcontext=" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strncmp(option, names[i], strlen(names[i])) == 0)
			return true;
	return false;
}

/* The quote that ends the value which begins at `text`, behind its first quote; NULL: none does. */
static const char *end_of_value(const char *text)
{
	const char *end = strchr(text, '"');

	return end && (end[1] == ',' || !end[1]) ? end : NULL;
}

char *quotes_remove(const char *options)
{
	char *ret = malloc(2 * strlen(options) + 1), *to = ret;
	const char *option = options, *quote = NULL; /* the quote that ends the value */

	for (const char *at = options; ret && *at; at++) {
		bool bound = at == quote;

		if (!quote && at > option && at[-1] == '=' && *at == '"' &&
		    strcspn(option, "=") == (size_t)(at - option) - 1) {
			quote = end_of_value(at + 1);
			bound = quote != NULL;
		} else if (!quote && *at == ',') {
			option = at + 1;
		}
		if (quote && *at == ',' && at[-1] != '\\')
			*to++ = '\\';
		if (!bound || is_for_kernel(option))
			*to++ = *at;
		if (at == quote)
			quote = NULL;
	}
	if (ret)
		*to = '\0';
	return ret;
}
