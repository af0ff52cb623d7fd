/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A long stretch of a remote file, read over several connections at once.
 *
 * It is cut into pieces as it goes. Each of a few threads fetches the next piece that nobody has
 * begun; the reader takes them in order, and the first of them while it still arrives. So at any time
 * the first bytes wanted are on their way, and a server that limits each connection is read at nearly
 * the sum of them.
 *
 * What is on its way but not in order is lost when the reader ends. So pieces begin small, and grow
 * only as long as each takes a fraction of a second; and none is larger than its share of what is
 * left, so that all connections end at about the same time.
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "fetch/remote.h"
#include "base/util.h"

#define PIECE_FIRST (512 * KIB)
#define PIECE_MIN (256 * KIB)
#define PIECE_MAX (4 * MIB)
#define PIECE_QUICK_MS 250 /* a piece that takes less may be larger next time, */
#define PIECE_SLOW_MS 1000 /* one that takes more smaller */
/* a stretch up to here is one piece; up to PIECE_MIN it is fetched by its reader */
#define SHORT (8 * MIB)
#define MAX_CONNECTIONS 32
/* what may be fetched ahead of the reader, in pieces of PIECE_MAX besides one for each connection */
#define AHEAD 2
#define MAX_PIECES (4 * MAX_CONNECTIONS)

struct piece {
	char *data;
	uint64_t off;
	size_t n, arrived;
};

struct ranges {
	struct stream stream;
	struct remote *remote;
	uint64_t end; /* of the stretch */
	size_t connections, n_threads;
	size_t n_pieces, window; /* pieces, and their bytes, that may be held */
	pthread_t threads[MAX_CONNECTIONS];
	struct http_cancel cancel;
	size_t taken;	      /* bytes of the reader's piece that it has; the reader's own */
	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t moved;
	struct piece pieces[MAX_PIECES];
	uint64_t next_off;	/* where the piece to begin next begins, */
	uint64_t next, reading; /* its number, and that of the piece being read */
	size_t held;		/* bytes of pieces begun and not yet read */
	size_t size;		/* how large pieces should be now */
	int error;		/* the first failure ends all */
	bool closing;
};

/* One piece under way. */
struct fetching {
	struct ranges *g;
	struct piece *piece;
};

/* How large the next piece is. Lock held. */
static size_t next_size(const struct ranges *g)
{
	uint64_t left = g->end - g->next_off;

	return (size_t)MIN(left, MIN(g->size, MAX(left / g->connections, PIECE_MIN)));
}

/* The next piece, once there is room for it; NULL: there is none left, or no use. Lock held. */
static struct piece *begin_piece(struct ranges *g)
{
	struct piece *p;

	while (!g->closing && !g->error && g->next_off < g->end &&
	       (g->next - g->reading == g->n_pieces || g->held + next_size(g) > g->window))
		pthread_cond_wait(&g->moved, &g->lock);
	if (g->closing || g->error || g->next_off == g->end)
		return NULL;
	p = &g->pieces[g->next++ % g->n_pieces];
	*p = (struct piece){ .off = g->next_off, .n = next_size(g) };
	g->next_off += p->n;
	g->held += p->n;
	return p;
}

static void count_arrived(void *ctx, size_t n)
{
	struct fetching *f = ctx;

	pthread_mutex_lock(&f->g->lock);
	f->piece->arrived += n;
	pthread_cond_broadcast(&f->g->moved);
	pthread_mutex_unlock(&f->g->lock);
}

static int fetch_piece(struct ranges *g, struct piece *p)
{
	struct fetching f = { g, p };

	p->data = malloc(p->n);
	if (!p->data)
		return -ENOMEM;
	return remote_read(g->remote, p->data, p->n, p->off, &g->cancel, count_arrived, &f);
}

/* What one piece of `n` bytes took says how large the next ones should be. Lock held. */
static void learn(struct ranges *g, size_t n, int64_t ms)
{
	/* those begun before the size changed say nothing new, those at the end neither */
	if (n != g->size)
		return;
	if (ms < PIECE_QUICK_MS)
		g->size = (size_t)MIN(2 * n, PIECE_MAX);
	else if (ms > PIECE_SLOW_MS)
		g->size = (size_t)MAX(n / 2, PIECE_MIN);
}

