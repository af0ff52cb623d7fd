/* SPDX-License-Identifier: Apache-2.0 */
/* Which small entries are fetched together. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/util.h"
#include "content/run.h"

#define N 10000
#define LENGTH 5000

struct fixture {
	struct container container;
	struct run run;
	struct server_rates server;
	struct entry entries[N];
};

/* Entry i by name is the (i * step)th of the archive. */
static struct fixture *make(size_t step)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	f->container = (struct container){ .entries = f->entries, .n_entries = N };
	f->run.container = &f->container;
	server_rates_init(&f->server);
	f->run.server = &f->server;
	for (size_t i = 0; i < N; i++)
		f->entries[i] = (struct entry){
			.size = LENGTH - 50,
			.stored = LENGTH - 50,
			.room = 50,
			.header = i * step % N * LENGTH,
			.kind = ENTRY_FILE,
		};
	return f;
}

static void end(struct fixture *f)
{
	run_finish(&f->run);
	free(f);
}

/* Asks for an entry, and sees all that comes with it; the window. */
static uint64_t ask(struct fixture *f, size_t i)
{
	struct run_window w;
	uint64_t window;
	size_t low, high;

	assert_int_equal(run_follow(&f->run, &f->entries[i], &w), 0);
	assert_ptr_equal(f->run.order[w.at], &f->entries[i]);
	run_around(&f->run, &w, &low, &high);
	assert_in_range(w.at, low, high - 1);
	window = MAX(w.before, w.after);
	for (size_t k = low; k < high; k++) {
		uint64_t far = MAX(entry_end(f->run.order[k]), entry_end(&f->entries[i])) -
			       MIN(f->run.order[k]->header, f->entries[i].header);

		assert_true(k == w.at || far <= window);
		run_see(&f->run, f->run.order[k]);
	}
	return window;
}

/* How many requests it takes to read entries [from, to), in that order or backwards. */
static unsigned read_all(struct fixture *f, size_t from, size_t to, bool backwards)
{
	unsigned n = 0;

	for (size_t i = from; i < to; i++) {
		size_t k = backwards ? to - 1 - (i - from) : i;

		if (f->run.order && run_has_seen(&f->run, &f->entries[k]))
			continue;
		ask(f, k);
		n++;
	}
	return n;
}

static void test_in_order(void **state)
{
	/* of the archive; of the names of a shuffled one, also backwards */
	static const size_t steps[] = { 1, 1, 3, 7919, 7919 };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
		struct fixture *f = make(steps[i]);

		/* 50 MB: 8 windows, and what it takes to get there */
		assert_in_range(read_all(f, 0, N, i % 2), 2, 30);
		end(f);
	}
}

static void test_the_first_is_alone(void **state)
{
	struct fixture *f = make(1);

	(void)state;
	assert_int_equal(ask(f, 100), 0);
	assert_int_equal(ask(f, 5000), 0);
	assert_in_range(ask(f, 101), 1, 128 * KIB);
	/* each of several has its own */
	assert_in_range(ask(f, 5001), 1, 128 * KIB);
	end(f);
}

static void test_random(void **state)
{
	struct fixture *f = make(1);
	unsigned with = 0;

	(void)state;
	srandom(1);
	for (int i = 0; i < 100; i++)
		with += ask(f, (size_t)random() % N) > 0;
	/* by chance, two are side by side */
	assert_in_range(with, 0, 10);
	end(f);
}

/* What comes again did not stay: so it all begins anew, with no window. */
static void test_what_is_asked_for_again(void **state)
{
	struct fixture *f = make(1);

	(void)state;
	read_all(f, 0, 500, false);
	assert_int_equal(ask(f, 3), 0);
	assert_false(run_has_seen(&f->run, &f->entries[4]));
	end(f);
}

static void test_link(void **state)
{
	struct server_rates server;
	struct run run = { .server = &server };
	uint64_t first;

	(void)state;
	server_rates_init(&server);
	first = run_gap(&run);
	assert_in_range(first, 1, MAX_SPAN);
	assert_int_equal(run_most(&run, 1000), MAX_RUN_WINDOW);
	/* 10 ms, 1 MiB/s */
	for (int i = 0; i < 10; i++) {
		rates_began(run.server);
		rates_answered(run.server, 10000);
		for (uint64_t ms = 0; ms <= 1000; ms += 100)
			rates_came(run.server, MIB / 10, (uint64_t)i * 1010000 + 1000 * ms + 1);
		rates_ended(run.server);
	}
	assert_in_range(run_gap(&run), 9 * KIB, 11 * KIB);
	assert_in_range(run_most(&run, 500), 450 * KIB, 550 * KIB);
	for (uint64_t window = 1; window <= MAX_RUN_WINDOW; window *= 2)
		assert_in_range(run_request(window), 512 * KIB, MAX_SPAN);
}

static void test_which_are_small(void **state)
{
	struct entry e = { .kind = ENTRY_FILE, .stored = 1000, .size = 1000 };

	(void)state;
	assert_true(run_takes(&e));
	e.kind = ENTRY_SYMLINK;
	assert_false(run_takes(&e));
	e.kind = ENTRY_FILE;
	/* what a few bytes may decode to */
	e.size = 100 * MIB;
	assert_false(run_takes(&e));
	e.size = e.stored = 1 * MIB;
	assert_true(run_takes(&e));
	e.room = 1;
	assert_false(run_takes(&e));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_in_order), cmocka_unit_test(test_the_first_is_alone),
		cmocka_unit_test(test_random),	 cmocka_unit_test(test_what_is_asked_for_again),
		cmocka_unit_test(test_link),	 cmocka_unit_test(test_which_are_small),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
