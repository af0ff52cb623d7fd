/* SPDX-License-Identifier: Apache-2.0 */
#include "content/get.h"

#include <stdlib.h>

#include "archive/container.h"
#include "base/util.h"
#include "fetch/fetcher.h"
#include "fetch/remote_source.h"
#include "format/links.h"
#include "content/internal.h"
#include "content/entry_part.h"
#include "content/late.h"

static const struct object_options *options_of(const struct get *g)
{
	return &g->plan->object->store->options;
}

static void finish(struct get *g, int result)
{
	struct ingested none = { 0 };

	g->done(g, result, result == 0 ? &g->in : &none);
}

/* ---- are they right? ---- */

/* A check() of a fetch: the owner looks at the bytes. */
static int check_part(void *ctx, struct fetch_place *from)
{
	struct get *g = ctx;

	g->checked = g->check(g, from->url);
	return g->checked;
}

/* Compares the bytes that were hashed with the object. 0; -EBADMSG: they differ; or -errno. */
static int compare(struct get *g)
{
	const struct object *o = g->plan->object;

	if (o->late)
		return late_check(o, g->dest, &g->in);
	if (g->follow.hash && memcmp(g->in.sha256, o->sha256, SHA256_SIZE) != 0)
		return -EBADMSG;
	return 0;
}

static void log_wrong(const struct get *g, const struct fetch_place *from)
{
	if (g->plan->object->late)
		late_log_wrong(g->plan->object, from->url);
	else
		fill_log_wrong(g->fill, g->in.sha256, from->version ? NULL : from->url);
}

/* The same, where the bytes were hashed. */
static int check_all(void *ctx, struct fetch_place *from)
{
	struct get *g = ctx;
	const struct plan *p = g->plan;
	int r = follow_end(&g->follow, &g->in);
	bool wrong;

	if (r == 0)
		r = compare(g);
	wrong = r == -EBADMSG;
	if (r < 0 && !wrong)
		return r;
	if (wrong && g->wrong != from)
		log_wrong(g, from);
	/* the carton lies about its size; a read by that would give a part as if it were all */
	wrong |= p->entry && g->in.size != p->entry->size;
	if (!wrong)
		return 0;
	g->wrong = from;
	free(g->in.tags);
	g->in = (struct ingested){ 0 };
	return -EBADMSG;
}

/* ---- fetches ---- */

/* What all of them have in common. */
static struct fetch fetch_of(struct get *g, struct fetch_place *places, size_t n)
{
	return (struct fetch){
		.options = options_of(g)->fetch,
		.background = waits_background,
		.cancel = &g->waits->cancel,
		.places = places,
		.n_places = n,
		.off = g->off,
		.n = g->n,
		.dest = g->dest,
		.at = g->off,
		.arrived = waits_arrived,
		.announced = waits_announced,
		.arrived_ctx = g->waits,
		.ctx = g,
	};
}

/* So far it has ended like this. */
static void next(struct get *g, int result);

/* The same, unless more is under way. */
static void go_on(struct get *g, int result)
{
	if (result < 0)
		next(g, result);
}

static void content_done(void *ctx, int result, uint64_t size)
{
	struct get *g = ctx;

	if (g->fill)
		follow_finish(&g->follow);
	part_leave(g, result);
	/* nothing was hashed */
	if (!g->in.size)
		g->in.size = size;
	next(g, result);
}

/* Fetches what is wanted. Its bytes are hashed as they come, or looked at by the owner. */
static int start(struct get *g, struct fetch *f)
{
	const struct object_store *s = g->plan->object->store;
	int r;

	f->done = content_done;
	if (!g->fill) {
		f->check = check_part;
		f->settle = g->settle;
		/* what other places have sent of it stays */
		f->have = g->settle(g, 0);
		return fetch_start(f);
	}
	g->in = (struct ingested){ 0 };
	g->follow = (struct follow){
		.dest = g->dest,
		.workers = s->options.workers,
		.cancel = &g->waits->cancel,
		.tagger = s->tagger,
		.hash = s->options.verify || g->plan->link,
		.progress = waits_hashed,
		.ctx = g->waits,
	};
	follow_init(&g->follow);
	if (g->follow.hash || g->follow.tagger) {
		f->follow = &g->follow;
		f->check = check_all;
	}
	r = fetch_start(f);
	if (r < 0)
		follow_finish(&g->follow);
	return r;
}

/* ---- from URLs ---- */

