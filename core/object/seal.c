/* SPDX-License-Identifier: Apache-2.0 */
/* Seals of objects. An object without its bytes at hand has no use for one: both are found, or neither. */
#include <stdlib.h>

#include "base/util.h"
#include "cache/cache.h"
#include "object/internal.h"

bool seal_tags(const struct making *m, uint64_t size, uint8_t (**ret_tags)[TAG_SIZE])
{
	const struct object *o = m->object;

	return cache_seal_get(o->store->options.cache, o->sha256, size, ret_tags) == 0;
}

bool seal_of_cached(struct making *m)
{
	const struct object *o = m->object;
	uint8_t(*tags)[TAG_SIZE];
	struct source *source;
	int fd, r = cache_lookup(o->store->options.cache, o->sha256, &fd, NULL);

	if (r == 0)
		r = source_from_fd(fd, &source);
	if (r < 0)
		return false;
	if ((o->size != OBJECT_NO_SIZE && o->size != source->size) ||
	    !seal_tags(m, source->size, &tags)) {
		source_unref(source);
		return false;
	}
	m->bytes = (struct bytes){ .kind = BYTES_FILE, .source = source, .tags = tags };
	m->size = source->size;
	m->copied = true;
	return true;
}

void seal_keep(const struct object *o, uint64_t size, uint8_t (*tags)[TAG_SIZE])
{
	/* what has no tags is in memory, and what has no by_seal() has no sha256 */
	if (o->store->options.seals && o->maker->ops->by_seal && tags)
		cache_seal_put(o->store->options.cache, o->sha256, size, tags);
}

void seal_drop(const struct object *o)
{
	if (o->store->options.seals && o->maker->ops->by_seal)
		cache_seal_drop(o->store->options.cache, o->sha256);
}
