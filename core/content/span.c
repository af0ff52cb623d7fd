/* SPDX-License-Identifier: Apache-2.0 */
#include "content/span.h"

#include <stdlib.h>

#include "base/util.h"
#include "cache/cache.h"
#include "fetch/remote_source.h"
#include "fetch/server.h"
#include "content/internal.h"

/* of those that nobody has asked for: how many have a fill at once, how many are in a span, */
#define FILLS 4
#define MAX_NEIGHBOURS 1024
/* and how many a reader gets at once where there is no cache to keep them */
#define MAX_UNKEPT 64
/* the longest time that all of what is wanted for certain takes */
#define WANTED_MS 4000

/* One that nobody has asked for. */
struct neighbour {
	struct object_wait wait;
	struct span *span;
	struct object *object;
};

struct span {
	struct object_store *store;
	struct server_rates *server;
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
	*s = (struct span){
		.store = store,
		.server = store->runs.run.server,
		.off = e->header,
		.end = e->header,
		.users = 1,
	};
	rates_began(s->server);
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
	rates_ended(s->server);
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
	int64_t now = now_us();

	pthread_mutex_lock(&s->store->runs.lock);
	if (!s->answered)
		rates_answered(s->server, (uint64_t)MAX(now - s->began_us, 1));
	s->answered = true;
	rates_came(s->server, bytes, (uint64_t)now);
	for (struct span_wait *w = s->waits; w; w = w->next)
		waits_progress(w->waits, bytes);
	pthread_mutex_unlock(&s->store->runs.lock);
}

static int note_place(void *span, struct fetch_place *from)
{
	((struct span *)span)->from = from;
	return 0;
}

/* Does no reader wait for it, but perhaps others, or neighbours? Lock held. */
static bool is_background(const struct span *s)
{
	const struct span_wait *w = s->waits;

	while (w && waits_background(w->waits))
		w = w->next;
	return !w;
}

/* A background() of a fetch. */
static bool background(void *span)
{
	struct span *s = span;
	bool result;

	pthread_mutex_lock(&s->store->runs.lock);
	result = is_background(s);
	pthread_mutex_unlock(&s->store->runs.lock);
	return result;
}

static int fetch(struct span *s)
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

static void start(struct span *s)
{
	if (fetch(s) < 0)
		over(s);
}

/* ---- which entries ---- */

/* Has opening the carton left it in memory? */
static bool is_left(const struct object_store *store, const struct entry *e)
{
	return remote_source_cached(store->options.source, NULL, entry_end(e) - e->header,
				    e->header);
}

/* Has it been fetched, here or by an earlier mount? */
static bool is_here(const struct object *o)
{
	struct object_store *store = o->store;
	bool here;

	pthread_mutex_lock(&store->lock);
	here = o->bytes.kind != BYTES_NONE || o->state == OBJECT_CORRUPT;
	pthread_mutex_unlock(&store->lock);
	return here || cache_has(store->options.cache, o->sha256);
}

/*
 * The object of an entry that is to be fetched with others, as somebody wants it, or, if it is
 * `near`, soon will; or NULL. Lock held.
 */
static struct object *neighbour_of(struct object_store *store, const struct entry *e, bool near)
{
	const struct object_options *options = &store->options;
	struct object *o;

	if (run_has_seen(&store->runs.run, e) || is_left(store, e))
		return NULL;
	o = options->object_of(options->ctx, e, near);
	if (!near && (!o || !atomic_load(&o->wanted)))
		return NULL;
	run_see(&store->runs.run, e);
	return o && !is_here(o) ? o : NULL;
}

/* What is fetched together. */
struct choice {
	struct object_store *store;
	struct run_window near; /* all that is in it, */
	struct run_window far;	/* and what of this is wanted */
	struct span *mine;	/* has it; or NULL */
	struct span *begun;	/* new ones, in their order */
};

/* Lock held. */
static void choose(struct choice *c)
{
	struct object_runs *runs = &c->store->runs;
	const struct object_options *options = &c->store->options;
	/* without a cache few are kept until they are opened */
	size_t most = options->cache && options->verify ? SIZE_MAX : MAX_UNKEPT;
	size_t low, high, near_low, near_high, at = c->near.at;
	uint64_t request = run_request(MAX(c->far.before, c->far.after));
	struct span *s = NULL, **last = &c->begun;

	run_around(&runs->run, &c->near, &near_low, &near_high);
	run_around(&runs->run, &c->far, &low, &high);
	for (size_t i = low; i < high; i++) {
		const struct entry *e = runs->run.order[i];
		struct object *o = NULL;

		if (i != at && most > 0)
			o = neighbour_of(c->store, e, near_low <= i && i < near_high);
		if (i != at && !o)
			continue;
		if (!s || s->n >= MAX_NEIGHBOURS || e->header < s->end ||
		    e->header - s->end > run_gap(&runs->run) || entry_end(e) - s->off > request) {
			s = span_new(c->store, e);
			if (!s)
				return;
			*last = s;
			last = &s->later;
		}
		if (i == at)
			c->mine = s;
		else if (!add_neighbour(s, o))
			return;
		most -= i != at;
		s->end = entry_end(e);
	}
}

/* The server that is asked first for what is in the carton. */
static struct server_rates *carton_server(struct object_store *store)
{
	struct fetch_place *places;
	size_t n = remote_source_places(store->options.source, &places);

	return rates_of(&store->rates, n > 0 ? places[0].url : NULL);
}

/* Begins new spans for an entry and its neighbours. Lock held. */
static void begin(struct choice *c, const struct span_wait *w)
{
	struct run *run = &c->store->runs.run;

	run->server = carton_server(c->store);
	if (run_follow(run, w->entry, &c->near) < 0)
		return;
	c->far = c->near;
	if (atomic_load(&w->object->wanted))
		c->far.before = c->far.after = run_most(run, WANTED_MS);
	if (c->far.before + c->far.after > 0)
		choose(c);
}

bool span_ask(struct span_wait *w)
{
	struct object_store *store = w->object->store;
	struct choice c = { .store = store };
	struct span *there = NULL;
	bool raised = false;

	if (!run_takes(w->entry) || is_left(store, w->entry))
		return false;
	pthread_mutex_lock(&store->runs.lock);
	c.mine = find(store, w->entry);
	if (!c.mine)
		begin(&c, w);
	if (c.mine && c.mine->there) {
		there = c.mine;
		there->users++;
	} else if (c.mine) {
		raised = !c.begun && is_background(c.mine);
		w->next = c.mine->waits;
		c.mine->waits = w;
		raised = raised && !is_background(c.mine);
	}
	pthread_mutex_unlock(&store->runs.lock);
	if (there) {
		w->done(w, there);
		leave(there);
	}
	for (struct span *s = c.begun, *next; s; s = next) {
		next = s->later;
		start(s);
	}
	if (raised)
		servers_look_again(store->options.fetch->servers);
	return c.mine;
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