static int ask_urls(struct get *g)
{
	struct plan *p = g->plan;
	const struct object *o = p->object;
	uint64_t size = object_size(o);
	struct fetch f = fetch_of(g, p->urls, p->n_urls);

	f.what = g->fill ? FETCH_FILE : FETCH_PART;
	f.first = p->link ? &p->link->first : NULL;
	f.deadline_ms = g->deadline_ms;
	f.size = g->size;
	if (g->fill) {
		f.n = size != OBJECT_NO_SIZE ? size : 0;
		/* what the carton or the chunk index says; what a server has said may be wrong */
		f.max = o->size != OBJECT_NO_SIZE ? o->size : 0;
	}
	return start(g, &f);
}

/* ---- from the carton ---- */

static struct fetch fetch_of_carton(struct get *g, uint64_t off, uint64_t n)
{
	struct fetch_place *places;
	size_t n_places = plan_carton(g->plan, &places);
	struct fetch f = fetch_of(g, places, n_places);

	f.off = off;
	f.n = n;
	return f;
}

/* The place has sent wrong bytes: a mirror is not asked again, validators count again. */
static int blame(struct fetch_place *from, int error)
{
	if (error == -EBADMSG && from->mirror)
		atomic_store(&from->bad, true);
	if (error == -EBADMSG && from->version)
		version_distrust(from->version);
	return error;
}

/* A led() of a fetch: the entry's header. */
static int check_header(void *ctx, struct fetch_place *from)
{
	struct get *g = ctx;
	uint64_t off;
	int r = part_locate(g, &off);

	part_leave(g, r);
	if (r == 0)
		plan_keep_header(g->plan, from);
	return blame(from, r);
}

/* Asks for data of the entry, and for the header in front of it unless that is known. */
static int ask_data(struct get *g)
{
	const struct entry *e = g->plan->entry;
	uint64_t none;
	struct fetch f = fetch_of_carton(g, entry_data(e) + g->off, g->fill ? e->size : g->n);
	int r = 0;

	f.what = g->fill ? FETCH_FILE : FETCH_PART;
	if (!plan_has_header(g->plan)) {
		r = part_open(g, e->room, &none);
		f.lead = e->header;
		f.n_lead = e->room;
		f.lead_dest = g->part_file;
		f.led = check_header;
	}
	if (g->fill) {
		if (r == 0)
			r = part_resume(g, g->dest, e->size, &f.have);
		if (r == 0)
			r = file_reserve(g->dest, e->size, true);
	}
	if (r == 0)
		r = start(g, &f);
	if (r < 0)
		part_leave(g, r);
	return r;
}

static int ask_entry(struct get *g, const struct span *span);

static void run_decode(struct job *job)
{
	struct get *g = container_of(job, struct get, job);
	uint64_t off;
	int r = part_locate(g, &off);

	if (r == 0)
		r = entry_decode(g->fill, g->part, off, &g->in);
	part_leave(g, r);
	/* others can write to a partial: no place is blamed before it has sent all anew */
	if (r == -EBADMSG && g->partial) {
		carton_log(CARTON_LOG_WARNING, object_name(g->plan->object),
			   "what the cache has kept of it is wrong: all is fetched again");
		g->anew = true;
		r = ask_entry(g, NULL);
		if (r == 0)
			return;
	}
	next(g, blame(g->part_from, r));
}

static void run_ask(struct job *job)
{
	struct get *g = container_of(job, struct get, job);

	go_on(g, plan_is_direct(g->plan->entry) ? ask_data(g) : ask_entry(g, NULL));
}

/* Goes on where there is time: the network's thread has none. */
static int submit(struct get *g, void (*run)(struct job *job))
{
	const struct entry *e = g->plan->entry;

	g->job.run = run;
	workers_submit(options_of(g)->workers, &g->job,
		       MAX(e->size, e->stored) > BULK_OBJECT ? LANE_BULK : LANE_QUICK);
	return 0;
}

/* A check of a fetch: the part is looked at when it is over. */
static int note_place(void *ctx, struct fetch_place *from)
{
	((struct get *)ctx)->part_from = from;
	return 0;
}

static void part_done(void *ctx, int result, uint64_t size)
{
	struct get *g = ctx;

	(void)size;
	if (result < 0) {
		part_leave(g, result);
		next(g, result);
	} else {
		submit(g, run_decode);
	}
}

