/* SPDX-License-Identifier: Apache-2.0 */
#include "mount/ahead.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "mount/pages.h"
#include "mount/push.h"

#define MAX_SLOTS 4
/* how many files of a sequence are verified before they are opened */
#define WINDOW 64
#define SMALL_FILE (64 * 1024)
/* directories and symlinks between two files of a sequence */
#define MAX_HOPS 64
/* after giving way, if nothing is opened */
#define PAUSE_S 1

/* A file that is being verified. Used by the thread only, except the fields that `lock` guards. */
struct slot {
	struct ahead *ahead;
	struct carton_node *node; /* NULL: free */
	struct carton_request *request;
	uint64_t back; /* its number in the background pass; 0: it belongs to a sequence */
	bool finished; /* with `result`; guarded by lock */
	int result;
};

struct ahead {
	struct mount *mount;
	pthread_t thread;
	unsigned n_slots;
	struct slot slots[MAX_SLOTS];
	struct carton_node *back; /* the next file of the background pass, or NULL */
	uint64_t n_back;	  /* how many files the background pass has begun */

	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t changed;
	bool over;
	struct carton_node *expected; /* if this is opened next, a sequence begins or continues */
	struct carton_node *at;	      /* next file of the sequence, or NULL */
	uint64_t n_opened, n_ahead;   /* files of the sequence */
	bool idle;		      /* the thread waits until a file is opened */
	struct carton_node *demand;   /* an open waits for this file: other work ends. Or NULL */
	bool paused;
};

/* ---- which file is next ---- */

/* Skips at most `hops` directories and symlinks. */
static struct carton_node *next_file(const struct ahead *a, struct carton_node *node, unsigned hops)
{
	struct carton_stat st;

	for (unsigned i = 0; node && i <= hops; i++) {
		node = carton_next(a->mount->carton, node);
		if (!node)
			break;
		carton_stat(node, &st);
		if (st.kind == CARTON_FILE)
			return node;
	}
	return NULL;
}

/* True: its bytes are in the container, neither generated nor fetched. */
static bool is_stored(const struct carton_node *node)
{
	struct carton_storage storage;

	return carton_storage(node, &storage) && storage.contained;
}

static uint64_t size_of(const struct carton_node *node)
{
	struct carton_stat st;

	carton_stat(node, &st);
	return st.size;
}

/* The next file of the sequence that still needs verification. Lock held. */
static struct carton_node *take_next(struct ahead *a)
{
	struct carton_node *node = a->at;
	uint64_t most = node && size_of(node) <= SMALL_FILE ? WINDOW : a->n_slots;

	if (!node || a->n_ahead - a->n_opened >= most)
		return NULL;
	a->n_ahead++;
	a->at = next_file(a, node, MAX_HOPS);
	return node;
}

/* ---- verifying ---- */

static void on_done(void *ctx, int result)
{
	struct slot *s = ctx;
	struct ahead *a = s->ahead;

	pthread_mutex_lock(&a->lock);
	s->finished = true;
	s->result = result;
	pthread_cond_signal(&a->changed);
	pthread_mutex_unlock(&a->lock);
}

static void release(struct slot *s)
{
	carton_request_free(s->request);
	if (s->finished && s->result == 0)
		carton_unpin(s->node);
	s->request = NULL;
	s->node = NULL;
}

static void begin(struct ahead *a, struct slot *s, struct carton_node *node, uint64_t back)
{
	static const struct fuse_file_info buffered;
	struct mount *m = a->mount;
	int r;

	if (!is_stored(node))
		return;
	r = carton_pin(m->carton, node, NULL, NULL, NULL);
	if (r == 0) {
		pages_first_open(m, node);
		carton_unpin(node);
	}
	if (r != -EAGAIN)
		return;
	*s = (struct slot){ .ahead = a, .node = node, .back = back };
	r = carton_pin_observed(node, push_new(m, node, &buffered), on_done, s, &s->request);
	if (r != -EINPROGRESS) {
		s->finished = true;
		s->result = r;
		release(s);
	}
}

/*
 * Cancels the work on all files but `file`. The background pass continues from its first cancelled
 * file.
 */
static void cancel_others(struct ahead *a, const struct carton_node *file)
{
	for (unsigned i = 0; i < a->n_slots; i++) {
		struct slot *s = &a->slots[i];

		if (!s->node || s->node == file || !carton_request_cancel(s->request))
			continue;
		if (s->back && s->back <= a->n_back) {
			a->back = s->node;
			a->n_back = s->back - 1;
		}
		release(s);
	}
}

/* ---- the thread ---- */

/*
 * A free slot, after releasing finished ones; NULL: all are busy. The lock is held, but dropped
 * while slots are released.
 */
static struct slot *free_slot(struct ahead *a)
{
	struct slot *found = NULL;

