/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Other repositories that may have the same files: where they list the same sha256, their URLs
 * stand in LINKS behind those of the repository that is imported.
 *
 * Threads: one.
 */
#ifndef CARTON_PACK_OTHERS_H
#define CARTON_PACK_OTHERS_H

#include "carton/opened.h"

struct others {
	const char *const *sources; /* at most MAX_OTHERS, then NULL; or NULL */
	struct carton *list[MAX_OTHERS];
	size_t n;	 /* that were opened */
	uint64_t shared; /* hashes that one of them has */
};

/* Each is a repository, and they are not too many. 0 or -EINVAL, logged. */
int others_check(const char *const *sources);

/*
 * The next source, or NULL: opens it, with these options for all. A process is confined once, after
 * all of its sources were found, so each is opened by the confine function of the one before.
 */
const char *others_next(const struct others *o);
int others_open(struct others *o, const struct carton_options *options);

/* Writes `own`, with the URLs of the others, into an empty buf. 0, -ENOMEM or -EFBIG. */
int others_links(struct others *o, const struct links *own, struct buf *ret);

void others_close(struct others *o);

#endif
