/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/status_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The text behind `before` and `"key": `, or NULL. */
static const char *behind(const char *json, const char *before, const char *key)
{
	char start[64];
	const char *at;

	snprintf(start, sizeof(start), "%s\"%s\": ", before, key);
	at = strstr(json, start);
	return at ? at + strlen(start) : NULL;
}

const char *json_member(const char *json, const char *key)
{
	return behind(json, "\n ", key);
}

const char *json_in_element(const char *element, const char *key)
{
	return behind(element, "", key);
}

uint64_t json_number_of(const char *json, const char *key)
{
	const char *at = json_member(json, key);

	return at ? strtoull(at, NULL, 10) : 0;
}

char *json_next_element(const char **at)
{
	const char *start = *at ? strchr(*at, '\n') : NULL, *end;

	if (!start || strncmp(start, "\n  {", 4) != 0)
		return NULL;
	end = strchr(start + 1, '\n');
	*at = end ? end : start + strlen(start);
	return strndup(start + 1, (size_t)(*at - start - 1));
}
