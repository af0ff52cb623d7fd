/* SPDX-License-Identifier: Apache-2.0 */
#include "content/disk_ahead.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/util.h"
#include "content/ahead.h"

/* the size of most READs of the kernel */
#define UNIT (128 * KIB)
/* units: a stream that is as long is read ahead, so far at most, and so many at once at least */
#define LONG 8
#define WINDOW 32
#define STEP 8

struct disk_ahead {
	pthread_mutex_t lock; /* guards what follows */
	struct ahead ahead;
	struct ahead back; /* of those who read towards the start: its units count from the end */
};

struct disk_ahead *disk_ahead_new(void)
{
	struct disk_ahead *d = malloc(sizeof(*d));

	if (!d)
		return NULL;
	pthread_mutex_init(&d->lock, NULL);
	ahead_init(&d->ahead, UNIT, NULL);
	ahead_init(&d->back, UNIT, NULL);
	return d;
}

void disk_ahead_free(struct disk_ahead *d)
{
	if (!d)
		return;
	pthread_mutex_destroy(&d->lock);
	free(d);
}

/* Units [first, end) of `all` are read. Returns those that are to be read ahead; empty: none. */
static struct ahead_part go_on(struct ahead *a, uint64_t first, uint64_t end, uint64_t all)
{
	struct ahead_stream *s = ahead_read(a, first, end);
	struct ahead_part next = { s->asked, MIN(s->next + MIN(s->run, WINDOW), all) };

	/* a stream that begins with this READ is not read ahead, and none in small steps */
	if (s->run < LONG || s->run == end - first || next.end <= next.first ||
	    (next.end < next.first + STEP && next.end < all))
		return (struct ahead_part){ 0 };
	s->asked = next.end;
	return next;
}

struct disk_range disk_ahead_read(struct disk_ahead *d, uint64_t size, uint64_t off, size_t n)
{
	uint64_t all = (size - 1) / UNIT + 1, first = off / UNIT, end = (off + n - 1) / UNIT + 1;
	struct ahead_part next;

	pthread_mutex_lock(&d->lock);
	next = go_on(&d->ahead, first, end, all);
	if (next.end == 0) {
		struct ahead_part back = go_on(&d->back, all - end, all - first, all);

		if (back.end > 0)
			next = (struct ahead_part){ all - back.end, all - back.first };
	}
	pthread_mutex_unlock(&d->lock);
	if (next.end == 0)
		return (struct disk_range){ 0 };
	return (struct disk_range){ next.first * UNIT,
				    MIN(next.end * UNIT, size) - next.first * UNIT };
}
