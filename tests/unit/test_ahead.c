/* SPDX-License-Identifier: Apache-2.0 */
/* How far ahead of its readers an object is fetched. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/util.h"
#include "content/ahead.h"

#define CHUNK (256 * KIB)
#define SIZE 100000 /* chunks of the object, where its end does not matter */

/* Busy servers: requests are answered after `answer_ms`, at `rate` bytes a second in all. */
static void learn(struct ahead *a, uint64_t answer_ms, uint64_t rate)
{
	uint64_t now = 100000000;

	server_rates_init(a->server);
	for (int i = 0; i < 100; i++) {
		rates_answered(a->server, answer_ms * 1000);
		now += MAX(MIB * 1000000 / rate, answer_ms * 1000);
		rates_came(a->server, MAX(MIB, rate / 1000 * answer_ms), now);
	}
	a->server->connections = 8;
}

/* Asks for all that the window has; returns how many chunks lie ahead of the reader. */
static uint64_t ask_all(struct ahead *a, struct ahead_stream *s, unsigned *ret_requests)
{
	struct ahead_part part;
	unsigned n = 0;

	while (n < 8 && ahead_next(a, s, n, UINT64_MAX, &part)) {
		assert_int_equal(part.first, s->asked);
		assert_in_range((part.end - part.first) * CHUNK, CHUNK, 8 * MIB);
		s->asked = part.end;
		n++;
	}
	if (ret_requests)
		*ret_requests = n;
	return s->asked - s->next;
}

static struct ahead_stream *read_to(struct ahead *a, uint64_t from, uint64_t to)
{
	struct ahead_stream *s = NULL;

	for (uint64_t i = from; i < to; i++)
		s = ahead_read(a, i, i + 1);
	return s;
}

/* A server of 100 MiB/s, a round trip of 50 ms away. */
static void begin_at_50_ms(struct ahead *a, struct server_rates *server)
{
	ahead_init(a, CHUNK, server);
	learn(a, 50, 100 * MIB);
}

static void test_random(void **state)
{
	struct server_rates server;
	struct ahead a;

	(void)state;
	begin_at_50_ms(&a, &server);
	srandom(1);
	for (int i = 0; i < 1000; i++) {
		uint64_t at = (uint64_t)random() % 1000000;
		struct ahead_stream *s = ahead_read(&a, at, at + 1);

		assert_int_equal(ask_all(&a, s, NULL), 0);
	}
	/* nor is who reads every other chunk in order */
	for (uint64_t i = 0; i < 100; i += 2)
		assert_int_equal(ask_all(&a, ahead_read(&a, i, i + 1), NULL), 0);
}

/* The window is no longer than twice what was read, and as long as the servers need. */
static void test_window(void **state)
{
	struct server_rates server;
	struct ahead a;
	struct ahead_stream *s;
	unsigned requests;
	uint64_t got;

	(void)state;
	server_rates_init(&server);
	server.connections = 1;
	ahead_init(&a, CHUNK, &server);
	s = read_to(&a, 0, 1);
	assert_int_equal(ask_all(&a, s, NULL), 0);
	s = read_to(&a, 1, 2);
	assert_int_equal(ask_all(&a, s, NULL), 4);
	learn(&a, 50, 100 * MIB);
	for (uint64_t i = 2; i < 400; i++) {
		s = ahead_read(&a, i, i + 1);
		got = ask_all(&a, s, &requests);
		assert_in_range(got, 0, 2 * (i + 1));
	}
	/* eight times what comes in 50 ms */
	assert_in_range(got * CHUNK, 32 * MIB, 40 * MIB);
	/* a server that is near needs little */
	ahead_init(&a, CHUNK, &server);
	learn(&a, 1, 100 * MIB);
	s = read_to(&a, 0, 400);
	assert_in_range(ask_all(&a, s, NULL) * CHUNK, 1, 4 * MIB);
	/* and no servers more than that */
	ahead_init(&a, CHUNK, &server);
	learn(&a, 60000, 1000 * MIB);
	s = read_to(&a, 0, 4000);
	assert_in_range(ask_all(&a, s, &requests) * CHUNK, 48 * MIB, 64 * MIB);
	assert_int_equal(requests, 8);
}

