/* SPDX-License-Identifier: Apache-2.0 */
#include "content/run.h"

#include <stdlib.h>

#include "base/util.h"

/* bytes of a small entry, with its header, and of its content; no plan_is_direct() */
#define SMALL (1 * MIB)
#define SMALL_SIZE (4 * MIB)
#define MIN_WINDOW (64 * KIB)
#define MIN_REQUEST (512 * KIB)
#define REQUESTS 8 /* of a window at once */
/* so many entries may be left out in order, and so many may be between two that follow */
#define SLACK 2
#define MAX_WALK 4096
/* until the server was measured */
#define FIRST_GAP (64 * KIB)

bool run_takes(const struct entry *e)
{
	return e->kind == ENTRY_FILE && entry_end(e) - e->header <= SMALL && e->size <= SMALL_SIZE;
}

/* ---- the order of the archive ---- */

static int compare_offsets(const void *a, const void *b)
{
	const struct entry *x = *(const struct entry *const *)a;
	const struct entry *y = *(const struct entry *const *)b;

	return (x->header > y->header) - (x->header < y->header);
}

static int make_order(struct run *r)
{
	const struct container *c = r->container;
	size_t n = 0;

	for (size_t i = 0; i < c->n_entries; i++)
		n += run_takes(&c->entries[i]);
	/* as long as the carton is open */
	if (!budget_try(c->budget, n * sizeof(*r->order) + c->n_entries / 8))
		return -ENOMEM;
	r->seen = calloc(c->n_entries / 8 + 1, 1);
	r->order = r->seen ? calloc(n + 1, sizeof(*r->order)) : NULL;
	if (!r->order) {
		free(r->seen);
		r->seen = NULL;
		budget_give(c->budget, n * sizeof(*r->order) + c->n_entries / 8);
		return -ENOMEM;
	}
	for (size_t i = 0; i < c->n_entries; i++)
		if (run_takes(&c->entries[i]))
			r->order[r->n++] = &c->entries[i];
	qsort(r->order, r->n, sizeof(*r->order), compare_offsets);
	return 0;
}

/* The index of an entry in the order. */
static size_t find(const struct run *r, const struct entry *e)
{
	size_t low = 0, high = r->n;

	while (high - low > 1) {
		size_t mid = low + (high - low) / 2;

		if (r->order[mid]->header <= e->header)
			low = mid;
		else
			high = mid;
	}
	return low;
}

void run_finish(struct run *r)
{
	free(r->order);
	free(r->seen);
}

/* ---- what was seen ---- */

bool run_has_seen(const struct run *r, const struct entry *e)
{
	size_t i = (size_t)(e - r->container->entries);

	return r->seen[i / 8] & (1 << (i % 8));
}

void run_see(struct run *r, const struct entry *e)
{
	size_t i = (size_t)(e - r->container->entries);

	r->seen[i / 8] |= (uint8_t)(1 << (i % 8));
}

/* It was seen, and is asked for again: what was kept had to give way, so all begins anew. */
static void forget(struct run *r)
{
	memset(r->seen, 0, r->container->n_entries / 8 + 1);
	memset(r->streams, 0, sizeof(r->streams));
}

/* ---- streams ---- */

/* Were all small entries but a few between two of the archive seen? */
static bool follows_in_archive(const struct run *r, size_t a, size_t b)
{
	size_t left = 0;

	if (MAX(a, b) - MIN(a, b) > MAX_WALK)
		return false;
	for (size_t i = MIN(a, b) + 1; i < MAX(a, b) && left <= SLACK; i++)
		left += !run_has_seen(r, r->order[i]);
	return left <= SLACK;
}

/* The same in the order of the names; what is no small file does not count. */
static bool follows_by_name(const struct run *r, const struct entry *a, const struct entry *b)
{
	const struct entry *low = MIN(a, b), *high = MAX(a, b);
	size_t left = 0;

	if (high - low > MAX_WALK)
		return false;
	for (const struct entry *e = low + 1; e < high && left <= SLACK; e++)
		left += run_takes(e) && !run_has_seen(r, e);
	return left <= SLACK;
}

enum { BEFORE = 1, AFTER = 2 };

/* On which sides of `at` the stream that goes on there goes on; 0: it does not. */
static unsigned follows(const struct run *r, const struct run_stream *s, size_t at)
{
	if (!s->used)
		return 0;
	if (follows_in_archive(r, s->at, at))
		return at < s->at ? BEFORE : AFTER;
	return follows_by_name(r, r->order[s->at], r->order[at]) ? BEFORE | AFTER : 0;
}

int run_follow(struct run *r, const struct entry *e, struct run_window *ret)
{
	struct run_stream *s = NULL, *oldest = &r->streams[0];
	int error = r->order ? 0 : make_order(r);
	unsigned sides = 0;
	size_t at;

	if (error < 0)
		return error;
	at = find(r, e);
	if (run_has_seen(r, e))
		forget(r);
	for (size_t k = 0; k < RUN_STREAMS && !s; k++) {
		sides = follows(r, &r->streams[k], at);
		if (sides)
			s = &r->streams[k];
		if (r->streams[k].used < oldest->used)
			oldest = &r->streams[k];
	}
	if (!s) {
		s = oldest;
		s->window = 0;
	} else {
		s->window = MAX(2 * s->window, MAX(MIN_WINDOW, 4 * (entry_end(e) - e->header)));
		/* who waits for one of them has to wait for no more than half a second */
		s->window = MIN(s->window, run_most(r, 500));
	}
	s->at = at;
	s->used = ++r->asked;
	run_see(r, e);
	*ret = (struct run_window){
		.at = at,
		.before = sides & BEFORE ? s->window : 0,
		.after = sides & AFTER ? s->window : 0,
	};
	return 0;
}

void run_around(const struct run *r, const struct run_window *w, size_t *ret_low, size_t *ret_high)
{
	size_t at = w->at;
	uint64_t from = r->order[at]->header, to = entry_end(r->order[at]);
	size_t low = at, high = at + 1;

	while (low > 0 && at - low < MAX_WALK && to - r->order[low - 1]->header <= w->before)
		low--;
	while (high < r->n && high - at < MAX_WALK && entry_end(r->order[high]) - from <= w->after)
		high++;
	*ret_low = low;
	*ret_high = high;
}

/* ---- the server ---- */

uint64_t run_request(uint64_t window)
{
	return window <= MAX_SPAN ? MAX_SPAN : MIN(MAX(window / REQUESTS, MIN_REQUEST), MAX_SPAN);
}

uint64_t run_most(const struct run *r, uint64_t ms)
{
	uint64_t most = r->server->rate / 1000 * ms;

	return r->server->rate ? MIN(MAX(most, MIN_WINDOW), MAX_RUN_WINDOW) : MAX_RUN_WINDOW;
}

uint64_t run_gap(const struct run *r)
{
	uint64_t gap = r->server->rate / 1000 * r->server->answer_us / 1000;

	return r->server->rate ? MIN(gap, MAX_SPAN) : FIRST_GAP;
}
