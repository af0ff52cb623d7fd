/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The key of a source, with which its seals and notes in the cache are made (cache/cache.h). It is
 * derived from the user's key and from what the user asks for: the source, its pins, and the keys
 * that must have signed it. A process that was taken over by a source has only this key. So it can
 * make no seals and notes of another source, nor of the same source with a pin.
 *
 * Threads: the one that opens the carton.
 */
#ifndef CARTON_OPEN_KEY_H
#define CARTON_OPEN_KEY_H

#include "cache/key.h"
#include "open/kind.h"

/*
 * Reads the user's key before the process is confined, and gives the key of the source to the
 * cache. Afterwards the user's key is nowhere in memory. If the key cannot be used, the cache has
 * neither seals nor notes, which is logged. 0; or -errno, logged, if the option cache_key names
 * that key.
 */
int source_key_begin(struct carton_source *s);

/* The path of the user's key, which must not be opened any more; NULL: it was not read. */
const char *source_key_path(const struct carton_source *s);

/* The confined process can open the user's key, so it is not used. As source_key_begin(). */
int source_key_exposed(struct carton_source *s);

void source_key_finish(struct carton_source *s);

#endif
