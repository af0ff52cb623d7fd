/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long verified copies are kept: those that nobody has pinned are dropped, oldest first, when they
 * take too much memory or too many descriptors.
 */
#include "base/util.h"
#include "object/internal.h"

void keep_remove(struct object_store *s, struct object *o)
{
	if (!o->idle)
		return;
	*(o->older ? &o->older->newer : &s->oldest) = o->newer;
	*(o->newer ? &o->newer->older : &s->newest) = o->older;
	o->older = o->newer = NULL;
	o->idle = false;
}

void keep_add(struct object_store *s, struct object *o)
{
	o->older = s->newest;
	o->newer = NULL;
	*(s->newest ? &s->newest->newer : &s->oldest) = o;
	s->newest = o;
	o->idle = true;
}

struct bytes keep_detach(struct object_store *s, struct object *o)
{
	struct bytes bytes = o->bytes;

	if (bytes.kind == BYTES_MEMORY)
		s->memory_used -= o->size;
	else if (bytes.kind == BYTES_FILE)
		s->files_used--;
	o->bytes = (struct bytes){ .kind = BYTES_NONE };
	return bytes;
}

/* Drops the oldest idle copy; true: it was a file. Lock held, but not while it is freed. */
static bool drop_oldest(struct object_store *s)
{
	struct object *o = s->oldest;
	struct bytes bytes;
	bool file;

	keep_remove(s, o);
	bytes = keep_detach(s, o);
	file = bytes.kind == BYTES_FILE;
	/* closing a large file that has no name any more takes long */
	pthread_mutex_unlock(&s->lock);
	bytes_free(&bytes);
	pthread_mutex_lock(&s->lock);
	return file;
}

void keep_make_room(struct object_store *s, uint64_t more)
{
	while (s->oldest &&
	       (s->memory_used + more > MAX_OBJECT_MEMORY || s->files_used > MAX_OBJECT_FILES))
		drop_oldest(s);
}

bool keep_drop_idle(struct object_store *s)
{
	bool dropped = false;

	pthread_mutex_lock(&s->lock);
	while (s->oldest)
		dropped |= drop_oldest(s);
	pthread_mutex_unlock(&s->lock);
	return dropped;
}

bool object_claim_memory(struct object_store *s, uint64_t size)
{
	bool fits;

	if (size > MAX_MEMORY_OBJECT)
		return false;
	pthread_mutex_lock(&s->lock);
	keep_make_room(s, size);
	fits = s->memory_used + size <= MAX_OBJECT_MEMORY;
	if (fits)
		s->memory_used += size;
	pthread_mutex_unlock(&s->lock);
	return fits;
}

void object_unclaim_memory(struct object_store *s, uint64_t size)
{
	pthread_mutex_lock(&s->lock);
	s->memory_used -= size;
	pthread_mutex_unlock(&s->lock);
}
