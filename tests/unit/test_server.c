/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The load of a server, by a clock of our own: clients that send one request after the other to
 * servers that are away, overloaded or limited.
 */
#include "base/event.h"
#include "base/util.h"

/* The clock is ours, so pauses are those of programs; and who is woken is a client. */
static int64_t clock_ms;
static void wake_client(struct task *t);
#define now_ms() clock_ms
#define task_wake wake_client
#include "base/pace.c"
#include "fetch/queue.c"
#include "fetch/server.c"
#include "fetch/servers.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#define URL "http://host/file"
#define CLIENTS 8
#define RTT_MS 20
#define MINUTE_MS 60000

struct client {
	struct task task;
	struct queue_slot slot;
	bool woken, sent;
	int64_t when_ms; /* it asks again, or has its answer */
	int result;	 /* why it went away; 0: it did not */
};

static void wake_client(struct task *t)
{
	container_of(t, struct client, task)->woken = true;
}

struct world {
	struct servers *all;
	struct server *server;
	struct client clients[CLIENTS];
	size_t n;
	int64_t deadline_ms;
	long retry_after_s;
	/* the status of a request that comes now, or -errno */
	int (*answer)(const struct world *w);
	int64_t well_ms; /* for answer() */
	/* what came of it */
	unsigned sent, served, refused;
	unsigned asking, most; /* without an answer: now, and the most */
	int64_t served_ms;     /* the first */
};

static void begin(struct world *w, int (*answer)(const struct world *), size_t n)
{
	*w = (struct world){ .answer = answer, .n = n, .deadline_ms = INT64_MAX / 2 };
	clock_ms = 1000000;
	assert_int_equal(servers_new(8, &w->all), 0);
	w->server = server_get(w->all, URL);
	for (size_t i = 0; i < n; i++) {
		w->clients[i].slot = (struct queue_slot){ .task = &w->clients[i].task,
							  .patience_ms = INT64_MAX };
		w->clients[i].woken = true;
	}
}

/* Nothing is under way any more. */
static void end(struct world *w)
{
	for (size_t i = 0; i < w->n; i++) {
		server_give_up(w->server, &w->clients[i].slot);
		if (!w->clients[i].sent)
			continue;
		server_heard(w->server);
		server_leave(w->server, false);
	}
	server_unref(w->server);
	servers_free(w->all);
}

static void send_one(struct world *w, struct client *c)
{
	int64_t when = INT64_MAX;
	int r = server_enter(w->server, &c->slot, w->deadline_ms, &when);

	c->when_ms = when;
	if (r == -EAGAIN)
		return;
	c->result = r;
	c->sent = r == 0;
	if (r < 0)
		return;
	c->when_ms = clock_ms + RTT_MS;
	w->sent++;
	w->asking++;
	w->most = MAX(w->most, w->asking);
}

static void get_answer(struct world *w, struct client *c)
{
	int status = w->answer(w);

	if (status < 0)
		server_failed(w->server, status);
	else
		server_answered(w->server, URL, status, w->retry_after_s);
	if (status == 200 && w->served++ == 0)
		w->served_ms = clock_ms;
	w->refused += status != 200;
	w->asking--;
	server_heard(w->server);
	server_leave(w->server, status == 200);
	c->sent = false;
	c->woken = true;
}

static void run(struct world *w, int64_t ms)
{
	for (int64_t until = clock_ms + ms; clock_ms < until; clock_ms++) {
		for (size_t i = 0; i < w->n; i++) {
			struct client *c = &w->clients[i];

			if (c->sent && clock_ms >= c->when_ms) {
				get_answer(w, c);
			} else if (!c->sent && c->result == 0 &&
				   (c->woken || clock_ms >= c->when_ms)) {
				c->woken = false;
				send_one(w, c);
			}
		}
	}
}

/* ---- away ---- */

static int refused_until(const struct world *w)
{
	return clock_ms < w->well_ms ? -ECONNREFUSED : 200;
}

static int sick_until(const struct world *w)
{
	return clock_ms < w->well_ms ? 503 : 200;
}

static int gateway_until(const struct world *w)
{
	return clock_ms < w->well_ms ? 502 : 200;
}

static int (*const outages[])(const struct world *) = { refused_until, sick_until, gateway_until };

