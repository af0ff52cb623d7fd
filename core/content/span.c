/* SPDX-License-Identifier: Apache-2.0 */
#include "content/span.h"

#include <stdlib.h>

#include "base/util.h"
#include "fetch/remote_source.h"
#include "content/internal.h"
#include "content/span_choice.h"

/* of those that nobody has asked for: how many have a fill at once, and how many are in a span */
#define FILLS 4
#define MAX_NEIGHBOURS 1024

/* One that nobody has asked for. */
struct neighbour {
	struct object_wait wait;
	struct span *span;
	struct object *object;
};

struct span {
	struct object_store *store;
	uint64_t off, end; /* in the carton */
	struct job job;
	struct span *later; /* of those that one thread starts */
	struct file *dest;
	uint64_t held; /* of the budget */
	int64_t began_us;
	bool answered;

	/* once it is there; else NULL */
	struct source *bytes;
	struct fetch_place *from;

	/* guarded by store->runs.lock */
	struct span *next, **link; /* of store->runs.spans; link NULL: not in it */
	struct span_wait *waits;
	bool there;
	unsigned users; /* who need it to stay: its job, those who copy, fills of neighbours */
	unsigned fills; /* of neighbours, now */
	size_t n, at;	/* neighbours, and those whose turn came */
	size_t cap;
	struct neighbour *list;
};

/* ---- its life ---- */

/* A new one that begins with this entry; NULL: no memory. Lock held. */
static struct span *span_new(struct object_store *store, const struct entry *e)
{
	struct span *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	*s = (struct span){ .store = store, .off = e->header, .end = e->header, .users = 1 };
	ahead_began(&store->runs.run.servers);
	s->next = store->runs.spans;
	if (s->next)
		s->next->link = &s->next;
	s->link = &store->runs.spans;
	store->runs.spans = s;
	return s;
}

/* Nobody finds it any more. Lock held. */
static void hide(struct span *s)
{
	if (!s->link)
		return;
	*s->link = s->next;
	if (s->next)
		s->next->link = s->link;
	s->link = NULL;
}

static void leave(struct span *s)
{
	struct object_store *store = s->store;
	bool last;

	pthread_mutex_lock(&store->runs.lock);
	last = --s->users == 0;
	if (last)
		hide(s);
	pthread_mutex_unlock(&store->runs.lock);
	if (!last)
		return;
	source_unref(s->bytes);
	free(s->list);
	budget_drop(store->options.budget, s->held);
	free(s);
}

/* The one that has this entry; or NULL. Lock held. */
static struct span *find(const struct object_store *store, const struct entry *e)
{
	struct span *s = store->runs.spans;

	while (s && (e->header < s->off || entry_end(e) > s->end ||
		     (s->there && atomic_load(&s->from->bad))))
		s = s->next;
	return s;
}

/* ---- neighbours ---- */

static void fill_neighbours(struct span *s);

/* The fill of a neighbour has ended. */
static void neighbour_over(struct neighbour *k, int result)
{
	struct span *s = k->span;

	if (result == 0)
		object_put(k->object);
	pthread_mutex_lock(&s->store->runs.lock);
	s->fills--;
	/* what is wrong with this machine, the others need not find out */
	if (result < 0 && result != -EBADMSG)
		s->at = s->n;
	pthread_mutex_unlock(&s->store->runs.lock);
}

static void neighbour_done(struct object_wait *wait, int result)
{
	struct neighbour *k = container_of(wait, struct neighbour, wait);
	struct span *s = k->span;

	neighbour_over(k, result);
	fill_neighbours(s);
	leave(s);
}

/* Begins fills, as many as may be at once. */
static void fill_neighbours(struct span *s)
{
	for (;;) {
		struct neighbour *k = NULL;
		int r;

		pthread_mutex_lock(&s->store->runs.lock);
		if (s->at < s->n && s->fills < FILLS) {
			k = &s->list[s->at++];
			s->fills++;
			s->users++;
		}
		pthread_mutex_unlock(&s->store->runs.lock);
		if (!k)
			return;
		r = object_get(k->object, &k->wait);
		if (r != -EINPROGRESS) {
			neighbour_over(k, r);
			leave(s);
		}
	}
}

static bool add_neighbour(struct span *s, struct object *o)
{
	if (array_room(s->list, &s->cap, s->n + 1) < 0)
		return false;
	s->list[s->n++] = (struct neighbour){ .wait.done = neighbour_done, .span = s, .object = o };
	return true;
}

/* ---- fetching ---- */

static void run_over(struct job *job)
{
	struct span *s = container_of(job, struct span, job);
	struct object_store *store = s->store;
	struct span_wait *waits, *next;

	pthread_mutex_lock(&store->runs.lock);
	waits = s->waits;
	s->waits = NULL;
	s->there = s->bytes;
	if (!s->there) {
		s->at = s->n;
		hide(s);
	}
	pthread_mutex_unlock(&store->runs.lock);
	for (; waits; waits = next) {
		next = waits->next;
		waits->done(waits, s->there ? s : NULL);
	}
	fill_neighbours(s);
	leave(s);
}

