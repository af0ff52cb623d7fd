/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as MANIFEST. What is accepted says exactly what its text says, line for line. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "archive/container.h"
#include "format/manifest.h"

#include "fuzz.h"

/* The line as it stands in the text, and as it must stand in the file. */
static void check_line(const struct manifest *m, size_t i, const char *file)
{
	const char *path = manifest_path(m, i), *p = file + (path - m->text);
	char hex[2 * SHA256_SIZE + 1];
	uint8_t hash[SHA256_SIZE];
	size_t len = strlen(path);

	CHECK(!path_fault(path, len));
	CHECK(p == file || p[-1] == '\n');
	CHECK((size_t)(file + m->size - p) >= len + 1 + 2 * SHA256_SIZE);
	CHECK(memcmp(p, path, len) == 0 && p[len] == '=');
	manifest_hash(path, hash);
	hex_encode(hash, SHA256_SIZE, hex);
	CHECK(memcmp(p + len + 1, hex, 2 * SHA256_SIZE) == 0);
	p += len + 1 + 2 * SHA256_SIZE;
	CHECK(p == file + m->size || *p == '\n');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	char *text = malloc(n + 1), *file = malloc(n + 1);
	struct manifest *m;
	size_t n_lines = 0;
	int r;

	CHECK(text && file);
	memcpy(text, data, n);
	memcpy(file, data, n);
	for (size_t i = 0; i < n; i++)
		n_lines += i == 0 || data[i - 1] == '\n';
	r = manifest_parse(text, n, NULL, &m);
	CHECK(r == 0 || r == -EBADMSG || r == -EFBIG);
	if (r == 0) {
		CHECK(m->n == n_lines && m->size == n && m->text == text);
		for (size_t i = 0; i < m->n; i++) {
			check_line(m, i, file);
			CHECK(manifest_find(m, manifest_path(m, i)) == manifest_path(m, i));
			CHECK(i == 0 ||
			      path_compare(manifest_path(m, i - 1), manifest_path(m, i)) < 0);
		}
		CHECK(!manifest_find(m, "MANIFEST") && !manifest_find(m, "LINKS"));
		/* only the end of each path is another byte, and all of them are NUL */
		for (size_t i = 0; i < n; i++)
			CHECK(text[i] == file[i] || (text[i] == '\0' && file[i] == '='));
		manifest_free(m);
	}
	free(file);
	return 0;
}
