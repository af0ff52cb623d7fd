/* SPDX-License-Identifier: Apache-2.0 */
#include "mount/ahead.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "mount/order.h"
#include "mount/pages.h"
#include "mount/push.h"

#define MAX_SLOTS 4 /* that verify */
/* how many files of a sequence are verified before they are opened */
#define WINDOW 64
#define SMALL_FILE (64 * 1024)
/* of files that are fetched: only these, */
#define FETCHED_FILE (8 << 20)
/* so many at once; or so many of which only the beginning is, */
#define MAX_FETCHED 3
#define MAX_HEADS 32
/* if no more than that was read of each */
#define HEAD (1 << 20)
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
	bool fetched;  /* its bytes come from a server */
	bool head;     /* its first byte is read next */
	bool pinned;
	bool finished; /* with `result`; guarded by lock */
	int result;
};

struct ahead {
	struct mount *mount;
	pthread_t thread;
	unsigned n_slots;
	struct slot slots[MAX_HEADS];
	_Atomic uint64_t read; /* bytes of any file since the last open */
	atomic_int flags;      /* of that open: the next ones will have the same */
	atomic_bool chunked; /* of files of the sequence those chunks are fetched that are read; */
	atomic_bool heads;   /* and so far these are only their beginnings */
	struct carton_node *back; /* the next file of the background pass, or NULL */
	uint64_t n_back;	  /* how many files the background pass has begun */

	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t changed;
	bool over;
	/* if one of these is opened next, by name or by number, a sequence begins or continues */
	struct carton_node *expected, *counted;
	struct carton_node *last;   /* the file that was opened last, or NULL */
	bool by_number;		    /* which of them it was, where they differ */
	struct carton_node *at;	    /* next file of the sequence, or NULL */
	uint64_t n_opened, n_ahead; /* files of the sequence */
	bool idle;		    /* the thread waits until a file is opened */
	struct carton_node *demand; /* an open waits for this file: other work ends. Or NULL */
	bool paused;
};

/* ---- which file is next ---- */

/* The next file of the sequence. Lock held. */
static struct carton_node *next_of(const struct ahead *a, struct carton_node *node)
{
	return a->by_number ? order_next_number(node) :
			      order_next(a->mount->carton, node, MAX_HOPS);
}

static uint64_t size_of(const struct carton_node *node)
{
	struct carton_stat st;

	carton_stat(node, &st);
	return st.size;
}

/* Do its bytes come from a server, unless they are in the cache? */
static bool is_fetched(const struct ahead *a, const struct carton_node *node)
{
	struct carton_storage storage;

	return carton_is_remote(a->mount->carton) ||
	       (carton_storage(node, &storage) && !storage.contained);
}

/* Is the file, which is fetched or not, to be had before it is opened? Generated ones are not. */
static bool is_worth(const struct ahead *a, const struct carton_node *node, bool fetched)
{
	struct carton_storage storage;

	if (!carton_storage(node, &storage) || !fetched)
		return carton_storage(node, &storage);
	return size_of(node) >= FETCHED_FILE &&
	       (a->chunked || carton_has_room(a->mount->carton, size_of(node)));
}

/* Are only those chunks of it fetched that are read? */
static bool is_chunked(const struct carton_node *node)
{
	char state[32];

	return carton_property(node, "user.carton.state", state, sizeof(state)) > 0 &&
	       strcmp(state, "chunks") == 0;
}

/* The next file of the sequence that still needs verification. Lock held. */
static struct carton_node *take_next(struct ahead *a)
{
	struct carton_node *node = a->at;
	uint64_t most;

	if (!node)
		return NULL;
	if (is_fetched(a, node))
		most = a->heads ? MAX_HEADS : MAX_FETCHED;
	else
		most = size_of(node) <= SMALL_FILE ? WINDOW : a->n_slots;
	if (a->n_ahead - a->n_opened >= most)
		return NULL;
	a->n_ahead++;
	a->at = next_of(a, node);
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
	if (s->pinned)
		carton_unpin(s->node);
	s->request = NULL;
	s->node = NULL;
}

/* What was asked for has ended, perhaps before it began to wait. False: the slot is free. */
static bool go_on(struct slot *s)
{
	const struct carton_range first = { s->node, 0, 1 };
	int r;

	s->pinned |= s->result == 0;
	if (!s->pinned || !s->head) {
		release(s);
		return false;
	}
	carton_request_free(s->request);
	s->request = NULL;
	s->head = s->finished = false;
	r = carton_read_later(s->ahead->mount->carton, &first, on_done, s, &s->request);
	if (r != -EINPROGRESS)
		release(s);
	return r == -EINPROGRESS;
}

