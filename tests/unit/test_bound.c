/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long a fetched file may be, from what the user, the carton and the server say; one byte more
 * is refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/util.h"
#include "fetch/internal.h"

static const struct bound {
	const char *what;
	uint64_t max_size, carton;
	int64_t length, total; /* of a 206; -1: not said */
	const char *coding;
	uint64_t want;
} bounds[] = {
	{ "announced", 0, 0, 5, -1, "", MAX_FETCHED },
	{ "not announced", 0, 0, -1, -1, "", MAX_FETCHED_UNSAID },
	{ "coded", 0, 0, 5, -1, "gzip", MAX_FETCHED_UNSAID },
	{ "a part", 0, 0, 5, 5000, "", MAX_FETCHED },
	{ "the user's", 77, 0, 5, -1, "", 77 },
	{ "the user's, not announced", 2 * MAX_FETCHED, 0, -1, -1, "", 2 * MAX_FETCHED },
	{ "the carton's", 0, 9, -1, -1, "", 9 },
	{ "the carton's is less", 77, 9, -1, -1, "", 9 },
	{ "the user's is less", 77, 99, -1, -1, "", 77 },
	{ "the carton's beyond all", 0, MAX_FETCHED + 1, -1, -1, "", MAX_FETCHED },
};

static struct http_response answer_of(const struct bound *b)
{
	struct http_response a = { .status = b->total >= 0 ? 206 : 200,
				   .length = b->length,
				   .range_total = b->total };

	strcpy(a.coding, b->coding);
	return a;
}

/*
 * The last byte may be written, and none behind it; `at` may be far beyond what there is room for.
 */
static void check_edge(struct file *d, uint64_t at)
{
	int r = file_write(d, "xy", 1, at - 1);

	assert_true(r == 0 || r == -ENOSPC);
	assert_false(file_is_over(d));
	assert_int_equal(file_write(d, "xy", 2, at - 1), -EFBIG);
	assert_int_equal(file_write(d, "xy", 1, at), -EFBIG);
	assert_int_equal(file_write(d, "xy", 1, UINT64_MAX), -EFBIG);
	assert_true(file_is_over(d));
	assert_true(file_end(d) <= at);
}

static void test_bounds(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bounds); i++) {
		const struct bound *b = &bounds[i];
		const struct fetch_options options = { .max_size = b->max_size };
		struct fetcher x = {
			.f = { .options = &options, .what = FETCH_FILE, .max = b->carton }
		};
		struct http_response a = answer_of(b);
		int64_t *said = a.status == 206 ? &a.range_total : &a.length;

		assert_int_equal(file_memory(4096, &x.f.dest), 0);
		assert_int_equal(bound_answer(&x, &a), 0);
		if (x.bound != b->want)
			fail_msg("%s: %llu", b->what, (unsigned long long)x.bound);
		check_edge(x.f.dest, b->want);
		assert_int_equal(file_restart(x.f.dest, NULL), 0);
		assert_false(file_is_over(x.f.dest));
		/* one byte more is not begun */
		if (*said >= 0 && !a.coding[0]) {
			*said = (int64_t)b->want;
			assert_int_equal(bound_answer(&x, &a), 0);
			++*said;
			assert_int_equal(bound_answer(&x, &a), -EFBIG);
		}
		file_abort(x.f.dest, false);
	}
}

/* Parts of a file are as long as was asked for. */
static void test_only_whole_files(void **state)
{
	const struct fetch_options options = { .max_size = 1 };
	struct http_response a = { .status = 206, .length = 5, .range_total = 5000 };
	struct fetcher x = { .f = { .options = &options } };

	(void)state;
	assert_int_equal(file_memory(4096, &x.f.dest), 0);
	for (x.f.what = FETCH_FILE; x.f.what <= FETCH_SIZE; x.f.what++)
		assert_int_equal(bound_answer(&x, &a), x.f.what == FETCH_FILE ? -EFBIG : 0);
	file_abort(x.f.dest, false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bounds),
		cmocka_unit_test(test_only_whole_files),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
