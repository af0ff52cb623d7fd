/* SPDX-License-Identifier: Apache-2.0 */
/* The state machine of a fetch: tries of URLs, pauses, the end. */
#include "fetch/fetcher.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/failure.h"
#include "base/file_size.h"
#include "base/sleeper.h"
#include "base/util.h"
#include "fetch/internal.h"

#define MIN_RATE 1024 /* bytes a second; what is slower times out */

#define PROGRESS_MS 100

/* ---- tries and rounds ---- */

static void over(struct fetcher *x, int result)
{
	x->result = result;
	x->phase = FETCH_OVER;
}

static void log_no_room(const struct fetcher *x)
{
	uint64_t size = x->f.n ? x->f.n : (uint64_t)MAX(x->announced, 0), have;
	char shown[256], missing[64] = "";

	have = file_end(x->f.dest);
	/* no disk has room for that: room.h says so */
	if (file_wanted(x->f.dest) >= file_size_limit())
		return;
	if (size > have)
		snprintf(missing, sizeof(missing), ", %llu are missing",
			 (unsigned long long)(size - have));
	carton_log(CARTON_LOG_NOTICE, http_url_redact(x->u->url, shown, sizeof(shown)),
		   "there is no room for it on the disk: stopped after %llu bytes%s; the option "
		   "cache_dir names another disk",
		   (unsigned long long)have, missing);
}

static void log_overloaded(const struct fetcher *x)
{
	char shown[256], when[64] = "later";

	if (x->u->retry_after_s > 0)
		snprintf(when, sizeof(when), "in %ld seconds", x->u->retry_after_s);
	carton_log(CARTON_LOG_ERROR, http_url_redact(x->u->url, shown, sizeof(shown)),
		   "the server was overloaded until the timeout; try again %s", when);
}

/* Is a server bad that the fetch waits for? */
static bool waits(const struct fetcher *x)
{
	for (size_t i = 0; i < x->n_urls; i++)
		if (x->urls[i].away && !x->urls[i].exhausted)
			return true;
	return false;
}

/* All URLs have failed: pauses before the next round, or gives up. */
static void end_round(struct fetcher *x)
{
	const struct fetch_place *place = x->u->place;
	long wait = url_wait(x);

	x->tried = 0;
	x->pause_ms = now_ms() + server_pause(++x->rounds, MAX(wait, 0));
	/* that is until the deadline */
	x->waited += waits(x);
	if (wait >= 0 && x->rounds - x->waited < MAX_FETCH_ATTEMPTS &&
	    x->pause_ms < x->deadline_ms) {
		x->phase = FETCH_PAUSE;
		return;
	}
	if (x->u->error == -EBUSY && !place->mirror)
		log_overloaded(x);
	if (place->trust != HTTP_USER || place->mirror || x->u->error == -EBUSY)
		over(x, url_sum_up(x));
	else if (x->u->error == -EAGAIN)
		over(x, place->version ? -EIO : -EREMOTEIO);
	else
		over(x, x->u->error);
}

/* Sets where the next try goes on. Of FETCH_PART, only its caller knows which bytes are right. */
static void keep_arrived(struct fetcher *x)
{
	x->have = x->f.what == FETCH_FILE && fetch_is_part(x) ? x->arrived : x->settled;
}

static void end_try(struct fetcher *x, int r)
{
	bool again, full;

	transfer_end(x);
	if (r == -EREMCHG) {
		keep_arrived(x);
		x->phase = FETCH_BEGIN;
		return;
	}
	if (r == -EFBIG)
		r = bound_passed(x);
	/* an answer that cannot be decoded; only led() and check() know that bytes are wrong */
	if (r == -EBADMSG && fetch_is_part(x) && x->phase != FETCH_CHECK && !x->final)
		r = -EPROTO;
	full = r == -ENOSPC || r == -EDQUOT;
	/* what the user names is reported by the caller, and a full cache by room.h */
	if (full && x->u->place->trust != HTTP_USER && !file_is_cached(x->f.dest))
		log_no_room(x);
	/* another server may say that the file is shorter, but not that a part is */
	if (x->final || r == 0 || r == -ECANCELED || r == -ESHUTDOWN || r == -ENOMEM ||
	    (full && fetch_is_part(x))) {
		if (r == 0 && x->f.first && !x->u->place->mirror)
			atomic_store(x->f.first, url_index(x) - x->n_mirrors);
		over(x, r);
		return;
	}
	/*
	 * The first bytes may have come from elsewhere: this place is asked for all. Once, since a
	 * try that has begun anew in the middle has kept bytes, too, and they may be from here.
	 */
	if (r == -EBADMSG && x->have > 0 && x->f.what == FETCH_FILE && !x->u->anew) {
		x->u->anew = true;
		x->have = 0;
		x->phase = FETCH_BEGIN;
		return;
	}
	if (r != -EBADMSG)
		keep_arrived(x);
	else
		x->have = x->settled;
	if (x->arrived >= x->best + MIN_FETCH_PROGRESS) {
		x->best = x->arrived;
		x->rounds = x->waited = 0;
	}
	again = url_failed(x, r);
	failure_keep(&x->failure);
	if (r == -EBADMSG && fetch_is_part(x) && (!again || x->f.what == FETCH_PART)) {
		over(x, r);
		return;
	}
	x->phase = FETCH_BEGIN;
	if (!again)
		x->tried++;
	if (!url_next(x) || now_ms() >= x->deadline_ms)
		end_round(x);
}

