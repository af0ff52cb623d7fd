/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LINKS (carton format v1): from which URLs files can be fetched that MANIFEST lists and the
 * container does not hold.
 *
 *	version = 1
 *	[urls]
 *	<sha256> = ["https://…", …]
 *
 * LINKS is no part of the model hash, and nothing in it is trusted: what comes from a URL is hashed
 * like everything else. So a fault in it matters only to the files that need it.
 */
#ifndef CARTON_FORMAT_LINKS_H
#define CARTON_FORMAT_LINKS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/digest.h"

struct link {
	uint8_t sha256[SHA256_SIZE];
	char **urls; /* mirrors, in their order */
	size_t n_urls;
	size_t line;
	char *fault;	     /* why it cannot be used; NULL: it can */
	atomic_size_t first; /* the mirror that worked last */
};

struct links {
	struct link *list; /* sorted by sha256 */
	size_t n;
	char *fault; /* of LINKS as a whole, or of a line that names no hash; NULL: none */
};

/*
 * Parses LINKS. Faults are kept, not logged: 0 also for text that is not TOML. -ENOMEM; -EFBIG over
 * MAX_LINK_URLS.
 */
int links_parse(const char *text, size_t n, struct links **ret);

/* What LINKS says of that hash, usable or not; NULL: nothing. `l` may be NULL. */
struct link *links_find(const struct links *l, const uint8_t sha256[SHA256_SIZE]);

/* NULL-safe. */
void links_free(struct links *l);

#endif