	for (unsigned i = 0; i < a->n_slots; i++) {
		struct slot *s = &a->slots[i];

		if (s->node && s->finished) {
			pthread_mutex_unlock(&a->lock);
			release(s);
			pthread_mutex_lock(&a->lock);
			/* other slots may have finished meanwhile, and their signals were missed */
			return free_slot(a);
		}
		if (!s->node)
			found = s;
	}
	return found;
}

/* Lock held. */
static void rest(struct ahead *a)
{
	struct timespec end;

	if (!a->paused) {
		a->idle = true;
		pthread_cond_wait(&a->changed, &a->lock);
		a->idle = false;
		return;
	}
	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += PAUSE_S;
	if (pthread_cond_timedwait(&a->changed, &a->lock, &end) == ETIMEDOUT)
		a->paused = false;
}

/*
 * Does one step of work; false: there is nothing to do now. The lock is held, but dropped during
 * the work.
 */
static bool step(struct ahead *a)
{
	struct slot *s = free_slot(a);
	struct carton_node *demand = a->demand, *node;
	uint64_t back = 0;

	if (demand) {
		a->demand = NULL;
		pthread_mutex_unlock(&a->lock);
		cancel_others(a, demand);
		pthread_mutex_lock(&a->lock);
		return true;
	}
	if (!s || a->paused)
		return false;
	node = take_next(a);
	if (!node && a->back) {
		back = ++a->n_back;
		node = a->back;
	}
	if (!node)
		return false;
	pthread_mutex_unlock(&a->lock);
	if (back)
		a->back = next_file(a, node, UINT_MAX - 1);
	begin(a, s, node, back);
	pthread_mutex_lock(&a->lock);
	return true;
}

static bool is_busy(const struct ahead *a)
{
	bool busy = false;

	for (unsigned i = 0; i < a->n_slots; i++)
		busy |= a->slots[i].node != NULL;
	return busy;
}

static void *run(void *arg)
{
	struct ahead *a = arg;

	pthread_mutex_lock(&a->lock);
	while (!a->over)
		if (!step(a))
			rest(a);
	pthread_mutex_unlock(&a->lock);
	cancel_others(a, NULL);
	pthread_mutex_lock(&a->lock);
	while (free_slot(a), is_busy(a))
		pthread_cond_wait(&a->changed, &a->lock);
	pthread_mutex_unlock(&a->lock);
	return NULL;
}

int ahead_new(struct mount *m, bool all, struct ahead **ret)
{
	struct ahead *a = calloc(1, sizeof(*a));
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	if (!a)
		return -ENOMEM;
	a->mount = m;
	/* verifying a large file takes two threads */
	a->n_slots = cpus > 2 * MAX_SLOTS ? MAX_SLOTS : cpus > 2 ? (unsigned)cpus / 2 : 1;
	a->back = all ? next_file(a, carton_root(m->carton), UINT_MAX - 1) : NULL;
	pthread_mutex_init(&a->lock, NULL);
	pthread_cond_init(&a->changed, NULL);
	if (pthread_create(&a->thread, NULL, run, a) != 0) {
		free(a);
		return -EAGAIN;
	}
	*ret = a;
	return 0;
}

void ahead_stop(struct ahead *a)
{
	if (!a)
		return;
	pthread_mutex_lock(&a->lock);
	a->over = true;
	pthread_cond_signal(&a->changed);
	pthread_mutex_unlock(&a->lock);
	pthread_join(a->thread, NULL);
}

void ahead_free(struct ahead *a)
{
	if (!a)
		return;
	pthread_cond_destroy(&a->changed);
	pthread_mutex_destroy(&a->lock);
	free(a);
}

void ahead_opened(struct ahead *a, struct carton_node *file)
{
	if (!a)
		return;
	pthread_mutex_lock(&a->lock);
	if (file == a->expected) {
		a->n_opened++;
		/* the reader is ahead of this thread, or a sequence begins with this file */
		if (a->n_ahead < a->n_opened || !a->at) {
			a->n_ahead = a->n_opened;
			a->at = next_file(a, file, MAX_HOPS);
		}
	} else {
		a->n_opened = a->n_ahead = 0;
		a->at = NULL;
	}
	a->expected = next_file(a, file, MAX_HOPS);
	a->paused = false;
	if (a->idle && a->at && a->n_ahead - a->n_opened < WINDOW / 2)
		pthread_cond_signal(&a->changed);
	pthread_mutex_unlock(&a->lock);
}

void ahead_give_way(struct ahead *a, struct carton_node *file)
{
	if (!a)
		return;
	pthread_mutex_lock(&a->lock);
	a->demand = file;
	a->paused = true;
	pthread_cond_signal(&a->changed);
	pthread_mutex_unlock(&a->lock);
}
