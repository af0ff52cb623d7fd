/* SPDX-License-Identifier: Apache-2.0 */
#include "common/option_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "carton.h"
#include "common/numbers.h"

#define SPEC(name, kind, expected, max)                                                    \
	{                                                                                  \
#name, OPTION_##kind, offsetof(struct carton_options, name), expected, max \
	}

const struct option_spec carton_option_table[] = {
	SPEC(manifest_sha256, TEXT, "64 hexadecimal digits", 0),
	SPEC(cache_dir, TEXT, "a directory", 0),
	SPEC(cache_size, SIZE, "a size such as 500M or 20G", 0),
	{ "seals", OPTION_UNLESS, offsetof(struct carton_options, noseals), "on or off", 0 },
	SPEC(memory, SIZE, "a size such as 64M or 2G", 0),
	SPEC(offline, FLAG, "no value", 0),
	SPEC(connections, COUNT, "a number from 1 to 32", 32),
	{ "timeout", OPTION_COUNT, offsetof(struct carton_options, timeout_s),
	  "seconds from 1 to 86400", 86400 },
	SPEC(max_size, SIZE, "a size such as 500M or 2T", 0),
	SPEC(private_links, FLAG, "no value", 0),
	SPEC(cacert, TEXT, "a file", 0),
	SPEC(header_file, TEXT, "a file", 0),
	{ "mirror", OPTION_LIST, offsetof(struct carton_options, mirrors),
	  "a URL or an absolute path, with {sha256}", 0 },
	{ .name = NULL },
};

const struct option_spec *option_find(const struct option_spec *table, const char *name, size_t n)
{
	for (; table->name; table++)
		if (strncmp(table->name, name, n) == 0 && table->name[n] == '\0')
			return table;
	return NULL;
}

static int set_text(char **field, const char *value)
{
	char *copy = strdup(value);

	if (!copy)
		return -ENOMEM;
	free(*field);
	*field = copy;
	return 0;
}

static int add_to_list(char ***field, const char *value)
{
	size_t n = 0;
	char **list;

	while (*field && (*field)[n])
		n++;
	list = reallocarray(*field, n + 2, sizeof(*list));
	if (!list)
		return -ENOMEM;
	*field = list;
	list[n] = strdup(value);
	list[n + 1] = NULL;
	return list[n] ? 0 : -ENOMEM;
}

static int set_number(const struct option_spec *spec, unsigned *field, const char *value)
{
	int base = spec->kind == OPTION_OCTAL ? 8 : 10;
	unsigned long n;

	if (!parse_number(value, base, spec->max, &n) || (n == 0 && spec->kind == OPTION_COUNT))
		return -EINVAL;
	*field = (unsigned)n;
	return 0;
}

int option_set(const struct option_spec *spec, void *target, const char *value)
{
	void *field = (char *)target + spec->offset;
	uint64_t size;

	if (spec->kind == OPTION_FLAG) {
		if (value)
			return -EINVAL;
		*(bool *)field = true;
		return 0;
	}
	if (!value)
		return -EINVAL;
	switch (spec->kind) {
	case OPTION_UNLESS:
		*(bool *)field = strcmp(value, "off") == 0;
		return *(bool *)field || strcmp(value, "on") == 0 ? 0 : -EINVAL;
	case OPTION_TEXT:
		return *value || !spec->expected ? set_text(field, value) : -EINVAL;
	case OPTION_LIST:
		return *value ? add_to_list(field, value) : -EINVAL;
	case OPTION_SIZE:
		if (!parse_size(value, &size) || size == 0)
			return -EINVAL;
		*(uint64_t *)field = size;
		return 0;
	default:
		return set_number(spec, field, value);
	}
}

void option_finish(const struct option_spec *table, void *target)
{
	for (; table->name; table++) {
		void *field = (char *)target + table->offset;

		if (table->kind == OPTION_TEXT)
			free(*(char **)field);
		for (char **p = table->kind == OPTION_LIST ? *(char ***)field : NULL; p && *p; p++)
			free(*p);
		if (table->kind == OPTION_LIST)
			free(*(char ***)field);
	}
}

/*
 * The number of characters to insert, remove or replace; names longer than the row are not
 * compared.
 */
static size_t edits(const char *a, const char *b)
{
	size_t row[32], n = strlen(b);

	if (n >= sizeof(row) / sizeof(row[0]))
		return SIZE_MAX;
	for (size_t j = 0; j <= n; j++)
		row[j] = j;
	for (size_t i = 1; *a; i++, a++) {
		size_t diagonal = row[0];

		row[0] = i;
		for (size_t j = 1; j <= n; j++) {
			size_t best = diagonal + (*a != b[j - 1]);

			diagonal = row[j];
			if (best > row[j] + 1)
				best = row[j] + 1;
			if (best > row[j - 1] + 1)
				best = row[j - 1] + 1;
			row[j] = best;
		}
	}
	return row[n];
}

bool option_similar(const char *a, const char *b)
{
	size_t n = edits(a, b);

	return n <= 2 && 2 * n < strlen(b);
}