static void begin(struct ahead *a, struct slot *s, struct carton_node *node, uint64_t back)
{
	const struct fuse_file_info like = { .flags = atomic_load(&a->flags) };
	bool fetched = is_fetched(a, node);
	struct mount *m = a->mount;
	int r;

	if (!is_worth(a, node, fetched) || (fetched && back))
		return;
	*s = (struct slot){ .ahead = a,
			    .node = node,
			    .back = back,
			    .fetched = fetched,
			    .head = fetched && a->heads };
	r = carton_pin(m->carton, node, NULL, NULL, NULL);
	if (r == 0)
		pages_first_open(m, node);
	else if (r == -EAGAIN)
		r = carton_pin_observed(node, push_new(m, node, &like), on_done, s, &s->request);
	if (r == -EINPROGRESS)
		return;
	s->result = r;
	go_on(s);
}

static bool has_slot(const struct ahead *a, const struct carton_node *file)
{
	for (unsigned i = 0; i < MAX_HEADS; i++)
		if (a->slots[i].node == file)
			return true;
	return false;
}

/*
 * Cancels the work on all files but `file`, and but on those that are fetched with it. The
 * background pass continues from its first cancelled file.
 */
static void cancel_others(struct ahead *a, const struct carton_node *file)
{
	bool is_next = file && has_slot(a, file);

	for (unsigned i = 0; i < MAX_HEADS; i++) {
		struct slot *s = &a->slots[i];

		if (!s->node || s->node == file || (is_next && s->fetched) ||
		    !carton_request_cancel(s->request))
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
 * A free slot, after releasing finished ones; NULL: all are busy that the next file may have. The
 * lock is held, but dropped while slots are released.
 */
static struct slot *free_slot(struct ahead *a)
{
	unsigned most = a->at && is_fetched(a, a->at) ? MAX_HEADS : a->n_slots;
	struct slot *found = NULL;

	for (unsigned i = 0; i < MAX_HEADS; i++) {
		struct slot *s = &a->slots[i];

		if (s->node && s->finished) {
			pthread_mutex_unlock(&a->lock);
			go_on(s);
			pthread_mutex_lock(&a->lock);
			/* other slots may have finished meanwhile, and their signals were missed */
			return free_slot(a);
		}
		if (!s->node && i < most)
			found = s;
	}
	return found;
}

/* Lock held. */
static void rest(struct ahead *a)
{
	struct timespec end;

	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += PAUSE_S;
	a->idle = true;
	if (!a->paused)
		pthread_cond_wait(&a->changed, &a->lock);
	else if (pthread_cond_clockwait(&a->changed, &a->lock, CLOCK_MONOTONIC, &end) == ETIMEDOUT)
		a->paused = false;
	a->idle = false;
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
		a->back = order_next(a->mount->carton, node, UINT_MAX - 1);
	begin(a, s, node, back);
	pthread_mutex_lock(&a->lock);
	return true;
}

static bool is_busy(const struct ahead *a)
{
	bool busy = false;

	for (unsigned i = 0; i < MAX_HEADS; i++)
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
	a->back = all ? order_next(m->carton, carton_root(m->carton), UINT_MAX - 1) : NULL;
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

/* What is read of the file, whose bytes are fetched, goes on with the next ones. Lock held. */
static void follow(struct ahead *a, struct carton_node *file)
{
	struct carton_node *next;

	a->chunked = is_chunked(file);
	a->heads = a->chunked && a->read < HEAD;
	carton_follow(a->last, file);
	for (unsigned i = 0; i < MAX_FETCHED && file; i++) {
		next = next_of(a, file);
		carton_follow(file, next);
		file = next;
	}
}

void ahead_opened(struct ahead *a, struct carton_node *file, int flags)
{
	if (!a)
		return;
	atomic_store(&a->flags, flags);
	pthread_mutex_lock(&a->lock);
	if (file == a->expected || file == a->counted) {
		bool by_number = a->expected == a->counted ? a->by_number : file == a->counted;

		a->n_opened++;
		/* the reader is ahead of this thread, or a sequence begins with this file */
		if (a->n_ahead < a->n_opened || !a->at || by_number != a->by_number) {
			a->by_number = by_number;
			a->n_ahead = a->n_opened;
			a->at = next_of(a, file);
		}
		if (is_fetched(a, file))
			follow(a, file);
	} else {
		a->n_opened = a->n_ahead = 0;
		a->at = NULL;
		a->by_number = false;
	}
	atomic_store(&a->read, 0);
	a->last = file;
	a->expected = order_next(a->mount->carton, file, MAX_HOPS);
	a->counted = order_next_number(file);
	a->paused = false;
	if (a->idle && a->at && a->n_ahead - a->n_opened < WINDOW / 2)
		pthread_cond_signal(&a->changed);
	pthread_mutex_unlock(&a->lock);
}

void ahead_was_read(struct ahead *a, size_t n)
{
	if (a)
		atomic_fetch_add_explicit(&a->read, n, memory_order_relaxed);
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
