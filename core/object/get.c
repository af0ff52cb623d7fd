/* SPDX-License-Identifier: Apache-2.0 */
#include "object/get.h"

#include <stdlib.h>

#include "archive/container.h"
#include "base/util.h"
#include "fetch/fetcher.h"
#include "fetch/remote_source.h"
#include "format/links.h"
#include "http/http.h"
#include "object/internal.h"
#include "object/scratch.h"

/* as much as opening the carton may have left of an entry */
#define MAX_CACHED (8 * MIB)

static const struct object_options *options_of(const struct get *g)
{
	return &g->plan->object->store->options;
}

static void finish(struct get *g, int result, struct ingested *in)
{
	struct ingested none = { 0 };

	g->done(g, result, result == 0 ? in : &none);
}

/* ---- are they right? ---- */

/* Checks of a fetch: by the owner, */
static int check_part(void *ctx, const char *url)
{
	struct get *g = ctx;

	g->checked = g->check(g, url);
	return g->checked;
}

static void log_wrong(const struct get *g, const char *url)
{
	const struct object *o = g->plan->object;
	char want[2 * SHA256_SIZE + 1], found[2 * SHA256_SIZE + 1], shown[256];

	hex_encode(o->sha256, SHA256_SIZE, want);
	hex_encode(g->in.sha256, SHA256_SIZE, found);
	carton_log(CARTON_LOG_ERROR, http_url_redact(url, shown, sizeof(shown)),
		   "has other bytes than MANIFEST says: sha256 %s instead of %s", found, want);
}

/* or by the hash. */
static int check_all(void *ctx, const char *url)
{
	struct get *g = ctx;
	const struct plan *p = g->plan;
	bool wrong, in_carton = plan_index(p, url) == p->n_urls;
	int r = follow_end(&g->follow, &g->in);

	if (r < 0)
		return r;
	wrong = g->follow.hash && memcmp(g->in.sha256, p->object->sha256, SHA256_SIZE) != 0;
	if (wrong && in_carton)
		fill_check(g->fill, g->in.sha256);
	else if (wrong && g->wrong != url)
		log_wrong(g, url);
	/* the carton lies about its size; a read by that would give a part as if it were all */
	wrong |= p->entry && g->in.size != p->entry->size;
	if (!wrong)
		return 0;
	g->wrong = url;
	free(g->in.tags);
	g->in = (struct ingested){ 0 };
	return -EBADMSG;
}

/* What all requests have in common. */
static struct fetch fetch_of(struct get *g)
{
	return (struct fetch){
		.options = options_of(g)->fetch,
		.cancel = &g->waits->cancel,
		.off = g->off,
		.n = g->n,
		.dest = g->dest,
		.at = g->off,
		.arrived = waits_arrived,
		.arrived_ctx = g->waits,
		.ctx = g,
	};
}

