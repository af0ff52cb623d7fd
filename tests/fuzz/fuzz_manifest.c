/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as MANIFEST. What is accepted says exactly what its text says, line for line. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "archive/container.h"
#include "format/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define CHECK(what)              \
	do {                     \
		if (!(what))     \
			abort(); \
	} while (0)

/* The line as it must stand in the text, at its number. */
static void check_line(const struct manifest_line *line, const char *const *starts, const char *end)
{
	char hex[2 * SHA256_SIZE + 1];
	const char *p = starts[line->number - 1];
	size_t len = strlen(line->path);

	CHECK(!path_fault(line->path, len));
	CHECK((size_t)(end - p) >= len + 1 + 2 * SHA256_SIZE);
	CHECK(memcmp(p, line->path, len) == 0 && p[len] == '=');
	hex_encode(line->sha256, SHA256_SIZE, hex);
	CHECK(memcmp(p + len + 1, hex, 2 * SHA256_SIZE) == 0);
	p += len + 1 + 2 * SHA256_SIZE;
	CHECK(p == end || *p == '\n');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	char *text = malloc(n + 1);
	const char **starts = calloc(n + 2, sizeof(*starts));
	struct manifest *m;
	size_t n_lines = 0;
	int r;

	CHECK(text && starts);
	memcpy(text, data, n);
	for (size_t i = 0; i < n; i++)
		if (i == 0 || data[i - 1] == '\n')
			starts[n_lines++] = text + i;
	r = manifest_parse(text, n, NULL, &m);
	CHECK(r == 0 || r == -EBADMSG || r == -EFBIG);
	if (r == 0) {
		CHECK(m->n == n_lines && m->size == n && m->text == text);
		for (size_t i = 0; i < m->n; i++) {
			check_line(&m->lines[i], starts, text + n);
			CHECK(manifest_find(m, m->lines[i].path) == &m->lines[i]);
			CHECK(i == 0 || path_compare(m->lines[i - 1].path, m->lines[i].path) < 0);
		}
		CHECK(!manifest_find(m, "MANIFEST") && !manifest_find(m, "LINKS"));
		manifest_free(m);
	}
	free(starts);
	return 0;
}
