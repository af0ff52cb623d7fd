/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MANIFEST (carton format v1): a line `path=sha256` for each file of the carton but MANIFEST and LINKS.
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

struct manifest_line {
	const char *path;
	size_t number; /* from 1 */
	uint8_t sha256[SHA256_SIZE];
};

struct manifest {
	struct manifest_line *lines; /* sorted by path_compare */
	size_t n;
	char *text; /* the unchanged file */
	size_t size;
	char *paths; /* owns lines[].path */
	uint8_t model_hash[SHA256_SIZE];
	size_t unsorted_line; /* the first line that is out of order; 0: none */
	bool no_final_newline;
};

/*
 * Parses `text`, which was malloc'ed and is owned by the manifest from now on, also on failure. Logs
 * malformed lines, up to MAX_REPORTED. 0, -EBADMSG, -EFBIG over MAX_ENTRIES or the budget (NULL: none) (logged), -ENOMEM.
 */
int manifest_parse(char *text, size_t size, struct budget *budget, struct manifest **ret);

/* The line of that path, or NULL. */
const struct manifest_line *manifest_find(const struct manifest *m, const char *path);

/* NULL-safe. */
void manifest_free(struct manifest *m);

#endif