/* One request at a time while it lasts, and not many; then soon all that there were before. */
static void test_outage(void **state)
{
	static const int64_t lasts_ms[] = { 2000, 5000, 15000, 45000 };
	struct world w;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(outages) * ARRAY_SIZE(lasts_ms); i++) {
		int64_t lasts = lasts_ms[i / ARRAY_SIZE(outages)];
		unsigned full;

		begin(&w, outages[i % ARRAY_SIZE(outages)], CLIENTS);
		w.well_ms = clock_ms;
		run(&w, 1000);
		full = w.served;
		assert_int_equal(w.most, CLIENTS);
		w.well_ms = clock_ms + lasts;
		run(&w, 2 * RTT_MS);
		w.sent = w.served = w.most = 0;
		run(&w, w.well_ms - clock_ms);
		assert_int_equal(w.served, 0);
		assert_int_equal(w.most, 1);
		assert_in_range(w.sent, lasts / 2000, 10 + lasts / 500);
		/* one was sent just before the end, and the next waits for a pause */
		run(&w, RTT_MS + MAX(lasts / 8, 1000));
		assert_in_range(w.served_ms - w.well_ms, 0, RTT_MS + MAX(lasts / 8, 1000));
		run(&w, 1000);
		w.served = w.most = 0;
		run(&w, 1000);
		assert_int_equal(w.most, CLIENTS);
		assert_in_range(w.served, full * 9 / 10, full * 11 / 10);
		end(&w);
	}
}

/* Who does not wait as long as others gets the error of what others have asked. */
static void test_patience(void **state)
{
	struct world w;

	(void)state;
	begin(&w, refused_until, CLIENTS);
	w.well_ms = INT64_MAX;
	for (size_t i = 0; i < CLIENTS / 2; i++)
		w.clients[i].slot.patience_ms = 5000;
	run(&w, 4000);
	for (size_t i = 0; i < CLIENTS; i++)
		assert_int_equal(w.clients[i].result, 0);
	run(&w, 3000);
	for (size_t i = 0; i < CLIENTS; i++)
		assert_int_equal(w.clients[i].result, i < CLIENTS / 2 ? -ECONNREFUSED : 0);
	end(&w);
}

/* Who has another place to ask stays for one more request, whoever sends it. */
static void test_elsewhere(void **state)
{
	struct world w;
	unsigned gone = 0;

	(void)state;
	begin(&w, refused_until, CLIENTS);
	w.well_ms = INT64_MAX;
	for (size_t i = 1; i < CLIENTS; i++)
		w.clients[i].slot.elsewhere = true;
	run(&w, 1000);
	for (size_t i = 0; i < CLIENTS; i++)
		gone += w.clients[i].result == -ECONNREFUSED;
	assert_int_equal(gone, CLIENTS - 1);
	assert_int_equal(w.clients[0].result, 0);
	end(&w);
}

/* Nothing is sent before the server said; who would be told after its deadline is told at once. */
static void test_retry_after(void **state)
{
	struct world w;

	(void)state;
	begin(&w, sick_until, 2);
	w.retry_after_s = 30;
	w.well_ms = clock_ms + 1000;
	run(&w, 29900);
	assert_int_equal(w.sent, 2);
	run(&w, 1000);
	assert_true(w.served > 2);
	end(&w);

	begin(&w, sick_until, 2);
	w.retry_after_s = 30;
	w.well_ms = INT64_MAX;
	w.deadline_ms = clock_ms + 20000;
	run(&w, 1000);
	assert_int_equal(w.sent, 2);
	assert_int_equal(w.clients[0].result, -EBUSY);
	assert_int_equal(w.clients[1].result, -EBUSY);
	end(&w);
}

/* A request that is given up without an answer holds up nobody. */
static void test_request_that_is_given_up(void **state)
{
	struct world w;
	size_t asks;

	(void)state;
	begin(&w, refused_until, 2);
	w.well_ms = INT64_MAX;
	run(&w, RTT_MS + 1);
	assert_int_equal(w.asking, 0);
	while (w.asking == 0)
		run(&w, 1);
	asks = w.clients[1].sent;
	assert_true(w.clients[asks].sent);
	server_heard(w.server);
	server_leave(w.server, false);
	w.asking = 0;
	w.clients[asks].sent = false;
	w.clients[asks].result = -ECANCELED;
	run(&w, 1);
	assert_int_equal(w.asking, 1);
	end(&w);
}

/* ---- limited ---- */

/* One request in so many ms. */
static int slow(const struct world *w)
{
	static int64_t last_ms;

	if (clock_ms - last_ms < w->well_ms && clock_ms >= last_ms)
		return 503;
	last_ms = clock_ms;
	return 200;
}

/* Two at once. */
static int narrow(const struct world *w)
{
	return w->asking > 2 ? 429 : 200;
}

/* It gets most of what it can serve, with few requests in vain. */
static void test_limits(void **state)
{
	struct world w;

	(void)state;
	begin(&w, slow, CLIENTS);
	w.well_ms = 50;
	run(&w, MINUTE_MS);
	assert_in_range(w.served, MINUTE_MS / 50 / 2, MINUTE_MS / 50);
	assert_in_range(w.refused, 1, w.served / 5);
	end(&w);

	begin(&w, narrow, CLIENTS);
	run(&w, MINUTE_MS);
	assert_in_range(w.served, MINUTE_MS / RTT_MS / 2, MINUTE_MS * 2 / RTT_MS);
	assert_in_range(w.refused, 1, w.served / 5);
	end(&w);
}

static int by_turns(const struct world *w)
{
	return (w->served + w->refused) % 2 ? 503 : 200;
}

