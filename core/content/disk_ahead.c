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
	pthread_mutex_t lock; /* guards it */
	struct ahead ahead;
};

struct disk_ahead *disk_ahead_new(void)
{
	struct disk_ahead *d = malloc(sizeof(*d));

	if (!d)
		return NULL;
	pthread_mutex_init(&d->lock, NULL);
	ahead_init(&d->ahead, UNIT, NULL);
	return d;
}

void disk_ahead_free(struct disk_ahead *d)
{
	if (!d)
		return;
	pthread_mutex_destroy(&d->lock);
	free(d);
}

struct disk_range disk_ahead_read(struct disk_ahead *d, uint64_t size, uint64_t off, size_t n)
{
	uint64_t from = 0, end = 0, all = (size - 1) / UNIT + 1;
	struct ahead_stream *s;

	pthread_mutex_lock(&d->lock);
	s = ahead_read(&d->ahead, off / UNIT, (off + n - 1) / UNIT + 1);
	if (s->run >= LONG) {
		from = s->asked;
		end = MIN(s->next + MIN(s->run, WINDOW), all);
		/* not little by little */
		if (end < from + STEP && end < all)
			end = from;
		s->asked = MAX(from, end);
	}
	pthread_mutex_unlock(&d->lock);
	if (end <= from)
		return (struct disk_range){ 0 };
	return (struct disk_range){ from * UNIT, MIN(end * UNIT, size) - from * UNIT };
}
