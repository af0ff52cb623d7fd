/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A long stretch of a remote file, read over several connections at once.
 *
 * It is cut into segments. Each of a few threads fetches the next segment that nobody has begun;
 * the reader takes them in order. So at any time the first bytes wanted are on their way, and a
 * server that limits each connection is read at nearly the sum of them.
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "remote.h"
#include "util.h"

#define SEGMENT (4 * MIB)
/* a stretch up to here is one segment, fetched by its reader */
#define SHORT (8 * MIB)
#define MAX_CONNECTIONS 32
/* segments fetched ahead of the reader, besides one for each connection */
#define AHEAD 2

struct slot {
	char *data;
	size_t n;
	bool full;
};

struct ranges {
	struct stream stream;
	const struct remote *remote;
	uint64_t off, n; /* the stretch */
	size_t segment;	 /* bytes of each but the last */
	uint64_t n_segments;
	size_t n_slots, n_threads;
	struct slot slots[MAX_CONNECTIONS + AHEAD];
	pthread_t threads[MAX_CONNECTIONS];
	struct http_cancel cancel;
	size_t taken;	      /* bytes of the reader's segment that it has; the reader's own */
	pthread_mutex_t lock; /* guards what follows, and slots */
	pthread_cond_t moved;
	uint64_t next;	  /* the segment to begin next */
	uint64_t reading; /* the segment being read */
	int error;	  /* the first failure ends all */
	bool closing;
};

static size_t segment_size(const struct ranges *g, uint64_t segment)
{
	return (size_t)MIN(g->segment, g->n - segment * g->segment);
}

/* The next segment, once there is a slot for it; false: there is none left, or no use. */
static bool begin_segment(struct ranges *g, uint64_t *ret)
{
	while (!g->closing && !g->error && g->next < g->n_segments &&
	       g->next >= g->reading + g->n_slots)
		pthread_cond_wait(&g->moved, &g->lock);
	if (g->closing || g->error || g->next >= g->n_segments)
		return false;
	*ret = g->next++;
	return true;
}

static int fetch_segment(struct ranges *g, uint64_t segment)
{
	struct slot *slot = &g->slots[segment % g->n_slots];

	slot->n = segment_size(g, segment);
	if (!slot->data)
		slot->data = malloc(g->segment);
	if (!slot->data)
		return -ENOMEM;
	return remote_pread(g->remote, slot->data, slot->n, g->off + segment * g->segment,
			    &g->cancel);
}

static void *fetch_segments(void *arg)
{
	struct ranges *g = arg;
	uint64_t segment;
	int r;

	pthread_mutex_lock(&g->lock);
	while (begin_segment(g, &segment)) {
		pthread_mutex_unlock(&g->lock);
		r = fetch_segment(g, segment);
		pthread_mutex_lock(&g->lock);
		g->slots[segment % g->n_slots].full = r == 0;
		if (r < 0 && !g->error)
			g->error = r;
		pthread_cond_broadcast(&g->moved);
	}
	pthread_mutex_unlock(&g->lock);
	return NULL;
}

/* Waits until the reader's segment is there, or fetches it. */
static int await_segment(struct ranges *g, struct slot *slot)
{
	int r = 0;

	if (g->n_threads == 0) {
		r = slot->full ? 0 : fetch_segment(g, g->reading);
		slot->full = r == 0;
		return r;
	}
	pthread_mutex_lock(&g->lock);
	while (!slot->full && !g->error)
		pthread_cond_wait(&g->moved, &g->lock);
	if (!slot->full)
		r = g->error;
	pthread_mutex_unlock(&g->lock);
	return r;
}

static ssize_t ranges_read(struct stream *s, void *ret_buf, size_t n)
{
	struct ranges *g = container_of(s, struct ranges, stream);
	struct slot *slot;
	int r;

	if (g->reading == g->n_segments)
		return 0;
	slot = &g->slots[g->reading % g->n_slots];
	r = await_segment(g, slot);
	if (r < 0)
		return r;
	n = MIN(n, slot->n - g->taken);
	memcpy(ret_buf, slot->data + g->taken, n);
	g->taken += n;
	if (g->taken == slot->n) {
		pthread_mutex_lock(&g->lock);
		slot->full = false;
		g->taken = 0;
		g->reading++;
		pthread_cond_broadcast(&g->moved);
		pthread_mutex_unlock(&g->lock);
	}
	return (ssize_t)n;
}

static void ranges_close(struct stream *s)
{
	struct ranges *g = container_of(s, struct ranges, stream);

	pthread_mutex_lock(&g->lock);
	g->closing = true;
	pthread_cond_broadcast(&g->moved);
	pthread_mutex_unlock(&g->lock);
	http_cancel_fire(&g->cancel);
	for (size_t i = 0; i < g->n_threads; i++)
		pthread_join(g->threads[i], NULL);
	for (size_t i = 0; i < ARRAY_SIZE(g->slots); i++)
		free(g->slots[i].data);
	http_cancel_destroy(&g->cancel);
	pthread_cond_destroy(&g->moved);
	pthread_mutex_destroy(&g->lock);
	free(g);
}

static const struct stream_ops ranges_ops = { ranges_read, ranges_close };

int remote_stream(const struct remote *r, uint64_t off, uint64_t n, struct stream **ret)
{
	struct ranges *g = calloc(1, sizeof(*g));
	size_t want;
	sigset_t all, old;
	int result;

	if (!g)
		return -ENOMEM;
	result = http_cancel_init(&g->cancel);
	if (result < 0) {
		free(g);
		return result;
	}
	pthread_mutex_init(&g->lock, NULL);
	pthread_cond_init(&g->moved, NULL);
	g->stream.ops = &ranges_ops;
	g->remote = r;
	g->off = off;
	g->n = n;
	g->segment = (size_t)(n <= SHORT ? MAX(n, 1) : SEGMENT);
	g->n_segments = (n + g->segment - 1) / g->segment;
	want = (size_t)MIN(g->n_segments, MIN(MAX(r->options->connections, 1U), MAX_CONNECTIONS));
	if (g->n_segments <= 1)
		want = 0;
	g->n_slots = want + AHEAD;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	while (g->n_threads < want &&
	       pthread_create(&g->threads[g->n_threads], NULL, fetch_segments, g) == 0)
		g->n_threads++;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (want > 0 && g->n_threads == 0) {
		ranges_close(&g->stream);
		return -EAGAIN;
	}
	*ret = &g->stream;
	return 0;
}
