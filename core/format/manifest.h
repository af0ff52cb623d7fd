/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MANIFEST (carton format v1): a line `path=sha256` for each file of the carton but MANIFEST and
 * LINKS.
 *
 * A path may contain '=': a line splits at its last one. The hash is 64 lower-case hex digits. The
 * sha256 of the whole file is the model hash.
 *
 * Threads: immutable once parsed.
 */
#ifndef CARTON_FORMAT_MANIFEST_H
#define CARTON_FORMAT_MANIFEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/budget.h"
#include "base/digest.h"
#include "base/util.h"

struct manifest {
	char *text; /* the file, but with a NUL in place of the '=' behind each path */
	size_t size;
	uint32_t *lines; /* offsets of the lines in `text`, sorted by path_compare */
	size_t n;
	uint8_t model_hash[SHA256_SIZE];
	size_t unsorted_line; /* the first line that is out of order; 0: none */
	bool no_final_newline;
	size_t left_out; /* as many lines are behind the n, also sorted: they are not signed */
	bool unhashed;	 /* of a carton that is to be packed: the hashes only name files */
	struct budget *budget; /* counts the lines until manifest_free(); or NULL */
	uint64_t taken;
};

/*
 * Parses `text`, which was malloc'ed and is owned by the manifest from now on, also on failure.
 * Logs malformed lines, up to MAX_REPORTED. 0, -EBADMSG, -EFBIG over MAX_ENTRIES or the budget
 * (NULL: none) (logged), -ENOMEM.
 */
int manifest_parse(char *text, size_t size, struct budget *budget, struct manifest **ret);

/*
 * The path of the line at `i` of the sorted lines. It points into `text`, so it lives as long as
 * the manifest.
 */
static inline const char *manifest_path(const struct manifest *m, size_t i)
{
	return m->text + m->lines[i];
}

/* The place of a path in the sorted lines; m->n: it is not listed. */
size_t manifest_line(const struct manifest *m, const char *path);

/* Is the path among the m->left_out lines, which no signature covers? They are not in m->n. */
bool manifest_leaves_out(const struct manifest *m, const char *path);

/* The same path in `text`, if MANIFEST lists it; or NULL. */
const char *manifest_find(const struct manifest *m, const char *path);

/* The hash of a path in `text`, or of the last component of one: as 64 hex digits, and as bytes. */
static inline const char *manifest_hex(const char *path)
{
	return path + strlen(path) + 1;
}

static inline void manifest_hash(const char *path, uint8_t ret[SHA256_SIZE])
{
	hex_decode(manifest_hex(path), SHA256_SIZE, ret);
}

/*
 * Compares the hash of a path's content with that of `line`, a path in `text`. 0, or -EBADMSG,
 * logged.
 */
int manifest_check_hash(const char *path, const char *line, const uint8_t found[SHA256_SIZE]);

/* NULL-safe. */
void manifest_free(struct manifest *m);

#endif
