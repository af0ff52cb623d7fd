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

/* Ends the path of the line [p, p+n) with a NUL. NULL, or what is wrong. */
static const char *parse_line(char *p, size_t n)
{
	const char *fault;

	if (n > 0 && p[n - 1] == '\r')
		return "ends with a carriage return; lines end with a newline only";
	if (memchr(p, '\0', n))
		return "contains a NUL byte";
	if (n < HEX_SIZE + 1 || p[n - HEX_SIZE - 1] != '=' ||
	    !hex_valid(p + n - HEX_SIZE, SHA256_SIZE))
		return "is not path=sha256 with 64 lower-case hex digits";
	n -= HEX_SIZE + 1;
	fault = path_fault(p, n);
	if (fault)
		return fault;
	p[n] = '\0';
	if (is_reserved(p))
		return "lists MANIFEST, LINKS or a path below them, which is not allowed";
	return NULL;
}

static int parse_lines(struct manifest *m)
{
	char *p = m->text, *end = m->text + m->size;
	const char *last = NULL;
	size_t faults = 0;

	for (size_t number = 1; p < end && faults < MAX_REPORTED; number++) {
		char *eol = memchr(p, '\n', (size_t)(end - p)), *path = p;
		const char *fault = parse_line(p, (size_t)((eol ? eol : end) - p));

		p = eol ? eol + 1 : end;
		if (fault) {
			carton_log(CARTON_LOG_ERROR, "MANIFEST", "line %zu %s", number, fault);
			faults++;
			continue;
		}
		if (last && !m->unsorted_line && strcmp(last, path) > 0)
			m->unsorted_line = number;
		last = path;
		m->lines[m->n++] = (uint32_t)(path - m->text);
	}
	m->no_final_newline = m->size > 0 && end[-1] != '\n';
	return faults ? -EBADMSG : 0;
}

static int compare_lines(const void *a, const void *b, void *text)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	int order = path_compare((char *)text + x, (char *)text + y);

	return order ? order : x < y ? -1 : x > y;
}

/* The lines may be in order, or nearly: in the order of the bytes of their paths. */
static void sort_lines(struct manifest *m)
{
	for (size_t i = 1; i < m->n; i++)
		if (compare_lines(&m->lines[i - 1], &m->lines[i], m->text) > 0) {
			qsort_r(m->lines, m->n, sizeof(*m->lines), compare_lines, m->text);
			return;
		}
}

/* The number, from 1, of the line at the sorted place `i`. */
static size_t number_of(const struct manifest *m, size_t i)
{
	return count_lines(m->text, m->lines[i]) + 1;
}

static int check_lines(const struct manifest *m)
{
	size_t faults = 0;

	for (size_t i = 1; i < m->n && faults < MAX_REPORTED; i++) {
		const char *last = manifest_path(m, i - 1), *path = manifest_path(m, i);
		size_t len = strlen(last);

		if (strncmp(last, path, len) != 0)
			continue;
		if (path[len] == '\0') {
			carton_log(CARTON_LOG_ERROR, "MANIFEST",
				   "line %zu is a duplicate of line %zu: \"%s\"", number_of(m, i),
				   number_of(m, i - 1), path);
			faults++;
		} else if (path[len] == '/') {
			carton_log(CARTON_LOG_ERROR, "MANIFEST",
				   "line %zu uses the file of line %zu as a directory: \"%s\"",
				   number_of(m, i), number_of(m, i - 1), path);
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
	_Static_assert(MAX_MANIFEST < UINT32_MAX, "offsets have 32 bits");
	/* and the copy that qsort_r() makes */
	r = n > MAX_ENTRIES ? log_error(-EFBIG, "MANIFEST", "has more than %d lines", MAX_ENTRIES) :
			      budget_take(budget, 2 * n * sizeof(*m->lines));
	if (r == 0) {
		m->budget = budget;
		m->taken = 2 * n * sizeof(*m->lines);
		m->lines = calloc(n + 1, sizeof(*m->lines));
		r = m->lines ? sha256_mem(text, size, m->model_hash) : -ENOMEM;
	}
	if (r == 0)
		r = parse_lines(m);
	if (r == 0) {
		sort_lines(m);
		r = check_lines(m);
	}
	if (r < 0)
		manifest_free(m);
	else
		*ret = m;
	return r;
}

/* The place of a path in the lines from `low` to `high`; or `high`. */
static size_t find(const struct manifest *m, size_t low, size_t high, const char *path)
{
	size_t none = high;

	while (low < high) {
		size_t mid = low + (high - low) / 2;
		int order = path_compare(path, manifest_path(m, mid));

		if (order == 0)
			return mid;
		if (order < 0)
			high = mid;
		else
			low = mid + 1;
	}
	return none;
}

size_t manifest_line(const struct manifest *m, const char *path)
{
	return find(m, 0, m->n, path);
}

bool manifest_leaves_out(const struct manifest *m, const char *path)
{
	return find(m, m->n, m->n + m->left_out, path) < m->n + m->left_out;
}

const char *manifest_find(const struct manifest *m, const char *path)
{
	size_t i = manifest_line(m, path);

	return i < m->n ? manifest_path(m, i) : NULL;
}

int manifest_check_hash(const char *path, const char *line, const uint8_t found[SHA256_SIZE])
{
	const char *want = manifest_hex(line);
	char hex[HEX_SIZE + 1];

	hex_encode(found, SHA256_SIZE, hex);
	if (memcmp(hex, want, HEX_SIZE) == 0)
		return 0;
	return log_error(-EBADMSG, path, "sha256 mismatch: MANIFEST says %.64s, the bytes have %s",
			 want, hex);
}

void manifest_free(struct manifest *m)
{
	if (!m)
		return;
	budget_give(m->budget, m->taken);
	free(m->lines);
	free(m->text);
	free(m);
}
