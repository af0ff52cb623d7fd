/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests of objects and requests share: a container by hand with a gate that holds whoever
 * wants its bytes, and a store over it.
 */
#ifndef OBJECT_HELP_H
#define OBJECT_HELP_H

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/event.h"
#include "base/ingest.h"
#include "archive/container.h"
#include "cache/cache.h"
#include "base/event.h"
#include "content/object.h"
#include "zip_help.h"

#define BOX_ITEMS 400

struct box_item {
	struct entry entry;
	uint8_t sha256[SHA256_SIZE];
	char *data; /* decoded */
	struct object *object;
};

struct box {
	struct container container;
	struct box_item items[BOX_ITEMS];
	size_t n;
	struct buf blob;       /* all stored bytes */
	struct source *source; /* of them, a memfd */
	int fd;		       /* the same, to change it */
	struct workers *workers;
	struct events *events;
	int64_t timeout_ms; /* of waits; set before box_start(), */
	int seals;	    /* as these: as in struct object_options */
	struct budget *budget;
	struct object_store *store;

	pthread_mutex_t lock; /* guards the rest */
	pthread_cond_t changed;
	bool shut;	    /* those who come to locate wait */
	unsigned inside;    /* so many do */
	unsigned n_located; /* came in all */
	int fail;	    /* what they get; 0: the bytes */
	bool quick;	    /* stored bytes can be peeked at */
	unsigned n_peeked;
};

static inline int box_locate(struct container *c, const struct entry *e, struct source **ret_source,
			     uint64_t *ret_off)
{
	struct box *b = container_of(c, struct box, container);
	int r;

	pthread_mutex_lock(&b->lock);
	b->n_located++;
	b->inside++;
	pthread_cond_broadcast(&b->changed);
	while (b->shut)
		pthread_cond_wait(&b->changed, &b->lock);
	b->inside--;
	r = b->fail;
	pthread_mutex_unlock(&b->lock);
	if (r < 0)
		return r;
	*ret_source = source_ref(b->source);
	*ret_off = e->header;
	return 0;
}

static inline int box_peek(struct container *c, const struct entry *e, void *buf,
			   const void **ret_stored)
{
	struct box *b = container_of(c, struct box, container);
	bool quick;

	pthread_mutex_lock(&b->lock);
	quick = b->quick;
	b->n_peeked += quick;
	pthread_mutex_unlock(&b->lock);
	if (!quick || source_pread(b->source, buf, e->stored, e->header) < 0)
		return -EAGAIN;
	*ret_stored = buf;
	return 0;
}

static inline struct box *box_new(void)
{
	static const struct container_ops ops = { .locate = box_locate, .peek = box_peek };
	struct box *b = must(calloc(1, sizeof(*b)));

	b->container.ops = &ops;
	b->container.one_file = true;
	b->blob = buf_init(SIZE_MAX / 2);
	b->fd = -1;
	pthread_mutex_init(&b->lock, NULL);
	pthread_cond_init(&b->changed, NULL);
	return b;
}

/* One more entry with these bytes (taken over). */
static inline struct box_item *box_add(struct box *b, char *data, size_t n, unsigned method)
{
	struct box_item *item = &b->items[b->n++];

	assert_true(b->n <= BOX_ITEMS);
	assert_int_equal(buf_addc(&b->blob, '|'), 0);
	item->entry = (struct entry){ .name = (char *)(uintptr_t) "entry",
				      .name_len = 5,
				      .size = n,
				      .header = b->blob.len,
				      .method = (uint8_t)method };
	pack(&b->blob, method, data, n);
	item->entry.stored = b->blob.len - item->entry.header;
	item->data = data;
	sha256_of(data, n, item->sha256);
	return item;
}

/* The same with bytes of its own making; `seed` tells them apart. */
static inline struct box_item *box_add_made(struct box *b, size_t n, uint64_t seed, unsigned method)
{
	return box_add(b, make_bytes(n, seed), n, method);
}

static inline const struct entry *box_find_entry(void *ctx, const struct object *o, size_t *at)
{
	const struct box *b = ctx;

	while (*at < b->n) {
		const struct box_item *item = &b->items[(*at)++];

		if (memcmp(item->sha256, object_sha256(o), SHA256_SIZE) == 0 &&
		    item->entry.size == object_size(o))
			return &item->entry;
	}
	return NULL;
}