/*
 * One request at a time, until a connection is worth it; further ones begin with a short request,
 * each behind the last, where the reader comes last, but no further than the end of the object.
 */
static void test_connections(void **state)
{
	struct server_rates server;
	struct ahead a;
	struct ahead_stream *s;
	struct ahead_part part;
	uint64_t far = 0;

	(void)state;
	begin_at_50_ms(&a, &server);
	server.connections = 1;
	s = read_to(&a, 0, 15);
	assert_true(ahead_next(&a, s, 0, SIZE, &part));
	assert_int_equal(part.first, 15);
	assert_false(ahead_next(&a, s, 1, SIZE, &part));
	s = read_to(&a, 15, 16);
	for (int i = 0; i < 3; i++, far = part.end) {
		assert_true(ahead_next(&a, s, 1, SIZE, &part));
		assert_int_equal((part.end - part.first) * CHUNK, 512 * KIB);
		if (far > 0)
			assert_int_equal(part.first, far);
		else
			assert_in_range((part.first - s->next) * CHUNK, 32 * MIB, 40 * MIB);
		s->far = part.end;
	}
	/* none is left behind these: the next one begins where it is needed first */
	assert_true(ahead_next(&a, s, 1, s->far + 2, &part));
	assert_int_equal(part.first, s->far);
	s->far += 2;
	assert_true(ahead_next(&a, s, 1, s->far, &part));
	assert_int_equal(part.first, s->asked);
	assert_int_equal(part.end, part.first + 2);
	/* as many connections as it may have */
	server.connections = 2;
	assert_false(ahead_next(&a, s, 2, SIZE, &part));
	assert_true(ahead_next(&a, s, 1, SIZE, &part));
	assert_int_equal(part.first, s->asked);
	s = read_to(&a, 16, 48);
	assert_true(ahead_next(&a, s, 2, SIZE, &part));
	assert_true(part.first > s->asked);
}

/* A request ends with its object; one of a few chunks has no far end. */
static void test_end_of_object(void **state)
{
	struct server_rates server;
	struct ahead a;
	struct ahead_stream *s;
	struct ahead_part part;

	(void)state;
	begin_at_50_ms(&a, &server);
	a.more = true;
	s = read_to(&a, 0, 100);
	for (uint64_t n = 100; n < 110; n++) {
		bool more = ahead_next(&a, s, 0, n, &part);

		assert_int_equal(more, n > 100);
		if (more)
			assert_int_equal(part.end, n);
		server.connections = 1;
		assert_int_equal(ahead_next(&a, s, 1, n, &part), more);
		if (more)
			assert_true(part.first >= 100 && part.first < part.end && part.end <= n);
		server.connections = 8;
	}
	/* of a single chunk */
	s = read_to(&a, 1000, 1040);
	s->asked = s->next = 0;
	server.connections = 1;
	assert_true(ahead_next(&a, s, 1, 1, &part));
	assert_int_equal(part.first, 0);
	assert_int_equal(part.end, 1);
}

/* No connection begins where its reader would soon wait for it, and for nothing else. */
static void test_no_far_end(void **state)
{
	struct server_rates server;
	struct ahead a;
	struct ahead_stream *s;
	struct ahead_part part;

	(void)state;
	begin_at_50_ms(&a, &server);
	server.connections = 1;
	s = read_to(&a, 0, 100);
	assert_true(ahead_next(&a, s, 1, 1000, &part));
	assert_false(ahead_next(&a, s, 1, 120, &part));
	a.more = true;
	assert_true(ahead_next(&a, s, 1, 120, &part));
	assert_int_equal(part.end, 120);
}

