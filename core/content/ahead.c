/* SPDX-License-Identifier: Apache-2.0 */
#include "content/ahead.h"

#include "base/util.h"

/* readers are out of order by so many bytes at most: the kernel reads ahead in parallel */
#define SLACK (1 * MIB)
#define MIN_WINDOW (2 * MIB)
#define MAX_WINDOW (64 * MIB)
/* a window is at most so many times what was read */
#define GROWTH 2
/* so many times the bytes that come while a request waits for its answer keep a server busy */
#define TIMES 8
/* a stream that none of so many reads was of does not count */
#define ACTIVE 256
/* bytes of one request; all windows together are at least so many of them */
#define MAX_REQUEST (8 * MIB)
#define REQUESTS 4
/* bytes of the first request of a connection, which is slow */
#define FIRST_REQUEST (512 * KIB)
/* a stream may need one more connection for each so many bytes that were read, the first earlier */
#define FOR_EACH (8 * MIB)
#define EARLY (4 * MIB)
/* until it was measured so often, it is taken for at least so many bytes a second */
#define NEW 16
#define FAST (96 * MIB)

void ahead_init(struct ahead *a, uint64_t unit, struct server_rates *server)
{
	*a = (struct ahead){ .unit = unit, .server = server };
}

/* ---- streams ---- */

/*
 * The second chunk of a stream has to follow the first; then order is less strict, as the stream
 * gets longer: else who reads here and there soon has a stream everywhere.
 */
static bool goes_on(const struct ahead *a, const struct ahead_stream *s, uint64_t i)
{
	uint64_t slack = s->run < 2 ? 0 : MIN(SLACK / a->unit, s->run / 2);

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
	s->most = 0;
	s->left = false;
	return s;
}

void ahead_leave(struct ahead *a)
{
	for (size_t k = 0; k < AHEAD_STREAMS; k++)
		a->streams[k].left = true;
}

/* ---- windows ---- */

/* How many streams share the server now. */
static uint64_t active(const struct ahead *a)
{
	uint64_t n = 0;

	for (size_t k = 0; k < AHEAD_STREAMS; k++)
		n += a->streams[k].run >= 2 && a->reads - a->streams[k].used < ACTIVE;
	return MAX(n, 1);
}

/* In bytes: what a stream needs of the server. */
static uint64_t needed(const struct ahead *a)
{
	/* a server that is new may be fast */
	uint64_t rate = MAX(a->server->rate, a->server->rates < NEW ? FAST : 0);
	uint64_t bytes = TIMES * (rate / 1000 * a->server->answer_us / 1000) / active(a);

	return MIN(MAX(bytes, MAX(MIN_WINDOW, 2 * a->unit)), MAX_WINDOW);
}

static uint64_t window(const struct ahead *a, const struct ahead_stream *s)
{
	return s->run < 2 ? 0 : MIN(GROWTH * s->run * a->unit, needed(a));
}

/* As many of `n` bytes as the part of a window in this object has, if it is read in another. */
static uint64_t within(const struct ahead_stream *s, uint64_t n)
{
	return s->most ? MIN(n, s->most) : n;
}

/* Returns the chunk behind the last one of a stream's window. */
static uint64_t window_end(const struct ahead *a, const struct ahead_stream *s)
{
	return s->next + within(s, window(a, s)) / a->unit;
}

uint64_t ahead_beyond(const struct ahead *a, const struct ahead_stream *s, uint64_t end)
{
	uint64_t to = window_end(a, s);

	return s->asked < end || to <= end ? 0 : (to - end) * a->unit;
}

struct ahead_stream *ahead_continue(struct ahead *a, const struct ahead_stream *s, uint64_t unit,
				    uint64_t most)
{
	struct ahead_stream *own = ahead_read(a, 0, 0);

	own->run = MAX(own->run, s->run * unit / a->unit);
	own->most = most;
	return own;
}

struct ahead_stream *ahead_find(struct ahead *a, uint64_t asked)
{
	for (size_t k = 0; k < AHEAD_STREAMS; k++)
		if (a->streams[k].run > 0 && a->streams[k].asked == asked)
			return &a->streams[k];
	return NULL;
}

/* How many connections have been worth it by now. */
static uint64_t worth(const struct ahead *a, const struct ahead_stream *s)
{
	return 1 + (s->run * a->unit + EARLY) / FOR_EACH;
}

bool ahead_is_long(const struct ahead *a, const struct ahead_stream *s)
{
	return !s->left && worth(a, s) > 1;
}

/* Has enough of the stream been read for one more connection to its server? */
static bool may_connect(const struct ahead *a, const struct ahead_stream *s)
{
	return a->server->connections < worth(a, s);
}

/*
 * Sets *ret to the first request of a further connection: where the reader comes last. False: the
 * reader would wait for that slow request, as nothing is left to request in front of it.
 */
static bool use_far_end(const struct ahead *a, const struct ahead_stream *s, uint64_t n,
			struct ahead_part *ret)
{
	uint64_t size = MAX(FIRST_REQUEST / a->unit, 1);
	uint64_t last = n - MIN(size, n);
	uint64_t far = s->next + within(s, needed(a)) / a->unit;

	if (s->far <= last)
		ret->first = MAX(ret->first, MIN(MAX(far, s->far), last));
	ret->end = MIN(ret->first + size, n);
	return far <= last || a->more;
}

bool ahead_next(const struct ahead *a, const struct ahead_stream *s, unsigned busy, uint64_t n,
		struct ahead_part *ret)
{
	uint64_t end = window_end(a, s), size = window(a, s);
	unsigned connections = a->server->connections;
	bool further = busy > 0 && busy >= connections, is_long = ahead_is_long(a, s);

	if (busy > 0 && (!is_long || (further && !may_connect(a, s))))
		return false;
	if (is_long && connections > 1)
		size /= MAX(REQUESTS / active(a), 1);
	size = MIN(size, connections > 0 ? MAX_REQUEST : FIRST_REQUEST);
	size = MAX(size / a->unit, MAX(FIRST_REQUEST / a->unit, 1));
	/* not little by little */
	if (s->asked >= n || s->asked + size > end)
		return false;
	*ret = (struct ahead_part){ s->asked, MIN(s->asked + size, n) };
	return !further || use_far_end(a, s, n, ret);
}

void ahead_failed(struct ahead *a, uint64_t i)
{
	for (size_t k = 0; k < AHEAD_STREAMS; k++) {
		struct ahead_stream *s = &a->streams[k];

		if (s->next <= i && i < s->asked)
			s->asked = i;
	}
}
