/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which URLs may be asked for chunks of an object: those of mirrors by hash, then those of LINKS. One that gave other
 * bytes is not asked again, nor are the mirrors that were asked in vain.
 *
 * Embedded in its owner, and guarded by the owner's lock, which is held in all calls but find and free. The URLs
 * themselves are constant between these two.
 */
#ifndef CARTON_OBJECT_CHUNK_URLS_H
#define CARTON_OBJECT_CHUNK_URLS_H

#include <stdbool.h>
#include <stddef.h>

struct link;
struct object;

/* All zero: empty. */
struct chunk_urls {
	char **urls; /* of mirrors, then of LINKS */
	size_t n, n_by_hash;
	bool *dropped; /* of each URL: it is not asked again */
	size_t good;   /* the URL of LINKS that worked last */
	bool logged;   /* that a URL that is not in the list gives other bytes */
};

/* `link` may be NULL, and outlives it. 0 or -ENOMEM. */
int chunk_urls_find(struct chunk_urls *u, const struct object *o, const struct link *link);

/* NULL members are fine. */
void chunk_urls_free(struct chunk_urls *u);

/*
 * The URLs that may be asked: those of mirrors, *ret_n_by_hash of them, and those of LINKS from the one that worked
 * last on. Returns how many. `ret` has room for u->n; they are valid until chunk_urls_free().
 */
size_t chunk_urls_list(const struct chunk_urls *u, char **ret, size_t *ret_n_by_hash);

/* Is the `url` of that list? Otherwise it is the carton's. Compares pointers. Needs no lock. */
bool chunk_urls_has(const struct chunk_urls *u, const char *url);

/* Its bytes are right: the mirrors before it are not asked again. */
void chunk_urls_good(struct chunk_urls *u, const char *url);

/* Its bytes are wrong: it is not asked again. False: that has been logged before. */
bool chunk_urls_bad(struct chunk_urls *u, const char *url);

/* No mirror is asked again. */
void chunk_urls_drop_mirrors(struct chunk_urls *u);

#endif