/* Begins: every entry whose object is not set by hand later becomes one. */
static inline void box_start(struct box *b, struct cache *cache, bool verify)
{
	struct object_options options = { .container = &b->container,
					  .cache = cache,
					  .find_entry = box_find_entry,
					  .ctx = b,
					  .verify = verify };

	b->fd = memfd_create("box", MFD_CLOEXEC);
	assert_int_equal(pwrite_full(b->fd, b->blob.data, b->blob.len, 0), 0);
	assert_int_equal(source_from_fd(dup(b->fd), &b->source), 0);
	assert_int_equal(workers_new(&b->workers), 0);
	assert_int_equal(events_new(b->workers, &b->events), 0);
	options.workers = b->workers;
	options.events = b->events;
	options.timeout_ms = b->timeout_ms;
	options.seals = b->seals;
	options.budget = b->budget;
	assert_int_equal(object_store_new(&options, &b->store), 0);
	for (size_t i = 0; i < b->n; i++)
		assert_int_equal(object_add(b->store, b->items[i].sha256, &b->items[i].entry,
					    &b->items[i].object),
				 0);
}

static inline void box_gate(struct box *b, bool shut)
{
	pthread_mutex_lock(&b->lock);
	b->shut = shut;
	pthread_cond_broadcast(&b->changed);
	pthread_mutex_unlock(&b->lock);
}

/* Waits until `n` wait at the gate. */
static inline void box_wait_inside(struct box *b, unsigned n)
{
	pthread_mutex_lock(&b->lock);
	while (b->inside < n)
		pthread_cond_wait(&b->changed, &b->lock);
	pthread_mutex_unlock(&b->lock);
}

static inline void box_fail(struct box *b, int r)
{
	pthread_mutex_lock(&b->lock);
	b->fail = r;
	pthread_mutex_unlock(&b->lock);
}

static inline unsigned box_located(struct box *b)
{
	unsigned n;

	pthread_mutex_lock(&b->lock);
	n = b->n_located;
	pthread_mutex_unlock(&b->lock);
	return n;
}

/* Waits for all jobs and frees everything; nothing may be pinned. */
static inline void box_free(struct box *b)
{
	if (b->store)
		object_store_stop(b->store);
	box_gate(b, false);
	workers_free(b->workers);
	events_free(b->events);
	object_store_free(b->store);
	source_unref(b->source);
	fd_close(b->fd);
	buf_finish(&b->blob);
	for (size_t i = 0; i < b->n; i++)
		free(b->items[i].data);
	pthread_mutex_destroy(&b->lock);
	pthread_cond_destroy(&b->changed);
	free(b);
}

/* ---- waiting ---- */

struct waiter {
	struct object_wait wait;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	unsigned calls;
	int result;
};

static inline void waiter_done(struct object_wait *wait, int result)
{
	struct waiter *w = container_of(wait, struct waiter, wait);

	pthread_mutex_lock(&w->lock);
	w->calls++;
	w->result = result;
	pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->lock);
}

static inline void waiter_init(struct waiter *w)
{
	*w = (struct waiter){ .wait.done = waiter_done,
			      .lock = PTHREAD_MUTEX_INITIALIZER,
			      .changed = PTHREAD_COND_INITIALIZER };
}

static inline int waiter_wait(struct waiter *w)
{
	int r;

	pthread_mutex_lock(&w->lock);
	while (!w->calls)
		pthread_cond_wait(&w->changed, &w->lock);
	r = w->calls == 1 ? w->result : -EINVAL;
	pthread_mutex_unlock(&w->lock);
	return r;
}

/* Pins it, however long that takes. */
static inline int get(struct object *o)
{
	struct waiter w;
	int r;

	waiter_init(&w);
	r = object_get(o, &w.wait);
	return r == -EINPROGRESS ? waiter_wait(&w) : r;
}

/* Reads a part of a pinned object and compares it. */
static inline bool reads_right(const struct box_item *item, size_t n, uint64_t off, bool nowait)
{
	char *out = must(malloc(n + 1));
	int r = object_read(item->object, out, n, off, nowait);
	bool right = r == 0 ? memcmp(out, item->data + off, n) == 0 : nowait && r == -EAGAIN;

	free(out);
	return right;
}

static inline size_t count_fds(void)
{
	size_t n = 0;

	for (int fd = 0; fd < 2000; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

#endif
