/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The key of a source: what the cache has notes and seals with (cache/cache.h). It is derived from
 * the user's key, and from what the user asks for: the source as it will be asked, its pins and the
 * keys that must have signed it. A process that one source has taken over has only this key, and so
 * can say nothing of another source, nor of the same one with a pin.
 *
 * Threads: the one that opens the carton.
 */
#ifndef CARTON_OPEN_KEY_H
#define CARTON_OPEN_KEY_H

#include "cache/key.h"
#include "open/kind.h"

/*
 * Reads the user's key before the process is confined, and gives the cache that of the source. The
 * user's is nowhere in memory then. Without it the cache has neither seals nor notes, which is
 * logged. 0; or -errno, logged, if it is the option cache_key that is of no use.
 */
int source_key_begin(struct carton_source *s);

/* The path of the user's key, which nobody opens from now on; or NULL. */
const char *source_key_path(const struct carton_source *s);

/* The confined process could open the user's key: as above, it is of no use. */
int source_key_exposed(struct carton_source *s);

void source_key_finish(struct carton_source *s);

#endif