static int one_in_three(const struct world *w)
{
	return (w->served + w->refused) % 3 == 2 ? 503 : 200;
}

static int nine_in_ten(const struct world *w)
{
	return (w->served + w->refused) % 10 ? 503 : 200;
}

/*
 * One that refuses a part of all requests, however far apart they are, is asked several times a
 * second; one that refuses most of them is not. What it has shown does not count once it has a
 * limit.
 */
static void test_part(void **state)
{
	int (*const parts[])(const struct world *) = { by_turns, one_in_three };
	struct world w;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		begin(&w, parts[i], CLIENTS);
		run(&w, MINUTE_MS);
		assert_in_range(w.served, 3 * MINUTE_MS / 1000, 20 * MINUTE_MS / 1000);
		assert_in_range(w.refused, 1, w.served + 1);
		w.answer = slow;
		w.well_ms = 500;
		run(&w, MINUTE_MS);
		w.served = w.refused = 0;
		run(&w, MINUTE_MS);
		assert_in_range(w.served, MINUTE_MS / 500 / 2, MINUTE_MS / 500);
		assert_in_range(w.refused, 1, w.served / 5);
		end(&w);
	}

	begin(&w, nine_in_ten, CLIENTS);
	run(&w, MINUTE_MS);
	assert_in_range(w.sent, w.served, 2 * MINUTE_MS / 1000);
	end(&w);
}

/* A long answer is served until its end, so who waits for its turn sees that there will be one. */
static void test_long_answer(void **state)
{
	struct world w;
	int64_t when;

	(void)state;
	begin(&w, refused_until, 2);
	assert_int_equal(server_served(w.server), 0);
	send_one(&w, &w.clients[0]);
	assert_int_equal(server_served(w.server), 0);
	server_answered(w.server, URL, 200, -1);
	server_heard(w.server);
	clock_ms += MINUTE_MS;
	assert_int_equal(server_served(w.server), clock_ms);
	/* not so while new requests fail */
	server_failed(w.server, -ECONNREFUSED);
	assert_int_equal(server_served(w.server), clock_ms - MINUTE_MS);
	server_answered(w.server, URL, 200, -1);
	clock_ms += RTT_MS;
	when = clock_ms;
	server_leave(w.server, true);
	w.clients[0].sent = false;
	clock_ms += MINUTE_MS;
	assert_int_equal(server_served(w.server), when);
	end(&w);
}

/* A fetch whose last connection ends while it waits for a further one is no longer held up. */
static void test_patience_that_ends(void **state)
{
	struct client clients[10] = { 0 };
	struct queue_slot slots[10];
	struct world w;
	int64_t when;

	(void)state;
	begin(&w, refused_until, 0);
	for (size_t i = 0; i < 10; i++) {
		slots[i] = (struct queue_slot){ .task = &clients[i].task, .background = true };
		assert_int_equal(server_enter(w.server, &slots[i], INT64_MAX / 2, &when),
				 i < 8 ? 0 : -EAGAIN);
	}
	slots[9].background = false;
	assert_int_equal(server_enter(w.server, &slots[9], INT64_MAX / 2, &when), 0);
	assert_int_equal(server_enter(w.server, &slots[8], INT64_MAX / 2, &when), -EAGAIN);
	server_give_up(w.server, &slots[8]);
	for (size_t i = 0; i < 9; i++) {
		server_heard(w.server);
		server_leave(w.server, false);
	}
	end(&w);
}

/* ---- now and then ---- */

static bool is_off(void)
{
	return clock_ms / 200 % 2;
}

static int refused_now_and_then(const struct world *w)
{
	(void)w;
	return is_off() ? -ECONNREFUSED : 200;
}

static int sick_now_and_then(const struct world *w)
{
	(void)w;
	return is_off() ? 503 : 200;
}

/* One that is away half of the time gives about half; what looks like a limit is never given up. */
static void test_now_and_then(void **state)
{
	const unsigned all = CLIENTS * MINUTE_MS / RTT_MS;
	struct world w;

	(void)state;
	begin(&w, refused_now_and_then, CLIENTS);
	run(&w, MINUTE_MS);
	assert_in_range(w.served, all / 8, all);
	end(&w);

	begin(&w, sick_now_and_then, CLIENTS);
	run(&w, MINUTE_MS);
	assert_in_range(w.served, MINUTE_MS / 1000, all);
	end(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_outage),
		cmocka_unit_test(test_patience),
		cmocka_unit_test(test_elsewhere),
		cmocka_unit_test(test_retry_after),
		cmocka_unit_test(test_request_that_is_given_up),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_part),
		cmocka_unit_test(test_long_answer),
		cmocka_unit_test(test_patience_that_ends),
		cmocka_unit_test(test_now_and_then),
	};

	carton_log_set(NULL, NULL);
	return cmocka_run_group_tests_name("server", tests, NULL, NULL);
}
