/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A repository of a hub as a carton: asks the hub which commit it is at and what it has
 * (listing.h), fetches the small files that have no sha256 there, and writes a carton of some KB,
 * whose LINKS lead to all others. Or it writes a late carton, which has the git ids of the small
 * files (links.h), and whose LINKS lead to them, too: then the open does not wait for these files.
 *
 * The carton is kept in the cache with its commit, and the small files by their git id: what was
 * opened once opens offline, and of another commit only what has changed is fetched.
 *
 * Threads: the one that opens the carton, which waits.
 */
#ifndef CARTON_IMPORT_IMPORT_H
#define CARTON_IMPORT_IMPORT_H

#include "fetch/version.h"
#include "import/lister.h"

struct budget;
struct cache;
struct registry_mirror;
struct container;

struct import {
	const struct fetch_options *fetch; /* NULL: offline */
	struct cache *cache;		   /* or NULL */
	struct budget *budget;
	bool token;		     /* the server gets one */
	bool late;		     /* a late carton, where the lister has git's ids */
	bool seals;		     /* the files of layers get seals once they are hashed */
	struct carton_runner runner; /* for carton.toml */
	/* the mirrors of a registry, which are asked before it */
	const struct registry_mirror *mirrors;
	size_t n_mirrors;
	int64_t attached_ms; /* signatures are looked for so long */
};

/*
 * Makes the carton of a repository of `lister`, or finds it in the cache. Sets the scheme in
 * repo->server. 0, the commit or "", and the entries of the carton, including those of layers that
 * are archives; or -errno, logged.
 */
int import_repository(const struct import *im, const struct lister *lister, struct repository *repo,
		      char ret_commit[LISTING_COMMIT], struct container **ret);

/*
 * Gives the signatures that are attached to a commit to `take`: the one that was taken when that
 * was last looked for, which is in the cache; then those that the service has now. The one that is
 * taken is kept. Nothing of them is trusted: a registry lets others attach some. 1; 0: there is
 * none, or none was taken; -errno of `take`, or logged.
 */
struct import_signed {
	const struct lister *lister;
	struct repository *repo;
	const char *commit; /* of import_repository() */
	import_signature_fn *take;
	void *ctx;
};
int import_signatures(const struct import *im, const struct import_signed *of);

#endif