/* False: the fetch waits in a queue. */
static bool begin_try(struct fetcher *x)
{
	struct url *u = url_ready(x);
	int r = follow_begin(x->f.follow, &x->task);
	int64_t paused;

	/* it may have waited in the queue of another one */
	if (u != x->u)
		conn_give_up(x);
	x->u = u;
	if (!u) {
		over(x, url_sum_up(x));
		return true;
	}
	x->try_deadline_ms = url_deadline(x);
	if (r == 0)
		r = x->f.what == FETCH_SIZE ? size_begin(x) : transfer_begin(x);
	if (r == -EAGAIN && now_ms() < x->deadline_ms)
		return false;
	x->phase = FETCH_TRY;
	paused = server_paused(x->waits_for);
	if (r == -EAGAIN)
		r = conn_waits_why(x);
	if (error_is_outage(r) && now_ms() + paused >= x->deadline_ms)
		x->u->retry_after_s = 1 + paused / 1000;
	if (r < 0)
		end_try(x, r);
	return true;
}

static void step_try(struct fetcher *x)
{
	int64_t now = now_ms();
	int r;

	x->taken = 0;
	r = x->f.what == FETCH_SIZE ? size_step(x) : transfer_step(x);
	if (x->taken > 0) {
		if (x->f.options->fetched)
			atomic_fetch_add(x->f.options->fetched, x->taken);
		if (x->f.arrived)
			x->f.arrived(x->f.arrived_ctx, x->taken);
		if (x->f.settle && x->arrived > x->settled)
			x->settled = x->f.settle(x->f.ctx, x->arrived);
		if (!x->f.deadline_ms)
			x->deadline_ms = MIN(now + x->f.options->timeout_ms,
					     x->deadline_ms + 1 +
						     (int64_t)x->taken * 1000 / MIN_RATE);
	}
	if (r == -EINPROGRESS && now >= transfer_deadline(x)) {
		r = transfer_late(x);
	}
	if (r == 0 && x->f.what != FETCH_SIZE) {
		transfer_end(x);
		x->phase = FETCH_CHECK;
	} else if (r != -EINPROGRESS) {
		end_try(x, r);
	}
}

/* All bytes are there: are they right? */
static int check(struct fetcher *x)
{
	int r = x->f.check ? x->f.check(x->f.ctx, x->u->place) : 0;

	if (r == -EBADMSG && x->u->place->version)
		version_distrust(x->u->place->version);
	/* any other failure is of this machine, such as of its memory */
	x->final = r < 0 && r != -EBADMSG;
	/* none of them is worth keeping */
	if (r == -EBADMSG && x->f.what == FETCH_FILE)
		file_restart(x->f.dest, NULL);
	return r;
}

/* ---- the task ---- */

static void fire(struct cancel_hook *hook)
{
	task_wake(&container_of(hook, struct fetcher, hook)->task);
}

/* When a try has to be looked at, if nothing happens before. */
static int64_t next_wake(const struct fetcher *x)
{
	int64_t when = transfer_deadline(x);

	if (x->hold_ms > now_ms())
		when = MIN(when, x->hold_ms);
	return x->slot_ms ? MIN(when, x->slot_ms) : when;
}

static bool finish(struct fetcher *x)
{
	struct fetch f = x->f;
	uint64_t size = x->arrived;
	int result = x->result;

	transfer_end(x);
	cancel_hook_remove(f.cancel, &x->hook);
	task_finish(&x->task);
	for (size_t i = 0; i < x->n_urls; i++)
		server_unref(x->urls[i].at);
	free(x->urls);
	if (result < 0)
		failure_set(x->failure);
	free(x->failure);
	free(x);
	f.done(f.ctx, result, size);
	return false;
}

