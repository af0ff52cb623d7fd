/* SPDX-License-Identifier: Apache-2.0 */
#include "fetch/held.h"

#include <pthread.h>
#include <stdlib.h>

#define RECORD_HEADER 16

struct stretch {
	char *data;
	uint64_t off, n;
};

struct held {
	pthread_mutex_t lock; /* guards what follows */
	struct stretch *list; /* oldest first */
	size_t n, cap;
	size_t last; /* the one that was read last: reads come in the order of the list */
	uint64_t bytes, max;
	bool dropped; /* one has given way */
};

struct held *held_new(uint64_t max)
{
	struct held *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	pthread_mutex_init(&h->lock, NULL);
	h->max = max;
	return h;
}

void held_free(struct held *h)
{
	if (!h)
		return;
	for (size_t i = 0; i < h->n; i++)
		free(h->list[i].data);
	free(h->list);
	pthread_mutex_destroy(&h->lock);
	free(h);
}

/* Drops the oldest until `more` bytes fit. Lock held. */
static void make_room(struct held *h, uint64_t more)
{
	size_t k = 0;

	while (k < h->n && h->bytes > h->max - MIN(more, h->max)) {
		h->bytes -= h->list[k].n;
		free(h->list[k++].data);
	}
	if (k == 0)
		return;
	h->dropped = true;
	h->n -= k;
	h->last = 0;
	memmove(h->list, h->list + k, h->n * sizeof(*h->list));
}

static int add(struct held *h, char *data, uint64_t n, uint64_t off)
{
	make_room(h, n);
	if (h->n == h->cap) {
		size_t cap = MAX(2 * h->cap, (size_t)16);
		void *list = reallocarray(h->list, cap, sizeof(*h->list));

		if (!list)
			return -ENOMEM;
		h->list = list;
		h->cap = cap;
	}
	h->list[h->n++] = (struct stretch){ data, off, n };
	h->bytes += n;
	return 0;
}

int held_add(struct held *h, char *data, uint64_t n, uint64_t off)
{
	int r;

	pthread_mutex_lock(&h->lock);
	r = add(h, data, n, off);
	pthread_mutex_unlock(&h->lock);
	if (r < 0)
		free(data);
	return r;
}

bool held_read(struct held *h, void *ret_buf, uint64_t n, uint64_t off)
{
	bool found = false;

	pthread_mutex_lock(&h->lock);
	for (size_t i = 0; i < h->n && !found; i++) {
		size_t at = (h->last + i) % h->n;
		const struct stretch *s = &h->list[at];

		found = off >= s->off && n <= s->n && off - s->off <= s->n - n;
		if (found && ret_buf)
			memcpy(ret_buf, s->data + (off - s->off), n);
		if (found)
			h->last = at;
	}
	pthread_mutex_unlock(&h->lock);
	return found;
}

void held_trim(struct held *h, uint64_t max)
{
	pthread_mutex_lock(&h->lock);
	h->max = max;
	make_room(h, 0);
	pthread_mutex_unlock(&h->lock);
}

int held_save(struct held *h, struct buf *to)
{
	uint8_t head[RECORD_HEADER];
	int r;

	pthread_mutex_lock(&h->lock);
	r = h->dropped ? -EFBIG : 0;
	for (size_t i = 0; i < h->n && r == 0; i++) {
		put_le64(head, h->list[i].off);
		put_le64(head + 8, h->list[i].n);
		r = buf_add(to, head, sizeof(head));
		if (r == 0)
			r = buf_add(to, h->list[i].data, h->list[i].n);
	}
	pthread_mutex_unlock(&h->lock);
	return r;
}

int held_load(struct held *h, const void *text, size_t n)
{
	const uint8_t *p = text, *end = p + n;

	while (p < end) {
		uint64_t off, len;
		char *data;
		int r;

		if ((size_t)(end - p) < RECORD_HEADER)
			return -EBADMSG;
		off = get_le64(p);
		len = get_le64(p + 8);
		p += RECORD_HEADER;
		if (len > (size_t)(end - p))
			return -EBADMSG;
		data = malloc(len ? len : 1);
		if (!data)
			return -ENOMEM;
		memcpy(data, p, len);
		r = held_add(h, data, len, off);
		if (r < 0)
			return r;
		p += len;
	}
	return 0;
}
