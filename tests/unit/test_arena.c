/* SPDX-License-Identifier: Apache-2.0 */
/* The arena: nothing moves or overlaps, allocations are aligned, and little is wasted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/arena.h"
#include "base/util.h"

static void test_texts(void **state)
{
	static const char *texts[20000];
	struct arena a = { 0 };
	char want[32];
	size_t sum = 0;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		int n = snprintf(want, sizeof(want), "tensor %zu", i);

		texts[i] = arena_text(&a, want, (size_t)n);
		assert_non_null(texts[i]);
		sum += (size_t)n + 1;
	}
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		snprintf(want, sizeof(want), "tensor %zu", i);
		assert_string_equal(texts[i], want);
	}
	assert_true(a.total >= sum && a.total < sum + sum / 4);
	assert_string_equal(arena_text(&a, NULL, 0), "");
	arena_finish(&a);
	assert_int_equal(a.total, 0);
	arena_finish(&a);
}

static void test_aligned(void **state)
{
	struct arena a = { 0 };
	uint64_t *last = NULL;

	(void)state;
	for (size_t i = 0; i < 10000; i++) {
		size_t n = i % 1000 == 999 ? MIB : i % 5;
		uint64_t *p;

		assert_non_null(arena_text(&a, "abcdefgh", i % 9));
		p = arena_alloc(&a, 8 * n);
		assert_non_null(p);
		assert_int_equal((uintptr_t)p % 8, 0);
		memset(p, 0xff, 8 * n);
		if (last)
			assert_int_equal(*last, i - 1);
		last = n ? p : NULL;
		if (n)
			*p = i;
	}
	assert_null(arena_alloc(&a, SIZE_MAX));
	assert_null(arena_text(&a, "", SIZE_MAX));
	arena_finish(&a);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_texts),
		cmocka_unit_test(test_aligned),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
