/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A service that lists the files of a repository: a hub. Each file has a sha256 there, or an id
 * with which its bytes can be compared. A lister is a file with one struct lister, and its row in
 * the table of lister.c. What becomes of the list does not depend on the service (listing.h).
 *
 * Threads: the one that opens the carton.
 */
#ifndef CARTON_IMPORT_LISTER_H
#define CARTON_IMPORT_LISTER_H

#include "http/repository.h"
#include "import/listing.h"

struct http_response;
struct import;

/* Looks at a signature. 0: at the next one, too; 1: it is the one that was wanted; or -errno. */
typedef int import_signature_fn(void *ctx, const struct buf *text);

struct lister {
	/* Its sources are repositories of this form, so the next two are NULL. Or NULL. */
	const struct repository_form *form;

	/* It lists small files with their git ids, without a sha256. */
	bool git_ids;

	/* Is that a source of it, as a whole? */
	bool (*takes)(const char *source);

	/* What such a source names. 0; -ENOMEM; or -EINVAL, logged. */
	int (*parse)(const char *source, struct repository *ret);

	/* Does the name of a revision say what it has, so that it never changes? */
	bool (*is_commit)(const char *revision);

	/*
	 * A commit is the digest of the text that lists the files. Then the carton is made of the
	 * texts that the cache has under their digests, offline too, and needs no note.
	 */
	bool by_digest;

	/*
	 * Asks what the revision is now: sets l->commit to the name of that, or leaves it "" if the
	 * service does not say; and the license, if it says one. May add the files, too. 0 or
	 * -errno, logged.
	 */
	int (*resolve)(const struct import *im, struct listing *l);

	/* Adds the files of l->commit, unless resolve() has. 0 or -errno, logged. */
	int (*list)(const struct import *im, struct listing *l);

	/*
	 * Tells the user what an answer with a status from 400 means, and what to do. Any thread.
	 */
	void (*refused)(const struct import *im, const struct listing *l,
			const struct http_response *answer);

	/* The URL of a file, which leads to these bytes for ever. malloc'ed; NULL: no memory. */
	char *(*url)(const struct listing *l, const struct listed *f);

	/*
	 * The address for people, the same on each machine. malloc'ed; NULL: no memory. NULL: there
	 * is none.
	 */
	char *(*homepage)(const struct listing *l);

	/*
	 * Gives the signatures that are attached to l->commit to `take`, until that returns what is
	 * not 0: that; 0: none was taken; or -errno, logged. NULL: the service has none.
	 */
	int (*signatures)(const struct import *im, struct listing *l, import_signature_fn *take,
			  void *ctx);
};

extern const struct lister hub_lister;	      /* hf:// */
extern const struct lister modelscope_lister; /* ms:// */
extern const struct lister oci_lister;	      /* oci:// */

/* The one that takes this source, or NULL. */
const struct lister *lister_of(const char *source);

/* As parse() above. */
int lister_parse(const struct lister *lister, const char *source, struct repository *ret);

#endif
