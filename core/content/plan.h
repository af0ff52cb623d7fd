/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the bytes of an object may be: its places, in the order in which they are tried, whether
 * all bytes are wanted or a chunk:
 *
 *	the cache entry
 *	directories that the user gave with mirror=
 *	entries of a local container
 *	URLs: those of mirror=, then those of LINKS
 *	the range of an entry in the carton at a URL
 *
 * An object has some of them. A plan is made for one attempt to get an object's bytes; chunks that
 * are fetched later use the same one.
 *
 * Threads: plan_next_entry() and plan_find_urls() are for who has made it, before others use it.
 */
#ifndef CARTON_CONTENT_PLAN_H
#define CARTON_CONTENT_PLAN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "fetch/remote_source.h"

struct entry;
struct link;
struct object;

struct plan {
	/* constant once others use it */
	struct object *object;	   /* outlives it */
	const struct entry *entry; /* the one to be tried; NULL: none is left */
	struct link *link;	   /* of LINKS; or NULL */
	struct fetch_place *urls;  /* of mirror=, then those of LINKS */
	size_t n_urls;

	/* private */
	_Atomic(const struct fetch_place *) header_at; /* the place that has sent the header */
	char **names; /* the URLs of mirror=, as mirrors_urls() gives them; or NULL */
	atomic_uint refs;
	const struct entry *first;
	size_t found; /* how far find_entry() has looked for others */
};

/*
 * For an object of entries, the first of which is `first`; or, if that is NULL, of LINKS. NULL: no
 * memory.
 */
struct plan *plan_new(struct object *o, const struct entry *first, struct link *link);
struct plan *plan_ref(struct plan *p);
void plan_unref(struct plan *p); /* NULL-safe */

/* Goes on to the next entry. False: there is none. */
bool plan_next_entry(struct plan *p);

/* Is it a large Stored entry, whose data is fetched as it is? */
bool plan_is_direct(const struct entry *e);

/* Opens the object in the `at`th directory or behind. As mirrors_open(). */
int plan_open_directory(const struct plan *p, size_t *at, int *ret_fd);

/* Finds the URLs, once. 0 or -ENOMEM. */
int plan_find_urls(struct plan *p);

/* May one of them still be asked? */
bool plan_has_urls(const struct plan *p);

/* The number of a URL of the plan; p->n_urls: it is the carton's. */
size_t plan_index(const struct plan *p, const char *url);

/* A URL has other bytes than the chunk index says: it is not asked again. False: that was known. */
bool plan_drop_url(struct plan *p, size_t index);

/* The first `n` URLs are asked no more, as far as they are of mirror=. */
void plan_drop_mirrors(struct plan *p, size_t n);

/* The URLs of the carton: as remote_source_places(). How many of them may still be asked? */
size_t plan_carton(const struct plan *p, struct fetch_place **ret);
size_t plan_carton_left(const struct plan *p);

/* Has a place that may still be asked sent the entry's header, and was it right? */
bool plan_has_header(const struct plan *p);
void plan_keep_header(struct plan *p, const struct fetch_place *from);

/* All URLs may be asked again: for all of the content, the index is not what decides. */
void plan_allow_urls(struct plan *p);

#endif