static void *fetch_pieces(void *arg)
{
	struct ranges *g = arg;
	struct piece *p;

	pthread_mutex_lock(&g->lock);
	while ((p = begin_piece(g))) {
		int64_t began = now_ms();
		size_t n = p->n; /* the reader may be through with it before we are */
		int r;

		pthread_mutex_unlock(&g->lock);
		r = fetch_piece(g, p);
		pthread_mutex_lock(&g->lock);
		if (r == 0)
			learn(g, n, now_ms() - began);
		else if (!g->error)
			g->error = r;
		pthread_cond_broadcast(&g->moved);
	}
	pthread_mutex_unlock(&g->lock);
	return NULL;
}

/* Waits until more of the reader's piece is there, or fetches it. Lock held. */
static int await_piece(struct ranges *g, const struct piece *p)
{
	if (g->n_threads == 0 && g->next == g->reading) {
		struct piece *own = begin_piece(g);
		int r;

		pthread_mutex_unlock(&g->lock);
		r = own ? fetch_piece(g, own) : g->error;
		pthread_mutex_lock(&g->lock);
		if (r < 0)
			g->error = r;
	}
	while ((g->next == g->reading || p->arrived == g->taken) && !g->error)
		pthread_cond_wait(&g->moved, &g->lock);
	return g->next != g->reading && p->arrived > g->taken ? 0 : g->error;
}

static ssize_t ranges_read(struct stream *s, void *ret_buf, size_t n)
{
	struct ranges *g = container_of(s, struct ranges, stream);
	struct piece *p = &g->pieces[g->reading % g->n_pieces];
	int r = 0;

	pthread_mutex_lock(&g->lock);
	if (g->reading == g->next && g->next_off == g->end) {
		pthread_mutex_unlock(&g->lock);
		return 0;
	}
	r = await_piece(g, p);
	n = r < 0 ? 0 : MIN(n, p->arrived - g->taken);
	pthread_mutex_unlock(&g->lock);
	if (r < 0)
		return r;
	memcpy(ret_buf, p->data + g->taken, n);
	g->taken += n;
	if (g->taken < p->n)
		return (ssize_t)n;
	free(p->data);
	g->taken = 0;
	pthread_mutex_lock(&g->lock);
	p->data = NULL;
	g->held -= p->n;
	g->reading++;
	pthread_cond_broadcast(&g->moved);
	pthread_mutex_unlock(&g->lock);
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
	atomic_fetch_sub(g->remote->options->range_threads, (unsigned)g->n_threads);
	for (size_t i = 0; i < ARRAY_SIZE(g->pieces); i++)
		free(g->pieces[i].data);
	http_cancel_destroy(&g->cancel);
	pthread_cond_destroy(&g->moved);
	pthread_mutex_destroy(&g->lock);
	free(g);
}

static const struct stream_ops ranges_ops = { ranges_read, ranges_close };

/* How many connections, and how large pieces, for `n` bytes. */
static void plan(struct ranges *g, uint64_t n)
{
	unsigned connections = MIN(MAX(g->remote->options->connections, 1U), MAX_CONNECTIONS);

	g->connections = n <= SHORT ? 1 : connections;
	g->size = (size_t)(n <= SHORT ? MAX(n, 1) : PIECE_FIRST);
	g->n_pieces = MIN(4 * g->connections, (size_t)MAX_PIECES);
	g->window = (g->connections + AHEAD) * PIECE_MAX;
}

/* One more thread, if there may be one and the system has one. Without any, the reader fetches. */
static bool start_thread(struct ranges *g)
{
	atomic_uint *used = g->remote->options->range_threads;

	if (atomic_fetch_add(used, 1) < MAX_RANGE_THREADS &&
	    pthread_create(&g->threads[g->n_threads], NULL, fetch_pieces, g) == 0) {
		g->n_threads++;
		return true;
	}
	atomic_fetch_sub(used, 1);
	return false;
}

static void start_threads(struct ranges *g, size_t want)
{
	sigset_t all, old;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	while (g->n_threads < want && start_thread(g))
		;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
}

int remote_stream(struct remote *r, uint64_t off, uint64_t n, struct stream **ret)
{
	struct ranges *g = calloc(1, sizeof(*g));
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
	g->next_off = off;
	g->end = off + n;
	plan(g, n);
	if (n > PIECE_MIN)
		start_threads(g, g->connections);
	*ret = &g->stream;
	return 0;
}
