/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tasks: no wake is lost, no two steps overlap, timers fire in order and end when they are told to.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/event.h"
#include "base/util.h"
#include "../must.h"

struct env {
	struct workers *workers;
	struct events *events;
};

struct counter {
	struct task task;
	atomic_uint inside, overlaps, steps, wanted, seen;
	int64_t at_ms; /* of the last step */
	atomic_bool over;
};

static int setup(void **state)
{
	struct env *e = must(calloc(1, sizeof(*e)));

	assert_int_equal(workers_new(&e->workers), 0);
	assert_int_equal(events_new(e->workers, &e->events), 0);
	*state = e;
	return 0;
}

static int teardown(void **state)
{
	struct env *e = *state;

	events_free(e->events);
	workers_free(e->workers);
	free(e);
	return 0;
}

static void until(atomic_bool *flag)
{
	while (!atomic_load(flag))
		sched_yield();
}

/* Sees all that was wanted before its wake; ends at 0xffff. */
static bool count_step(struct task *t)
{
	struct counter *c = container_of(t, struct counter, task);
	bool over;

	atomic_fetch_add(&c->overlaps, atomic_fetch_add(&c->inside, 1));
	atomic_fetch_add(&c->steps, 1);
	c->at_ms = now_ms();
	atomic_store(&c->seen, atomic_load(&c->wanted));
	over = atomic_load(&c->seen) == 0xffff;
	if (over)
		task_finish(t);
	atomic_fetch_sub(&c->inside, 1);
	if (over)
		atomic_store(&c->over, true);
	return !over;
}

static void *wake_often(void *ctx)
{
	struct counter *c = ctx;

	for (int i = 0; i < 10000; i++) {
		atomic_fetch_add(&c->wanted, 1);
		task_wake(&c->task);
	}
	return NULL;
}

static void test_wakes(void **state)
{
	struct env *e = *state;
	struct counter c = { 0 };
	pthread_t threads[4];

	task_init(&c.task, e->events, LANE_NET, count_step);
	for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, wake_often, &c), 0);
	for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
		pthread_join(threads[i], NULL);
	while (atomic_load(&c.seen) != 40000)
		sched_yield();
	atomic_store(&c.wanted, 0xffff);
	task_wake(&c.task);
	until(&c.over);
	assert_int_equal(c.overlaps, 0);
	assert_in_range(c.steps, 2, 40001);
}

/* A wake from inside a step is another step. */
static bool again_step(struct task *t)
{
	struct counter *c = container_of(t, struct counter, task);

	if (atomic_fetch_add(&c->steps, 1) < 100) {
		task_wake(t);
		return true;
	}
	task_finish(t);
	atomic_store(&c->over, true);
	return false;
}

static void test_again(void **state)
{
	struct env *e = *state;
	struct counter c = { 0 };

	task_init(&c.task, e->events, LANE_NET, again_step);
	task_wake(&c.task);
	until(&c.over);
	assert_int_equal(c.steps, 101);
}

static void test_timers(void **state)
{
	static const int delays[] = { 30, 10, 50, 20, 40, 20 };
	struct counter c[ARRAY_SIZE(delays)] = { 0 };
	struct env *e = *state;
	int64_t start = now_ms();

	for (size_t i = 0; i < ARRAY_SIZE(c); i++) {
		atomic_store(&c[i].wanted, 0xffff);
		task_init(&c[i].task, e->events, LANE_NET, count_step);
		task_wake_at(&c[i].task, start + 100000);
	}
	/* an earlier time counts, a later one does not; each fires once and not before its time */
	for (size_t i = 0; i < ARRAY_SIZE(c); i++) {
		task_wake_at(&c[i].task, start + delays[i]);
		task_wake_at(&c[i].task, start + 90000);
	}
	for (size_t i = 0; i < ARRAY_SIZE(c); i++) {
		until(&c[i].over);
		assert_true(c[i].at_ms >= start + delays[i]);
		assert_int_equal(c[i].steps, 1);
	}
	assert_true(now_ms() < start + 90000);
}

static void test_end(void **state)
{
	struct env *e = *state;
	struct counter stopped = { 0 }, other = { .wanted = 0xffff };

	task_init(&stopped.task, e->events, LANE_NET, count_step);
	task_init(&other.task, e->events, LANE_NET, count_step);
	task_wake_at(&stopped.task, now_ms() + 20);
	task_wake_at(&other.task, now_ms() + 40);
	task_finish(&stopped.task);
	until(&other.over);
	assert_int_equal(stopped.steps, 0);
	/* one that is set when all ends never fires */
	task_wake_at(&stopped.task, now_ms() + 60000);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_wakes),
		TEST(test_again),
		TEST(test_timers),
		TEST(test_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
