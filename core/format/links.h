/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LINKS (carton format v1): URLs of files that MANIFEST lists but the container does not contain.
 *
 *	version = 1
 *	[urls]
 *	<sha256> = ["https://…", …]
 *	[sizes]
 *	<sha256> = <bytes>
 *	[git]
 *	<name> = "<git id>"
 *	[left_out]
 *	files = <number>
 *	first = [["<path>", "<what is wrong with it>"], …]
 *
 * [sizes] is optional, and readers that do not know it ignore it: with it, no server is asked how
 * long a file is. [git] is written only for repositories of a hub, and read only from LINKS that we
 * have made ourselves: it has git's ids, which are sha1, of contents whose sha256 is known once
 * somebody has read them. Until then MANIFEST has the name in place of the sha256 (git_name() of
 * base/digest.h). [left_out] is optional, too: it counts the files of a repository that MANIFEST
 * cannot hold, and names the first of them, at most MAX_REPORTED.
 *
 * LINKS is not covered by the model hash and nothing in it is trusted: fetched bytes are hashed
 * like all others. A fault in it therefore affects only the files that need it.
 *
 * Threads: immutable once parsed, except `first`, which is atomic, and struct late.
 */
#ifndef CARTON_FORMAT_LINKS_H
#define CARTON_FORMAT_LINKS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/digest.h"
#include "base/limits.h"
#include "toml/toml.h"

#define LINKS_NO_SIZE UINT64_MAX

/* Content whose sha256 is not known until it has been read once. */
struct late {
	uint8_t git_id[SHA1_SIZE];
	uint8_t sha256[SHA256_SIZE]; /* constant once `known` is set */
	atomic_bool known;
};

struct link {
	uint8_t sha256[SHA256_SIZE];
	bool user;   /* the user has named where all its URLs lead: they may be private */
	char **urls; /* of the same content, in file order; those that can be asked */
	size_t n_urls;
	uint64_t size;	     /* LINKS_NO_SIZE: LINKS does not say */
	size_t line;	     /* of `fault`, else of the hash */
	const char *fault;   /* why it cannot be used; NULL: usable */
	size_t bad_line;     /* of `bad_url` */
	const char *bad_url; /* why a URL was left out of `urls`; NULL: none was */
	struct late *late;   /* owned; use link_late(); NULL: none */
	atomic_size_t first; /* the URL that worked last */
};

/* A file of a repository that MANIFEST cannot hold. */
struct left_out {
	const char *name; /* its path in the repository, cut if it is too long */
	const char *why;  /* what is wrong with the path: "has a backslash" */
};

struct links {
	struct link *list; /* sorted by sha256 */
	size_t n;
	uint64_t n_left_out;
	struct left_out left_out[MAX_REPORTED]; /* the first of these; texts owned or NULL */
	struct reason error; /* of the file, or the first line without a hash; "": none */
};

/*
 * Parses LINKS. Faults are stored, not logged: returns 0 also for text that is not TOML. -ENOMEM;
 * -EFBIG over MAX_LINK_URLS, or when its keys do not fit in `budget` (NULL: none).
 */
int links_parse(const char *text, size_t n, struct budget *budget, struct links **ret);

/* The user has named where all URLs lead. `l` may be NULL. */
void links_of_user(struct links *l);

/* The entry of that hash, usable or not, or NULL. `l` may be NULL. */
struct link *links_find(const struct links *l, const uint8_t sha256[SHA256_SIZE]);

/*
 * The git id of the content; NULL: `sha256` is the hash of the content. Only LINKS that we have
 * made count: LINKS of others must not replace a sha256 of MANIFEST by a sha1. `link` may be NULL.
 */
static inline struct late *link_late(const struct link *link)
{
	return link && link->user ? link->late : NULL;
}

/* NULL-safe. */
void links_free(struct links *l);

#endif