static bool step(struct task *t)
{
	struct fetcher *x = container_of(t, struct fetcher, task);

	if (x->phase == FETCH_START) {
		x->phase = FETCH_BEGIN;
		cancel_hook_add(x->f.cancel, &x->hook);
	}
	for (;;) {
		if (cancel_fired(x->f.cancel) && x->phase != FETCH_OVER) {
			transfer_end(x);
			over(x, -ECANCELED);
		}
		switch (x->phase) {
		case FETCH_PAUSE:
			if (now_ms() < x->pause_ms) {
				task_wake_at(t, x->pause_ms);
				return true;
			}
			x->phase = FETCH_BEGIN;
			break;
		case FETCH_START:
		case FETCH_BEGIN:
			if (follow_is_busy(x->f.follow))
				return true;
			if (!begin_try(x)) {
				task_wake_at(t, MIN(x->slot_ms, x->deadline_ms));
				return true;
			}
			break;
		case FETCH_TRY:
			step_try(x);
			if (x->phase != FETCH_TRY)
				break;
			follow_on(x->f.follow, x->arrived, x->all_arrived);
			task_wake_at(t, next_wake(x));
			return true;
		case FETCH_CHECK:
			if (follow_on(x->f.follow, x->arrived, true)) {
				if (follow_is_busy(x->f.follow))
					return true;
				break;
			}
			end_try(x, check(x));
			break;
		case FETCH_OVER:
			if (follow_is_busy(x->f.follow))
				return true;
			return finish(x);
		}
	}
}

int fetch_start(const struct fetch *fetch)
{
	struct fetcher *x = calloc(1, sizeof(*x));

	if (!x)
		return -ENOMEM;
	x->f = *fetch;
	if (urls_init(x) < 0) {
		free(x);
		return -ENOMEM;
	}
	x->have = fetch->have;
	x->led = fetch->n_lead == 0;
	x->settled = fetch->settle ? fetch->have : 0;
	x->first = fetch->first ? atomic_load(fetch->first) : 0;
	x->deadline_ms = fetch->deadline_ms ? fetch->deadline_ms :
					      now_ms() + fetch->options->timeout_ms;
	x->hook.fire = fire;
	x->at_server.task = x->at_route.task = &x->task;
	task_init(&x->task, fetch->options->events, LANE_NET, step);
	task_wake(&x->task);
	return 0;
}

/* ---- waiting for the end ---- */

struct waiter {
	struct sleeper sleeper;
	uint64_t size;
	const struct fetch *fetch;
	atomic_uint_fast64_t came, total; /* bytes; `total` 0: not known */
};

static void wake_waiter(void *ctx, int result, uint64_t size)
{
	struct waiter *w = ctx;

	w->size = size;
	sleeper_wake(&w->sleeper, result);
}

static int waiter_answered(void *ctx, const struct http_response *a)
{
	const struct fetch *f = ((struct waiter *)ctx)->fetch;

	return f->answered(f->ctx, a);
}

static void waiter_refused(void *ctx, const struct http_response *a)
{
	const struct fetch *f = ((struct waiter *)ctx)->fetch;

	f->refused(f->ctx, a);
}

static int waiter_checked(void *ctx, struct fetch_place *from)
{
	const struct fetch *f = ((struct waiter *)ctx)->fetch;

	return f->check(f->ctx, from);
}

static void waiter_arrived(void *ctx, uint64_t bytes)
{
	atomic_fetch_add(&((struct waiter *)ctx)->came, bytes);
}

static void waiter_announced(void *ctx, uint64_t bytes)
{
	struct waiter *w = ctx;

	atomic_store(&w->total, atomic_load(&w->came) + bytes);
}

bool fetch_show(const struct fetch_options *o, uint64_t done, uint64_t total)
{
	if (!pthread_equal(o->opener, pthread_self()) || !o->progress)
		return false;
	o->progress(o->progress_ctx, done, total);
	return true;
}

/*
 * Shows how far this fetch is if it fetches a whole file; else, how many bytes have come since the
 * open began.
 */
static bool show(struct waiter *w)
{
	const struct fetch_options *o = w->fetch->options;

	return w->fetch->whole ? fetch_show(o, atomic_load(&w->came), atomic_load(&w->total)) :
				 fetch_show(o, o->fetched ? atomic_load(o->fetched) : 0, 0);
}

int fetch_run(const struct fetch *fetch, uint64_t *ret_size)
{
	struct waiter w = { .fetch = fetch };
	struct fetch f = *fetch;
	int r;

	f.done = wake_waiter;
	f.answered = fetch->answered ? waiter_answered : NULL;
	f.refused = fetch->refused ? waiter_refused : NULL;
	f.check = fetch->check ? waiter_checked : NULL;
	f.arrived = waiter_arrived;
	f.announced = waiter_announced;
	f.ctx = f.arrived_ctx = &w;
	sleeper_init(&w.sleeper);
	r = fetch_start(&f);
	if (r == 0) {
		/* the fetch has the token, and always ends */
		while (show(&w) && !sleeper_wait_until(&w.sleeper, now_ms() + PROGRESS_MS))
			;
		sleeper_wait(&w.sleeper, NULL);
		r = w.sleeper.result;
		if (r == 0)
			*ret_size = w.size;
	}
	sleeper_finish(&w.sleeper);
	return r;
}