/* Fetches what is wanted, of which the bytes are hashed as they come, or looked at by the owner. */
static int start(struct get *g, struct fetch *f)
{
	const struct object_store *s = g->plan->object->store;
	int r;

	if (!g->fill) {
		f->check = check_part;
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

/* The end of that. */
static void leave(struct get *g, uint64_t size)
{
	if (g->fill)
		follow_finish(&g->follow);
	/* nothing was hashed */
	if (!g->in.size)
		g->in.size = size;
}

/* Makes room for bytes that come once more. */
static int begin_again(struct get *g)
{
	int wrong = g->checked;

	g->checked = 0;
	if (g->fill)
		return dest_restart(g->dest, NULL);
	return wrong == -EBADMSG ? g->again(g) : 0;
}

/* ---- from the carton ---- */

static int ask_carton(struct get *g);

/*
 * Wrong bytes of a mirror, or such as cannot be decoded: the carton's own URL is asked, for its
 * header, too.
 */
static int ask_other(struct get *g)
{
	int r;

	atomic_store(&remote_source_version(options_of(g)->source)->gone, true);
	atomic_store(&g->plan->data, 0);
	r = begin_again(g);
	return r < 0 ? r : ask_carton(g);
}

/* What an earlier fill has left may be to blame: nothing of it is used, and the same is asked. */
static int ask_anew(struct get *g)
{
	int r = begin_again(g);

	g->resumed = false;
	return r < 0 ? r : ask_carton(g);
}

static void carton_over(struct get *g, int result, struct ingested *in)
{
	if (result == -EBADMSG && (g->resumed || g->by_mirror)) {
		result = g->resumed ? ask_anew(g) : ask_other(g);
		if (result == 0)
			return;
	}
	finish(g, result, in);
}

static struct fetch fetch_of_carton(struct get *g, uint64_t off, uint64_t n)
{
	struct fetch f = fetch_of(g);

	f.what = FETCH_RANGE;
	f.trust = HTTP_USER;
	f.version = remote_source_version(options_of(g)->source);
	f.off = off;
	f.n = n;
	return f;
}

/* How much an earlier fill has left of this very version. */
static uint64_t find_partial(const struct get *g, const char *version)
{
	char validator[MAX_CACHE_VALIDATOR + 1];
	uint64_t len;

	if (!version || dest_partial(g->dest, &len, validator, sizeof(validator)) < 0 ||
	    strcmp(validator, version) != 0 || len > g->plan->entry->size)
		return 0;
	return len;
}

static void data_done(void *ctx, int result, uint64_t size)
{
	struct get *g = ctx;

	leave(g, size);
	carton_over(g, result, &g->in);
}

/* The data begins there in the carton. */
static int ask_data(struct get *g, uint64_t data)
{
	const char *version = options_of(g)->source->version;
	uint64_t size = g->plan->entry->size;
	struct fetch f = fetch_of_carton(g, data + g->off, g->fill ? size : g->n);
	int r = 0;

	if (g->fill) {
		f.have = find_partial(g, version);
		g->resumed = f.have > 0;
		if (!f.have)
			r = dest_restart(g->dest, version);
		if (r == 0)
			r = dest_reserve(g->dest, size, true);
	}
	f.done = data_done;
	return r < 0 ? r : start(g, &f);
}

static void run_decode(struct job *job)
{
	struct get *g = container_of(job, struct get, job);
	struct ingested in = { 0 };
	uint64_t off;
	int r = scratch_locate(g, &off);

	if (r == 0)
		r = scratch_decode(g, off, &in);
	scratch_leave(g);
	carton_over(g, r, &in);
}

/* The part has the entry's header: asks for the data behind it. */
static int ask_behind(struct get *g)
{
	const struct version *version = remote_source_version(options_of(g)->source);
	uint64_t off, data;
	int r = scratch_locate(g, &off);

	scratch_leave(g);
	if (r < 0)
		return r;
	data = g->plan->entry->header + off;
	/* unless the mirror that sent the header was found out meanwhile */
	if (!(g->by_mirror && version->gone))
		atomic_store(&g->plan->data, data);
	return ask_data(g, data);
}

static void run_ask(struct job *job)
{
	struct get *g = container_of(job, struct get, job);
	struct ingested none = { 0 };
	int r = ask_behind(g);

	if (r < 0)
		carton_over(g, r, &none);
}

/* The scratch, `n` bytes from the entry's header on, is there. */
static int use_scratch(struct get *g, uint64_t n)
{
	const struct entry *e = g->plan->entry;
	bool direct = plan_is_direct(e);
	int r = dest_commit(g->scratch, NULL, n, &g->part);

	if (r < 0)
		return r;
	if (direct && !g->fill)
		return ask_behind(g);
	/* to make room for all of it may take long, which the network's thread has no time for */
	g->job.run = direct ? run_ask : run_decode;
	workers_submit(options_of(g)->workers, &g->job,
		       MAX(e->size, e->stored) > BULK_OBJECT ? LANE_BULK : LANE_QUICK);
	return 0;
}

static void scratch_done(void *ctx, int result, uint64_t size)
{
	struct ingested none = { 0 };
	struct get *g = ctx;

	if (result == 0)
		result = use_scratch(g, size);
	else
		dest_abort(g->scratch, false);
	if (result < 0)
		carton_over(g, result, &none);
}

/* What of the entry says where its data is; or all of it, which is then decoded. */
static int ask_entry(struct get *g)
{
	const struct entry *e = g->plan->entry;
	uint64_t n = entry_end(e) - e->header - (plan_is_direct(e) ? e->stored : 0);
	struct fetch f = fetch_of_carton(g, e->header, n);
	int r = scratch_open(g, n);

	if (r < 0)
		return r;
	r = n <= MAX_CACHED && !f.version->gone ? scratch_copy_cached(g, e->header, n) : -ENOENT;
	if (r == 0)
		return use_scratch(g, n);
	f.dest = g->scratch;
	f.at = 0;
	f.done = scratch_done;
	if (r == -ENOENT)
		r = fetch_start(&f);
	if (r < 0)
		dest_abort(g->scratch, false);
	return r;
}

/* 0: it is under way. */
static int ask_carton(struct get *g)
{
	const struct version *version = remote_source_version(options_of(g)->source);
	/* others may find it elsewhere meanwhile */
	uint64_t data = atomic_load(&g->plan->data);
	int r;

	if (!version)
		return -ENETUNREACH;
	g->by_mirror = version->other && !version->gone;
	/* a limit is of the answer of a URL that was asked before */
	if (g->fill)
		dest_limit(g->dest, UINT64_MAX);
	r = data ? ask_data(g, data) : ask_entry(g);
	return r == -EBADMSG && g->by_mirror ? ask_other(g) : r;
}

/* ---- from URLs ---- */

static void urls_done(void *ctx, int result, uint64_t size);

/* 0: it is under way; -ENOENT: there are none. */
static int ask_urls(struct get *g)
{
	const struct plan *p = g->plan;
	const struct object *o = p->object;
	uint64_t size = object_size(o);
	struct fetch f = fetch_of(g);

	if (!plan_has_urls(p))
		return -ENOENT;
	f.what = g->fill ? FETCH_FILE : FETCH_PART;
	f.trust = p->entry ? HTTP_USER : HTTP_LINKS;
	f.urls = p->urls;
	f.n_urls = p->n_urls;
	f.n_by_hash = p->n_by_hash;
	f.states = p->states;
	f.first = p->link ? &p->link->first : NULL;
	f.deadline_ms = g->deadline_ms;
	f.size = g->size;
	f.done = urls_done;
	if (g->fill) {
		f.n = size != OBJECT_NO_SIZE ? size : 0;
		/* what the carton or the chunk index says; what a server has said may be wrong */
		f.max = o->size != OBJECT_NO_SIZE ? o->size : 0;
	}
	return start(g, &f);
}

/* May the carton have the bytes, which the URLs do not? */
static bool carton_may_have(const struct get *g, int error)
{
	return g->plan->entry && error < 0 && g->checked == 0 && error != -ECANCELED &&
	       error != -ESHUTDOWN && error != -ENOMEM && error != -ENOSPC && error != -EDQUOT;
}

static void urls_done(void *ctx, int result, uint64_t size)
{
	struct get *g = ctx;
	struct plan *p = g->plan;

	leave(g, size);
	if (result == -EBADMSG && g->checked == -EBADMSG) {
		result = begin_again(g);
		if (result == 0)
			result = ask_urls(g);
		if (result == 0)
			return;
		if (result == -ENOENT)
			result = p->entry ? ask_carton(g) : -EBADMSG;
	} else if (carton_may_have(g, result)) {
		if (!g->fill)
			plan_drop_mirrors(p, SIZE_MAX);
		result = ask_carton(g);
	} else {
		finish(g, result, &g->in);
		return;
	}
	if (result < 0)
		finish(g, result, &g->in);
}

/* ---- beginning ---- */

/* Does a mirror save anything? Not when the entry was fetched with the container's directory. */
static bool is_cached(const struct get *g)
{
	const struct entry *e = g->plan->entry;

	return e && remote_source_cached(options_of(g)->source, NULL, e->stored, e->header);
}

static int begin(const struct get *g)
{
	if (options_of(g)->fetch)
		return plan_find_urls(g->plan);
	/* who wants a part says which */
	if (g->fill)
		carton_log(CARTON_LOG_ERROR, object_name(g->plan->object),
			   "is not in the cache, and nothing is fetched when offline; run "
			   "cartonctl fetch first");
	return -ENETUNREACH;
}

int get_start(struct get *g)
{
	struct plan *p = g->plan;
	int r = begin(g);

	if (r < 0)
		return r;
	g->checked = 0;
	if (g->fill)
		plan_allow_urls(p);
	/* without verify, what a mirror has would not be compared with anything */
	r = p->entry && (!options_of(g)->verify || is_cached(g)) ? -ENOENT : ask_urls(g);
	if (r == -ENOENT)
		r = p->entry ? ask_carton(g) : -EBADMSG;
	return r;
}

static void size_done(void *ctx, int result, uint64_t size)
{
	struct ingested in = { .size = size };

	finish(ctx, result, &in);
}

int get_start_size(struct get *g)
{
	struct plan *p = g->plan;
	struct fetch f = fetch_of(g);
	int r = begin(g);

	if (r < 0)
		return r;
	f.what = FETCH_SIZE;
	f.trust = HTTP_LINKS;
	f.urls = p->urls;
	f.n_urls = p->n_urls;
	f.n_by_hash = p->n_by_hash;
	f.first = p->link ? &p->link->first : NULL;
	f.deadline_ms = g->deadline_ms;
	f.done = size_done;
	return fetch_start(&f);
}
