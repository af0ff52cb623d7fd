/* SPDX-License-Identifier: Apache-2.0 */
/* What is made of other objects: it waits for them with its thread, and so does nobody else. */
#include "content/derived.h"
#include "object_help.h"

#define CROWD 60 /* more than a lane has threads */

/* An object that is made of another one. */
struct part {
	struct object *of, *object;
	struct waiter waiter;
};

static int derive(void *ctx, struct fill *m)
{
	struct part *p = ctx;
	int r = object_get_wait(p->of, &m->waits);

	if (r < 0)
		return r;
	object_put(p->of);
	m->bytes = (struct bytes){ .kind = BYTES_ENTRY };
	return 0;
}

static void part_add(struct box *b, struct part *p, struct object *of)
{
	p->of = of;
	waiter_init(&p->waiter);
	assert_int_equal(object_add_derived(b->store, "part", 0, derive, p, &p->object), 0);
}

static int derive_nothing(void *ctx, struct fill *m)
{
	(void)ctx;
	m->bytes = (struct bytes){ .kind = BYTES_ENTRY };
	return 0;
}

/* Another view can be made, whoever waits. */
static void others_are_made(struct box *b)
{
	struct object *o;

	assert_int_equal(object_add_derived(b->store, "other", 0, derive_nothing, NULL, &o), 0);
	assert_int_equal(get(o), 0);
	object_put(o);
}

/*
 * A box whose gate is shut, and a crowd that waits: each for one that is derived itself, and waits
 * for the item.
 */
static struct box *crowd_begin(struct part outer[CROWD], struct part inner[CROWD])
{
	struct box *b = box_new();

	box_add_made(b, 100000, 1, METHOD_STORED);
	box_start(b, NULL, true);
	box_gate(b, true);
	for (size_t i = 0; i < CROWD; i++) {
		part_add(b, &inner[i], b->items[0].object);
		part_add(b, &outer[i], inner[i].object);
		assert_int_equal(object_get(outer[i].object, &outer[i].waiter.wait), -EINPROGRESS);
	}
	return b;
}

/* Waits until so many threads wait for an object. */
static void wait_for_waiting(struct object *o, unsigned n)
{
	struct object_progress p = { 0 };

	while (object_progress(o, &p) ? p.waiting != n : n > 0)
		sched_yield();
}

static void test_nested_crowd(void **state)
{
	struct part outer[CROWD], inner[CROWD];
	struct box *b = crowd_begin(outer, inner);

	(void)state;
	wait_for_waiting(b->items[0].object, CROWD);
	others_are_made(b);
	box_gate(b, false);
	for (size_t i = 0; i < CROWD; i++) {
		assert_int_equal(waiter_wait(&outer[i].waiter), 0);
		object_put(outer[i].object);
	}
	box_free(b);
}

/* Nobody waits for it any more: all that waits on its behalf ends, while the gate is still shut. */
static void test_nobody_waits(void **state)
{
	struct part outer[CROWD], inner[CROWD];
	struct box *b = crowd_begin(outer, inner);

	(void)state;
	wait_for_waiting(b->items[0].object, CROWD);
	for (size_t i = 1; i < CROWD; i++)
		assert_true(object_wait_cancel(&outer[i].waiter.wait));
	wait_for_waiting(b->items[0].object, 1);
	assert_int_equal(outer[0].waiter.calls, 0);
	assert_true(object_wait_cancel(&outer[0].waiter.wait));
	wait_for_waiting(b->items[0].object, 0);
	/* who comes then begins anew */
	assert_int_equal(object_get(outer[0].object, &outer[0].waiter.wait), -EINPROGRESS);
	box_gate(b, false);
	assert_int_equal(waiter_wait(&outer[0].waiter), 0);
	object_put(outer[0].object);
	box_free(b);
}

static void test_stop(void **state)
{
	struct part outer[CROWD], inner[CROWD];
	struct box *b = crowd_begin(outer, inner);

	(void)state;
	wait_for_waiting(b->items[0].object, CROWD);
	object_store_stop(b->store);
	for (size_t i = 0; i < CROWD; i++)
		assert_int_equal(waiter_wait(&outer[i].waiter), -ENOTCONN);
	box_free(b);
}

/* ---- deadlines ---- */

static int work_on(void *ctx, struct fill *m)
{
	int64_t end = now_ms() + *(int64_t *)ctx;

	while (now_ms() < end && cancel_sleep(&m->waits.cancel, 10) == 0)
		waits_progress(&m->waits, 1000);
	m->bytes = (struct bytes){ .kind = BYTES_ENTRY };
	return cancel_fired(&m->waits.cancel) ? -ECANCELED : 0;
}

static int hang(void *ctx, struct fill *m)
{
	(void)ctx;
	while (cancel_sleep(&m->waits.cancel, 1000) == 0)
		;
	return -ECANCELED;
}

/* Bytes that come for what it is made of move its deadline on, too; silence does not. */
static void test_deadlines(void **state)
{
	int64_t work_ms = 1500;
	struct object *busy, *silent;
	struct part inner, outer, hopeless;
	struct box *b = box_new();

	(void)state;
	b->timeout_ms = 100;
	box_start(b, NULL, true);
	assert_int_equal(object_add_derived(b->store, "busy", 0, work_on, &work_ms, &busy), 0);
	assert_int_equal(object_add_derived(b->store, "silent", 0, hang, NULL, &silent), 0);
	part_add(b, &inner, busy);
	part_add(b, &outer, inner.object);
	part_add(b, &hopeless, silent);
	assert_int_equal(get(outer.object), 0);
	object_put(outer.object);
	assert_int_equal(get(hopeless.object), -ETIMEDOUT);
	wait_for_waiting(silent, 0);
	box_free(b);
}

/* Something that is made in pieces of `step` bytes, until there are `n`. */
struct piecewise {
	uint64_t size;
	size_t step, n;
};

static int derive_pieces(void *ctx, struct fill *m)
{
	const struct piecewise *p = ctx;
	char *piece = must(calloc(1, p->step));
	struct derived_file out;
	int r = derived_begin(&out, m, p->size);

	for (size_t at = 0; at < p->n && r == 0; at += p->step)
		r = derived_write(&out, piece, p->step);
	free(piece);
	return derived_end(&out, r);
}

/* It has as many bytes as were announced, in memory or in a file, and no other. */
static void test_wrong_length(void **state)
{
	const uint64_t sizes[] = { 4096, MAX_MEMORY_OBJECT + 4096 };
	struct box *b = box_new();

	(void)state;
	box_start(b, NULL, true);
	for (size_t i = 0; i < 2; i++)
		for (int more = -1; more <= 1; more++) {
			struct piecewise p = { sizes[i], 1024, sizes[i] + (size_t)(more * 1024) };
			struct object *o;

			assert_int_equal(object_add_derived(b->store, "pieces", p.size,
							    derive_pieces, &p, &o),
					 0);
			assert_int_equal(get(o), more ? -EBADMSG : 0);
			if (!more)
				object_put(o);
		}
	box_free(b);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nested_crowd), cmocka_unit_test(test_nobody_waits),
		cmocka_unit_test(test_stop),	     cmocka_unit_test(test_deadlines),
		cmocka_unit_test(test_wrong_length),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
