/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/cancel.h"
#include "base/util.h"

struct counter {
	struct cancel_hook hook;
	struct cancel *remove_from; /* not NULL: the hook removes itself */
	atomic_int calls;
};

static void count(struct cancel_hook *hook)
{
	struct counter *c = container_of(hook, struct counter, hook);

	if (c->remove_from)
		cancel_hook_remove(c->remove_from, hook);
	atomic_fetch_add(&c->calls, 1);
}

static void test_fires_once(void **state)
{
	struct counter a = { .hook.fire = count }, b = a, late = a;
	struct cancel c;

	(void)state;
	assert_false(cancel_fired(NULL));
	cancel_init(&c, NULL);
	cancel_hook_add(&c, &a.hook);
	cancel_hook_add(&c, &b.hook);
	cancel_hook_remove(&c, &b.hook);
	assert_false(cancel_fired(&c));
	cancel_fire(&c);
	cancel_fire(&c);
	assert_true(cancel_fired(&c));
	assert_int_equal(a.calls, 1);
	assert_int_equal(b.calls, 0);
	cancel_hook_add(&c, &late.hook);
	assert_int_equal(late.calls, 1);
	cancel_hook_remove(&c, &late.hook);
	cancel_hook_remove(&c, &a.hook);
	cancel_finish(&c);
}

static void test_null_token(void **state)
{
	struct counter a = { .hook.fire = count };

	(void)state;
	cancel_hook_add(NULL, &a.hook);
	cancel_hook_remove(NULL, &a.hook);
	assert_int_equal(a.calls, 0);
	assert_int_equal(cancel_sleep(NULL, 1), 0);
}

static void test_hook_removes_itself(void **state)
{
	struct cancel c;
	struct counter a = { .hook.fire = count, .remove_from = &c };

	(void)state;
	cancel_init(&c, NULL);
	cancel_hook_add(&c, &a.hook);
	cancel_fire(&c);
	assert_int_equal(a.calls, 1);
	cancel_finish(&c);
}

static void test_parent_fires_children(void **state)
{
	struct counter a = { .hook.fire = count };
	struct cancel top, mid, low, gone, late;

	(void)state;
	cancel_init(&top, NULL);
	cancel_init(&mid, &top);
	cancel_init(&low, &mid);
	cancel_init(&gone, &top);
	cancel_finish(&gone);
	cancel_hook_add(&low, &a.hook);
	cancel_fire(&top);
	assert_true(cancel_fired(&mid));
	assert_true(cancel_fired(&low));
	assert_int_equal(a.calls, 1);
	cancel_init(&late, &mid);
	assert_true(cancel_fired(&late));
	cancel_finish(&late);
	cancel_finish(&low);
	cancel_finish(&mid);
	cancel_finish(&top);
}

static void test_child_leaves_parent_alone(void **state)
{
	struct cancel top, low;

	(void)state;
	cancel_init(&top, NULL);
	cancel_init(&low, &top);
	cancel_fire(&low);
	assert_false(cancel_fired(&top));
	cancel_finish(&low);
	cancel_finish(&top);
}

/* ---- with threads ---- */

static void *fire(void *token)
{
	cancel_fire(token);
	return NULL;
}

static void test_sleep(void **state)
{
	struct cancel c;
	pthread_t thread;
	int64_t begin = now_ms();

	(void)state;
	cancel_init(&c, NULL);
	assert_int_equal(cancel_sleep(&c, 5), 0);
	assert_true(now_ms() - begin >= 5);
	assert_int_equal(pthread_create(&thread, NULL, fire, &c), 0);
	assert_int_equal(cancel_sleep(&c, INT32_MAX), -ECANCELED);
	assert_int_equal(cancel_sleep(&c, INT32_MAX), -ECANCELED);
	pthread_join(thread, NULL);
	cancel_finish(&c);
}

struct slow {
	struct cancel_hook hook;
	sem_t entered, go;
	atomic_bool left;
};

static void block(struct cancel_hook *hook)
{
	struct slow *s = container_of(hook, struct slow, hook);

	sem_post(&s->entered);
	sem_wait(&s->go);
	atomic_store(&s->left, true);
}

struct remover {
	struct cancel *cancel;
	struct slow *slow;
};

static void *remove_slow(void *arg)
{
	struct remover *r = arg;

	cancel_hook_remove(r->cancel, &r->slow->hook);
	/* the hook has left, else what it uses could go away under it */
	return atomic_load(&r->slow->left) ? r : NULL;
}

static void test_remove_waits_for_the_hook(void **state)
{
	struct slow s = { .hook.fire = block };
	struct cancel c;
	struct remover remover = { &c, &s };
	pthread_t firing, removing;
	void *left;

	(void)state;
	sem_init(&s.entered, 0, 0);
	sem_init(&s.go, 0, 0);
	cancel_init(&c, NULL);
	cancel_hook_add(&c, &s.hook);
	assert_int_equal(pthread_create(&firing, NULL, fire, &c), 0);
	sem_wait(&s.entered);
	assert_int_equal(pthread_create(&removing, NULL, remove_slow, &remover), 0);
	sem_post(&s.go);
	pthread_join(removing, &left);
	pthread_join(firing, NULL);
	assert_non_null(left);
	cancel_finish(&c);
	sem_destroy(&s.entered);
	sem_destroy(&s.go);
}

/* Children come and go, and hooks with them, while the parent fires. */
static void *come_and_go(void *parent)
{
	size_t fired = 0;

	while (!fired) {
		struct counter a = { .hook.fire = count };
		struct cancel c;

		cancel_init(&c, parent);
		cancel_hook_add(&c, &a.hook);
		cancel_hook_remove(&c, &a.hook);
		fired = (size_t)a.calls;
		cancel_finish(&c);
	}
	return NULL;
}

static void test_race(void **state)
{
	(void)state;
	for (int round = 0; round < 200; round++) {
		pthread_t threads[4];
		struct cancel top;

		cancel_init(&top, NULL);
		for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
			assert_int_equal(pthread_create(&threads[i], NULL, come_and_go, &top), 0);
		cancel_fire(&top);
		for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
			pthread_join(threads[i], NULL);
		cancel_finish(&top);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fires_once),
		cmocka_unit_test(test_null_token),
		cmocka_unit_test(test_hook_removes_itself),
		cmocka_unit_test(test_parent_fires_children),
		cmocka_unit_test(test_child_leaves_parent_alone),
		cmocka_unit_test(test_sleep),
		cmocka_unit_test(test_remove_waits_for_the_hook),
		cmocka_unit_test(test_race),
	};

	return cmocka_run_group_tests_name("cancel", tests, NULL, NULL);
}
