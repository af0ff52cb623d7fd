/* SPDX-License-Identifier: Apache-2.0 */
#include "content/ahead.h"

#include "base/util.h"

/* readers are out of order by so many bytes: the kernel reads ahead in parallel */
#define SLACK (512 * KIB)
#define MIN_WINDOW (2 * MIB)
#define MAX_WINDOW (64 * MIB)
/* a stream that none of so many reads was of does not count */
#define ACTIVE 256
/* bytes of one request: a window is at least two of them */
#define MAX_REQUEST (8 * MIB)
#define REQUESTS 2
/* after so many slower answers the shortest time is too short by an eighth */
#define SLOWER 64
/* a rate is of at least so long */
#define RATE_US 200000

void ahead_init(struct ahead *a, uint64_t unit)
{
	*a = (struct ahead){ .unit = unit };
}

/* ---- streams ---- */

/* The second chunk of a stream has to follow the first; then order is not so strict. */
static bool goes_on(const struct ahead *a, const struct ahead_stream *s, uint64_t i)
{
	uint64_t slack = s->run < 2 ? 0 : SLACK / a->unit;

	return s->run > 0 && i + 1 + slack >= s->next && i <= s->next + slack;
}

struct ahead_stream *ahead_read(struct ahead *a, uint64_t i, uint64_t end)
{
	struct ahead_stream *s = NULL, *oldest = &a->streams[0];

	for (size_t k = 0; k < AHEAD_STREAMS && !s; k++) {
		if (goes_on(a, &a->streams[k], i))
			s = &a->streams[k];
		if (a->streams[k].used < oldest->used)
			oldest = &a->streams[k];
	}
	if (!s) {
		s = oldest;
		*s = (struct ahead_stream){ .next = i, .asked = i };
	}
	if (end > s->next) {
		s->run += end - s->next;
		s->next = end;
	}
	s->asked = MAX(s->asked, s->next);
	s->used = ++a->reads;
	return s;
}

/* ---- windows ---- */

/* How many streams share the link now. */
static uint64_t active(const struct ahead *a)
{
	uint64_t n = 0;

	for (size_t k = 0; k < AHEAD_STREAMS; k++)
		n += a->streams[k].run >= 2 && a->reads - a->streams[k].used < ACTIVE;
	return MAX(n, 1);
}

/* In bytes. */
static uint64_t window(const struct ahead *a, const struct ahead_stream *s)
{
	uint64_t run = s->run * a->unit, need;

	if (s->run < 2)
		return 0;
	need = 2 * (a->rate / 1000 * a->answer_us / 1000) / active(a);
	need = MAX(need, MAX(MIN_WINDOW, 2 * a->unit));
	return MIN(MIN(run, need), MAX_WINDOW);
}

bool ahead_next(const struct ahead *a, const struct ahead_stream *s, uint64_t *ret_first,
		uint64_t *ret_end)
{
	uint64_t most = window(a, s), size = MIN(most / REQUESTS, MAX_REQUEST);
	uint64_t end = s->next + most / a->unit;

	size = MAX(size / a->unit, 1);
	/* not little by little */
	if (s->asked + size > end)
		return false;
	*ret_first = s->asked;
	*ret_end = s->asked + size;
	return true;
}

/* ---- the link ---- */

static void learn_answer(struct ahead *a, uint64_t us)
{
	if (!a->answer_us || us < a->answer_us) {
		a->answer_us = us;
		a->slower = 0;
	} else if (++a->slower == SLOWER) {
		a->answer_us += a->answer_us / 8;
		a->slower = 0;
	}
}

static void learn_rate(struct ahead *a, const struct ahead_request *r)
{
	uint64_t us, rate;

	if (!a->since_us)
		a->since_us = r->began_us;
	a->came += r->bytes;
	us = MAX(r->ended_us - a->since_us, 1);
	rate = a->came * 1000000 / us;
	/* it may have been faster; slower only when that lasts */
	a->rate = us < RATE_US ? MAX(a->rate, rate) : rate;
	if (us < RATE_US && !r->last)
		return;
	a->came = 0;
	a->since_us = r->last ? 0 : r->ended_us;
}

void ahead_learn(struct ahead *a, const struct ahead_request *r)
{
	learn_answer(a, MAX(r->answered_us - r->began_us, 1));
	learn_rate(a, r);
}

void ahead_failed(struct ahead *a, uint64_t i, bool last)
{
	for (size_t k = 0; k < AHEAD_STREAMS; k++) {
		struct ahead_stream *s = &a->streams[k];

		if (s->next <= i && i < s->asked)
			s->asked = i;
	}
	if (last)
		a->since_us = a->came = 0;
}