/* The request has ended; with bytes, or without. */
static void over(struct span *s)
{
	ahead_ended(&s->store->runs.run.servers);
	/* copying and beginning fills is no work for the network's thread */
	s->job.run = run_over;
	workers_submit(s->store->options.workers, &s->job, LANE_QUICK);
}

static void fetched(void *span, int result, uint64_t size)
{
	struct span *s = span;

	if (result < 0)
		file_abort(s->dest, false);
	else if (file_commit(s->dest, NULL, size, &s->bytes) < 0)
		s->bytes = NULL;
	over(s);
}

static void arrived(void *span, uint64_t bytes)
{
	struct span *s = span;
	struct ahead_servers *servers = &s->store->runs.run.servers;
	int64_t now = now_us();

	pthread_mutex_lock(&s->store->runs.lock);
	if (!s->answered)
		ahead_answered(servers, (uint64_t)MAX(now - s->began_us, 1));
	s->answered = true;
	ahead_came(servers, bytes, (uint64_t)now);
	for (struct span_wait *w = s->waits; w; w = w->next)
		waits_progress(w->waits, bytes);
	pthread_mutex_unlock(&s->store->runs.lock);
}

static int note_place(void *span, struct fetch_place *from)
{
	((struct span *)span)->from = from;
	return 0;
}

static int fetch(struct span *s, bool background)
{
	const struct object_options *options = &s->store->options;
	struct fetch f = {
		.options = options->fetch,
		.cancel = &s->store->stop,
		.what = FETCH_PART,
		.background = background,
		.off = s->off,
		.n = s->end - s->off,
		.check = note_place,
		.arrived = arrived,
		.arrived_ctx = s,
		.done = fetched,
		.ctx = s,
	};
	int r;

	/* there was no memory for the entry that it should have begun with */
	if (f.n == 0 || !budget_hold(options->budget, f.n))
		return -ENOMEM;
	s->held = f.n;
	r = file_memory(f.n, &s->dest);
	if (r < 0)
		return r;
	f.dest = s->dest;
	f.n_places = remote_source_places(options->source, &f.places);
	s->began_us = now_us();
	r = fetch_start(&f);
	if (r < 0)
		file_abort(s->dest, false);
	return r;
}

static void start(struct span *s, bool background)
{
	if (fetch(s, background) < 0)
		over(s);
}

/* ---- which entries ---- */

/* Begins new spans for what was chosen, in their order; *ret_mine has `entry`. Lock held. */
static struct span *make_spans(struct object_store *store, const struct span_choice *c,
			       const struct entry *entry, struct span **ret_mine)
{
	struct span *begun = NULL, *s = NULL, **last = &begun;

	for (size_t i = 0; i < c->n; i++) {
		const struct entry *e = c->list[i].entry;

		if (!s || s->n >= MAX_NEIGHBOURS || e->header < s->end ||
		    e->header - s->end > run_gap(&store->runs.run) ||
		    entry_end(e) - s->off > c->request) {
			s = span_new(store, e);
			if (!s)
				break;
			*last = s;
			last = &s->later;
		}
		if (e == entry)
			*ret_mine = s;
		else if (!add_neighbour(s, c->list[i].object))
			break;
		s->end = entry_end(e);
	}
	return begun;
}

bool span_ask(struct span_wait *w)
{
	struct object_store *store = w->object->store;
	struct span *mine, *begun = NULL, *there = NULL;
	bool wanted = atomic_load(&w->object->wanted);
	struct span_choice c = { 0 };

	if (!run_takes(w->entry) || span_is_left(store, w->entry))
		return false;
	pthread_mutex_lock(&store->runs.lock);
	mine = find(store, w->entry);
	if (!mine) {
		span_choose(w->object, w->entry, &c);
		begun = make_spans(store, &c, w->entry, &mine);
	}
	if (mine && mine->there) {
		there = mine;
		there->users++;
	} else if (mine) {
		w->next = mine->waits;
		mine->waits = w;
	}
	pthread_mutex_unlock(&store->runs.lock);
	free(c.list);
	if (there) {
		w->done(w, there);
		leave(there);
	}
	for (struct span *s = begun, *next; s; s = next) {
		next = s->later;
		start(s, wanted || s != mine);
	}
	return mine;
}

bool span_has(const struct object *o, const struct entry *e)
{
	struct object_store *store = o->store;
	bool has;

	pthread_mutex_lock(&store->runs.lock);
	has = run_takes(e) && find(store, e);
	pthread_mutex_unlock(&store->runs.lock);
	return has;
}

int span_copy(const struct span *s, struct file *dest, uint64_t off, uint64_t n,
	      struct fetch_place **ret_from)
{
	char *data = malloc((size_t)n + 1);
	int r = data ? source_pread(s->bytes, data, (size_t)n, off - s->off) : -ENOMEM;

	if (r == 0)
		r = file_write(dest, data, (size_t)n, 0);
	free(data);
	*ret_from = s->from;
	return r;
}