/* All of the entry, which is then decoded. It may be in a span; or NULL. */
static int ask_entry(struct get *g, const struct span *span)
{
	const struct entry *e = g->plan->entry;
	uint64_t n = entry_end(e) - e->header;
	struct fetch f = fetch_of_carton(g, e->header, n);
	int r = part_open(g, n, &f.have);

	if (r == 0)
		r = entry_make_room(g->fill);
	if (r < 0) {
		part_leave(g, r);
		return r;
	}
	/* bytes of several places would not tell which of them are wrong */
	g->partial = file_is_cached(g->part_file) && (f.have > 0 || g->left == 1);
	g->part_from = f.places;
	r = part_copy_cached(g, span, e->header, n);
	if (r == 0)
		return submit(g, run_decode);
	f.what = g->partial ? FETCH_FILE : FETCH_PART;
	f.dest = g->part_file;
	f.at = 0;
	f.check = note_place;
	f.done = part_done;
	if (r == -ENOENT)
		r = fetch_start(&f);
	if (r < 0)
		part_leave(g, r);
	return r;
}

static void span_done(struct span_wait *w, struct span *span)
{
	struct get *g = container_of(w, struct get, span_wait);

	go_on(g, ask_entry(g, span));
}

static int ask_carton(struct get *g)
{
	struct plan *p = g->plan;

	/* first: what is found out from now on is seen to be less */
	g->left = plan_carton_left(p);
	g->in_carton = true;
	if (g->left == 0)
		return -ENETUNREACH;
	/* a URL that was asked before may have left a limit */
	if (g->fill)
		file_limit(g->dest, UINT64_MAX);
	if (!g->fill)
		return ask_data(g);
	g->span_wait = (struct span_wait){ span_done, p->object, p->entry, g->waits, NULL };
	if (!plan_is_direct(p->entry) && span_ask(&g->span_wait))
		return 0;
	/* to make room for all of it may take long */
	return submit(g, run_ask);
}

/* ---- in which order ---- */

/* 0: it is under way. */
static int ask(struct get *g)
{
	if (!g->in_carton && plan_has_urls(g->plan))
		return ask_urls(g);
	return g->plan->entry ? ask_carton(g) : -EBADMSG;
}

/* May a place that was not asked have the bytes? */
static bool is_elsewhere(const struct get *g, int error)
{
	if (error == -EBADMSG && (g->checked == -EBADMSG || g->in_carton))
		return !g->in_carton || plan_carton_left(g->plan) < g->left;
	return g->plan->entry && !g->in_carton && g->checked == 0 && error != -ECANCELED &&
	       error != -ESHUTDOWN && error != -ENOMEM && error != -ENOSPC && error != -EDQUOT;
}

/* Asks other places after that error. 0: it is under way; else how it has ended. */
static int ask_elsewhere(struct get *g, int error)
{
	while (error < 0 && is_elsewhere(g, error)) {
		error = 0;
		if (g->checked == -EBADMSG) {
			error = g->again(g);
		} else if (!g->in_carton) {
			g->in_carton = true;
			if (!g->fill)
				plan_drop_mirrors(g->plan, SIZE_MAX);
		}
		g->checked = 0;
		if (error == 0)
			error = ask(g);
	}
	return error;
}

static void next(struct get *g, int result)
{
	if (result < 0) {
		result = ask_elsewhere(g, result);
		if (result == 0)
			return;
	}
	finish(g, result);
}

/* ---- beginning ---- */

static int begin(const struct get *g)
{
	if (options_of(g)->fetch)
		return plan_find_urls(g->plan);
	/* who wants a part says which */
	if (g->fill)
		carton_log(CARTON_LOG_ERROR, object_name(g->plan->object),
			   "is not in the cache, and nothing is fetched when offline; run "
			   "cartonctl fetch without --offline first");
	return -ENETUNREACH;
}

int get_start(struct get *g)
{
	struct plan *p = g->plan;
	int r = begin(g);

	if (r < 0)
		return r;
	g->checked = 0;
	g->anew = false;
	if (g->fill)
		plan_allow_urls(p);
	/* without verify, nothing would compare the bytes of a mirror */
	g->in_carton = p->entry && (!options_of(g)->verify || part_is_cached(g));
	r = ask(g);
	return r < 0 ? ask_elsewhere(g, r) : 0;
}

static void size_done(void *ctx, int result, uint64_t size)
{
	struct get *g = ctx;

	g->in = (struct ingested){ .size = size };
	finish(g, result);
}

int get_start_size(struct get *g)
{
	struct plan *p = g->plan;
	int r = begin(g);
	struct fetch f;

	if (r < 0)
		return r;
	f = fetch_of(g, p->urls, p->n_urls);
	f.what = FETCH_SIZE;
	f.first = p->link ? &p->link->first : NULL;
	f.deadline_ms = g->deadline_ms;
	f.done = size_done;
	return fetch_start(&f);
}
