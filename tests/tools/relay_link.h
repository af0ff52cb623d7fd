/* SPDX-License-Identifier: Apache-2.0 */
/*
 * relay_link.h: what relay.c computes: the bytes on their way in each direction of each
 * connection, when they leave, and when they arrive. One thread. Times are ns of CLOCK_MONOTONIC.
 *
 * All is computed by the times at which things should happen, not by those at which this process
 * gets to them: a busy machine makes single bytes late, and not the whole transfer.
 */
#ifndef RELAY_LINK_H
#define RELAY_LINK_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define SECOND 1000000000ull
#define NEVER UINT64_MAX
#define SEGMENT 1448	      /* bytes, as in TCP on Ethernet */
#define QUANTUM (16u << 10)   /* what a connection sends in its turn */
#define QUEUE 1000000u	      /* ns: how long what is sent may wait for the link */
#define LEAST_WINDOW 524288.0 /* bytes that a connection may have on the way without --slow-start */

/* Bytes on their way, or the end of them. Kept until its acknowledgement is back. */
struct segment {
	struct segment *next;
	uint64_t due; /* when it arrives, in ns of CLOCK_MONOTONIC as all times here */
	uint64_t acked;
	uint32_t len, done;
	bool end, reset; /* there is nothing behind it; the connection broke */
	char data[];
};

/* A socket, and what is known of it: edges of epoll set these, EAGAIN clears them. */
struct end {
	int fd;
	bool readable, writable;
};

/* One direction of a connection. */
struct flow {
	struct end *from, *to;
	struct segment *first, *unsent, *last; /* unsent: the first that `to` has not got all of */
	uint64_t opens, window, on_way, peak;  /* bytes; peak: the most that were on the way */
	uint64_t turn;			       /* of its line, which it had last */
	bool ended, over, was_blocked; /* nothing more to read; `to` has got all; `to` was full */
};

struct conn {
	struct conn *next;
	struct end client, target;
	struct flow up, down;
	bool broken;
};

/* One direction of the link. */
struct line {
	uint64_t free_at, bytes, turns;
	bool wanted; /* somebody would have sent more: the line has not been idle since */
};

static uint64_t rtt, rate, widest; /* ns, bytes a second (0: any), bytes */
static bool slow_start;
static struct line lines[2]; /* up, down */
static struct conn *conns;

static void die(const char *what)
{
	fprintf(stderr, "relay: %s: %s\n", what, strerror(errno));
	exit(1);
}

static uint64_t max(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static uint64_t min(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* ---- what is on the way ---- */

/* What a segment takes of the window. Also a short one takes memory. */
static uint64_t weight(const struct segment *s)
{
	return max(s->len, sizeof(*s));
}

/* Appends a segment, which leaves at `at`. */
static void flow_add(struct flow *f, struct segment *s, uint64_t at)
{
	s->due = max(at, f->opens) + rtt / 2;
	if (f->last)
		f->last->next = s;
	else
		f->first = s;
	f->last = s;
	if (!f->unsent)
		f->unsent = s;
	f->on_way += weight(s);
	f->peak = max(f->peak, f->on_way);
}

static struct segment *segment_new(const char *data, size_t len)
{
	struct segment *s = calloc(1, sizeof(*s) + len);

	if (!s)
		die("memory");
	s->len = (uint32_t)len;
	if (len)
		memcpy(s->data, data, len);
	return s;
}

/* Frees what is acknowledged; in slow start, the window grows by as much, if it was made use of. */
static void flow_settle(struct flow *f, uint64_t now)
{
	struct segment *s;

	while ((s = f->first) && s != f->unsent && s->acked <= now) {
		if (f->window < 2 * f->peak)
			f->window = min(widest, f->window + s->len);
		f->on_way -= weight(s);
		f->first = s->next;
		if (!f->first)
			f->last = NULL;
		free(s);
	}
}

/* The other side learns how it ended. */
static void flow_end(struct conn *c, struct flow *f, const struct segment *s)
{
	static const struct linger hard = { 1, 0 };

	f->over = true;
	if (!s->reset) {
		shutdown(f->to->fd, SHUT_WR);
		return;
	}
	setsockopt(f->to->fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
	c->broken = true;
}

/* Writes what it can of a segment; whether that was all. */
static bool segment_write(struct conn *c, struct flow *f, struct segment *s)
{
	while (s->done < s->len) {
		ssize_t n = send(f->to->fd, s->data + s->done, s->len - s->done, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			f->to->writable = false;
			f->was_blocked = true;
			c->broken = c->broken || errno != EAGAIN;
			return false;
		}
		s->done += (uint32_t)n;
	}
	return true;
}

/* Delivers what is due. Only a reader that is slow acknowledges later than that. */
static void flow_deliver(struct conn *c, struct flow *f, uint64_t now)
{
	struct segment *s;

	while ((s = f->unsent) && s->due <= now && f->to->writable && !c->broken) {
		if (!segment_write(c, f, s))
			return;
		s->acked = (f->was_blocked ? now : s->due) + rtt / 2;
		if (s->end)
			flow_end(c, f, s);
		f->unsent = s->next;
	}
	f->was_blocked = false;
}

/* ---- the link ---- */

static bool flow_wants(const struct flow *f)
{
	return f->from->readable && !f->ended && f->on_way < f->window;
}

/* Notes the end of what a flow reads, which the other side gets after all before it. */
static void flow_finish(struct flow *f, uint64_t at, bool reset)
{
	struct segment *s = segment_new(NULL, 0);

	s->end = f->ended = true;
	s->reset = reset;
	flow_add(f, s, at);
}

/* Sends a quantum of a flow that wants to. */
static void flow_send(struct flow *f, struct line *l, uint64_t now)
{
	static char data[QUANTUM];
	size_t most = min(QUANTUM, f->window - f->on_way);
	ssize_t n = recv(f->from->fd, data, most, 0);

	if (n < 0 && errno == EINTR)
		return;
	l->free_at = l->wanted ? l->free_at : max(l->free_at, now);
	if (n > 0) {
		l->free_at += rate ? (uint64_t)n * SECOND / rate : 0;
		l->bytes += (uint64_t)n;
		flow_add(f, segment_new(data, (size_t)n), l->free_at);
		return;
	}
	f->from->readable = false;
	if (n == 0 || errno != EAGAIN)
		flow_finish(f, max(now, l->free_at), n < 0);
}

static struct flow *flow_of(struct conn *c, int way)
{
	return way ? &c->down : &c->up;
}

/* The flow that wants to send and whose last turn is the longest ago; NULL: none. */
static struct flow *line_next(int way, uint64_t now)
{
	struct flow *next = NULL;

	for (struct conn *c = conns; c; c = c->next) {
		struct flow *f = flow_of(c, way);

		if (!c->broken && now >= f->opens && flow_wants(f) &&
		    (!next || f->turn < next->turn))
			next = f;
	}
	return next;
}

/* Lets all that want to send take turns, until the line is taken for a while. */
static void line_fill(int way, uint64_t now)
{
	struct line *l = &lines[way];
	struct flow *f;

	while ((f = line_next(way, now))) {
		if (rate && l->free_at >= now + QUEUE) {
			l->wanted = true;
			return;
		}
		f->turn = ++l->turns;
		flow_send(f, l, now);
	}
	l->wanted = false;
}

#endif
