/* SPDX-License-Identifier: Apache-2.0 */
#include "content/ahead.h"

#include "base/util.h"

/* readers are out of order by so many bytes: the kernel reads ahead in parallel */
#define SLACK (512 * KIB)
#define MIN_WINDOW (2 * MIB)
#define MAX_WINDOW (64 * MIB)
/* a window is at most what was read, and of what is behind that many bytes so many times more */
#define PROOF (1 * MIB)
#define GROWTH 4
/* a stream that none of so many reads was of does not count */
#define ACTIVE 256
/* who has read less than that has one request at a time */
#define WIDE (8 * MIB)
/* bytes of one request; all windows together are at least so many of them */
#define MAX_REQUEST (8 * MIB)
#define REQUESTS 3
/* bytes of the first request of a connection, which is slow */
#define FIRST_REQUEST (512 * KIB)
/* after so many slower answers the shortest time is too short by an eighth */
#define SLOWER 64
/* a rate is of at least so long */
#define RATE_US 20000
/* until it was measured so often, it is taken for at least so many bytes a second */
#define NEW 16
#define FAST (96 * MIB)

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
	uint64_t run = s->run * a->unit, need = 0;
	uint64_t most = run <= PROOF ? run : GROWTH * run - (GROWTH - 1) * PROOF;

	if (s->run < 2)
		return 0;
	/* a link that is new may be fast */
	if (a->answer_us)
		need = 3 * (MAX(a->rate, a->rates < NEW ? FAST : 0) / 1000 * a->answer_us / 1000) /
		       active(a);
	need = MAX(need, MAX(MIN_WINDOW, 2 * a->unit));
	return MIN(MIN(most, need), MAX_WINDOW);
}

uint64_t ahead_beyond(const struct ahead *a, const struct ahead_stream *s, uint64_t end)
{
	uint64_t to = s->next + window(a, s) / a->unit;

	return s->asked < end || to <= end ? 0 : (to - end) * a->unit;
}

struct ahead_stream *ahead_continue(struct ahead *a, const struct ahead *before,
				    const struct ahead_stream *s)
{
	struct ahead_stream *own = ahead_read(a, 0, 0);

	if (!a->answer_us) {
		a->answer_us = before->answer_us;
		a->rate = before->rate;
		a->rates = before->rates;
		a->connections = before->connections;
	}
	own->run = MAX(own->run, s->run * before->unit / a->unit);
	return own;
}

struct ahead_stream *ahead_find(struct ahead *a, uint64_t asked)
{
	for (size_t k = 0; k < AHEAD_STREAMS; k++)
		if (a->streams[k].run > 0 && a->streams[k].asked == asked)
			return &a->streams[k];
	return NULL;
}

bool ahead_may_connect(const struct ahead *a, const struct ahead_stream *s)
{
	return s->run * a->unit >= WIDE;
}

bool ahead_next(const struct ahead *a, const struct ahead_stream *s, unsigned busy,
		uint64_t *ret_first, uint64_t *ret_end)
{
	uint64_t most = window(a, s), end = s->next + most / a->unit, size = most;

	if (!ahead_may_connect(a, s) && busy > 0)
		return false;
	if (ahead_may_connect(a, s))
		size /= MAX(REQUESTS / active(a), 1);
	size = MIN(size, busy < a->connections ? MAX_REQUEST : FIRST_REQUEST);
	size = MAX(size / a->unit, 1);
	/* not little by little */
	if (s->asked + size > end)
		return false;
	*ret_first = s->asked;
	*ret_end = s->asked + size;
	return true;
}

/* ---- the link ---- */

void ahead_answered(struct ahead *a, uint64_t us)
{
	if (!a->answer_us || us < a->answer_us) {
		a->answer_us = us;
		a->slower = 0;
	} else if (++a->slower == SLOWER) {
		a->answer_us += a->answer_us / 8;
		a->slower = 0;
	}
}

void ahead_came(struct ahead *a, uint64_t bytes, uint64_t now_us)
{
	uint64_t us = now_us - a->since_us, rate;

	/* what came before the first moment took longer than is known */
	if (!a->since_us) {
		a->since_us = now_us;
		return;
	}
	a->came += bytes;
	if (us < MAX(RATE_US, a->answer_us))
		return;
	rate = a->came * 1000000 / us;
	a->rates++;
	/* slower only when that lasts */
	a->rate = rate > a->rate ? rate : a->rate - (a->rate - rate) / 8;
	a->came = 0;
	a->since_us = now_us;
}

void ahead_failed(struct ahead *a, uint64_t i)
{
	for (size_t k = 0; k < AHEAD_STREAMS; k++) {
		struct ahead_stream *s = &a->streams[k];

		if (s->next <= i && i < s->asked)
			s->asked = i;
	}
}

void ahead_rest(struct ahead *a)
{
	a->since_us = a->came = 0;
}