/* What is left of a window is had from the next object, until that is read. */
static void test_continue(void **state)
{
	struct server_rates server;
	struct ahead a, b;
	struct ahead_stream *s;
	uint64_t ahead;

	(void)state;
	begin_at_50_ms(&a, &server);
	ahead_init(&b, CHUNK, &server);
	s = read_to(&a, 0, 1000);
	s->asked = 1010;
	ahead = ahead_beyond(&a, s, 1010);
	assert_in_range(ahead, 30 * MIB, 40 * MIB);
	s = ahead_continue(&b, s, CHUNK, 20 * MIB);
	assert_in_range(ask_all(&b, s, NULL) * CHUNK, 12 * MIB, 20 * MIB);
	s = ahead_continue(&b, s, CHUNK, MIB);
	assert_in_range(ask_all(&b, s, NULL) * CHUNK, 12 * MIB, 20 * MIB);
	assert_ptr_equal(read_to(&b, 0, 1), s);
	assert_in_range(ask_all(&b, s, NULL) * CHUNK, 32 * MIB, 40 * MIB);
}

/* Each of many readers in one file has a window; reads come in any order near its front. */
static void test_streams(void **state)
{
	struct server_rates server;
	struct ahead a;
	struct ahead_stream *s[AHEAD_STREAMS];

	(void)state;
	begin_at_50_ms(&a, &server);
	for (size_t k = 0; k < AHEAD_STREAMS; k++)
		read_to(&a, k * 1000, k * 1000 + 2);
	for (uint64_t i = 2; i < 64; i += 2)
		for (size_t k = 0; k < AHEAD_STREAMS; k++) {
			/* the second before the first */
			ahead_read(&a, k * 1000 + i + 1, k * 1000 + i + 2);
			s[k] = ahead_read(&a, k * 1000 + i, k * 1000 + i + 1);
		}
	for (size_t k = 0; k < AHEAD_STREAMS; k++) {
		assert_int_equal(s[k]->next, k * 1000 + 64);
		assert_in_range(ask_all(&a, s[k], NULL), 1, 256);
	}
	/* one more takes the place of the one that was not read for the longest */
	ahead_read(&a, 99999, 100000);
	assert_int_equal(s[0]->next, 100000);
	assert_int_equal(s[1]->next, 1064);
}

/* How far out of order the reads of a stream may be grows with it. */
static void test_slack(void **state)
{
	struct server_rates server;
	struct ahead a;
	struct ahead_stream *s;

	(void)state;
	server_rates_init(&server);
	ahead_init(&a, CHUNK, &server);
	s = read_to(&a, 0, 2);
	assert_ptr_not_equal(ahead_read(&a, 4, 5), s);
	assert_ptr_equal(ahead_read(&a, 3, 4), s);
	s = read_to(&a, 1000, 1008);
	assert_ptr_not_equal(ahead_read(&a, 1013, 1014), s);
	assert_ptr_equal(ahead_read(&a, 1012, 1013), s);
}

/* Chunks of 16 MiB: at least one request ahead, and not more than the window. */
static void test_large_chunks(void **state)
{
	struct server_rates server;
	struct ahead a;
	struct ahead_stream *s;
	struct ahead_part part;

	(void)state;
	ahead_init(&a, 16 * MIB, &server);
	learn(&a, 50, 100 * MIB);
	s = read_to(&a, 0, 8);
	assert_true(ahead_next(&a, s, 0, SIZE, &part));
	assert_int_equal(part.first, 8);
	assert_int_equal(part.end, 9);
	s->asked = 12;
	assert_false(ahead_next(&a, s, 0, SIZE, &part));
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random),	     cmocka_unit_test(test_window),
		cmocka_unit_test(test_connections),  cmocka_unit_test(test_end_of_object),
		cmocka_unit_test(test_streams),	     cmocka_unit_test(test_slack),
		cmocka_unit_test(test_large_chunks), cmocka_unit_test(test_no_far_end),
		cmocka_unit_test(test_continue),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
