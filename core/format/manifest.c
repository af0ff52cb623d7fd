/* SPDX-License-Identifier: Apache-2.0 */
#include "format/manifest.h"

#include <stdlib.h>

#include "archive/container.h"
#include "base/util.h"

#define HEX_SIZE (2 * SHA256_SIZE)

static size_t count_lines(const char *text, size_t size)
{
	size_t n = 0;

	for (const char *p = text, *end = text + size; p < end; n++) {
		const char *eol = memchr(p, '\n', (size_t)(end - p));

		p = eol ? eol + 1 : end;
	}
	return n;
}

/* MANIFEST and LINKS are files beside the listed ones: neither they nor paths below are listed. */
static bool is_reserved(const char *path)
{
	size_t n = strcspn(path, "/");

	return (n == 8 && memcmp(path, "MANIFEST", n) == 0) ||
	       (n == 5 && memcmp(path, "LINKS", n) == 0);
}

/* Fills `line` from [p, p+n) and copies its path to `path`. NULL, or what is wrong. */
static const char *parse_line(const char *p, size_t n, char *path, struct manifest_line *line)
{
	const char *fault;

	if (n > 0 && p[n - 1] == '\r')
		return "ends with a carriage return; lines end with a newline only";
	if (memchr(p, '\0', n))
		return "contains a NUL byte";
	if (n < HEX_SIZE + 1 || p[n - HEX_SIZE - 1] != '=' ||
	    !hex_decode(p + n - HEX_SIZE, SHA256_SIZE, line->sha256))
		return "is not path=sha256 with 64 lower-case hex digits";
	n -= HEX_SIZE + 1;
	memcpy(path, p, n);
	path[n] = '\0';
	line->path = path;
	fault = path_fault(p, n);
	if (fault)
		return fault;
	if (is_reserved(path))
		return "lists MANIFEST, LINKS or a path below them, which is not allowed";
	return NULL;
}

static int parse_lines(struct manifest *m)
{
	const char *p = m->text, *end = m->text + m->size, *last = NULL;
	char *path = m->paths;
	size_t faults = 0;

	for (size_t number = 1; p < end && faults < MAX_REPORTED; number++) {
		const char *eol = memchr(p, '\n', (size_t)(end - p));
		size_t n = (size_t)((eol ? eol : end) - p);
		struct manifest_line *line = &m->lines[m->n];
		const char *fault = parse_line(p, n, path, line);

		p = eol ? eol + 1 : end;
		if (fault) {
			carton_log(CARTON_LOG_ERROR, "MANIFEST", "line %zu %s", number, fault);
			faults++;
			continue;
		}
		if (last && !m->unsorted_line && strcmp(last, path) > 0)
			m->unsorted_line = number;
		last = path;
		line->number = number;
		path += strlen(path) + 1;
		m->n++;
	}
	m->no_final_newline = m->size > 0 && end[-1] != '\n';
	return faults ? -EBADMSG : 0;
}

static int compare_lines(const void *a, const void *b)
{
	const struct manifest_line *x = a, *y = b;
	int order = path_compare(x->path, y->path);

	return order ? order : x->number < y->number ? -1 : x->number > y->number;
}

static int check_lines(const struct manifest *m)
{
	size_t faults = 0;

	for (size_t i = 1; i < m->n && faults < MAX_REPORTED; i++) {
		const struct manifest_line *last = &m->lines[i - 1], *line = &m->lines[i];
		size_t len = strlen(last->path);

		if (strcmp(last->path, line->path) == 0) {
			carton_log(CARTON_LOG_ERROR, "MANIFEST",
				   "line %zu is a duplicate of line %zu: \"%s\"", line->number,
				   last->number, line->path);
			faults++;
		} else if (strncmp(last->path, line->path, len) == 0 && line->path[len] == '/') {
			carton_log(CARTON_LOG_ERROR, "MANIFEST",
				   "line %zu uses the file of line %zu as a directory: \"%s\"",
				   line->number, last->number, line->path);
			faults++;
		}
	}
	return faults ? -EBADMSG : 0;
}

int manifest_parse(char *text, size_t size, struct budget *budget, struct manifest **ret)
{
	struct manifest *m = calloc(1, sizeof(*m));
	size_t n = count_lines(text, size);
	int r;

	if (!m) {
		free(text);
		return -ENOMEM;
	}
	m->text = text;
	m->size = size;
	r = -EFBIG;
	if (n > MAX_ENTRIES) {
		carton_log(CARTON_LOG_ERROR, "MANIFEST", "has more than %d lines", MAX_ENTRIES);
		goto fail;
	}
	/* qsort() copies references */
	r = budget_take(budget, n * (sizeof(*m->lines) + 2 * sizeof(void *)) + size);
	if (r < 0)
		goto fail;
	r = -ENOMEM;
	m->lines = calloc(n + 1, sizeof(*m->lines));
	m->paths = malloc(size + 1);
	if (!m->lines || !m->paths)
		goto fail;
	r = sha256_mem(text, size, m->model_hash);
	if (r == 0)
		r = parse_lines(m);
	if (r < 0)
		goto fail;
	qsort(m->lines, m->n, sizeof(*m->lines), compare_lines);
	r = check_lines(m);
	if (r < 0)
		goto fail;
	*ret = m;
	return 0;
fail:
	manifest_free(m);
	return r;
}

static int compare_path(const void *key, const void *line)
{
	return path_compare(key, ((const struct manifest_line *)line)->path);
}

const struct manifest_line *manifest_find(const struct manifest *m, const char *path)
{
	return bsearch(path, m->lines, m->n, sizeof(*m->lines), compare_path);
}

void manifest_free(struct manifest *m)
{
	if (!m)
		return;
	free(m->lines);
	free(m->text);
	free(m->paths);
	free(m);
}
