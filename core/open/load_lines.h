/* SPDX-License-Identifier: Apache-2.0 */
/* The lines of MANIFEST, each with its entry of the container or its URLs in LINKS. */
#ifndef CARTON_OPEN_LOAD_LINES_H
#define CARTON_OPEN_LOAD_LINES_H

#include "open/load.h"

#define NO_ENTRY UINT32_MAX

/* The kinds of lines that lead to no file of the container. */
struct special {
	uint32_t line; /* in `lines` */
	const char *target;
	struct object *object;
};

struct loader {
	struct container *c;
	const struct manifest *m;
	const struct links *links;
	struct object_store *store;
	struct tree *tree;
	bool bare;
	size_t faults;
	bool said_bad_url; /* logged that a URL of LINKS is left out, or not to be logged */

	/* The lines without a fault, their entries (NO_ENTRY: none), and those that are special. */
	const uint32_t *lines; /* those of `m`, or */
	uint32_t *good;	       /* a copy, where some have a fault */
	uint32_t *entries;
	size_t n;
	struct special *special;
	size_t n_special, cap_special;
};

/* Logs a fault of a path, and counts it. */
void load_fault(struct loader *l, const char *path, const char *what);

/*
 * Finds the entry of each line; both are sorted. Entries that MANIFEST lists get its paths as their
 * names, and those of all others are copied, so that their text can be freed. 0 or -ENOMEM.
 */
int load_match_entries(struct loader *l);

/* Checks all lines, and leaves those with a fault out. 0 or -errno. */
int load_check_lines(struct loader *l);

#endif
