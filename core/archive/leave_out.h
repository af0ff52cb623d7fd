/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a directory has that is not packed: what tools leave there (.git, .cache, __pycache__, at
 * any depth), and what the user's patterns match.
 *
 * Threads: one at a time.
 */
#ifndef CARTON_ARCHIVE_LEAVE_OUT_H
#define CARTON_ARCHIVE_LEAVE_OUT_H

#include <stdint.h>

#include "base/names.h"

struct leave_out {
	/*
	 * of fnmatch(3) without flags, so that * matches / too; at most MAX_PATTERNS, then NULL; or
	 * NULL
	 */
	const char *const *patterns;
	uint64_t used;	    /* a bit for each pattern that has matched */
	struct names names; /* of what tools leave */
};

/*
 * Is the file or directory at `path` left out? 1 or 0; -EINVAL, logged: a pattern matches
 * carton.toml, which a carton needs.
 */
int leave_out(struct leave_out *l, const char *path);

/* Says what of tools was left out, and which patterns have matched nothing. */
void leave_out_end(struct leave_out *l);

#endif
