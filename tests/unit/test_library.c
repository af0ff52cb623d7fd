/* SPDX-License-Identifier: Apache-2.0 */
/* Libraries that are loaded late. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "base/library.h"
#include "base/util.h"

static double (*cosine)(double), (*absent)(double);

static void test_loads(void **state)
{
	const struct library_function f[] = { { "cos", (void **)&cosine } };

	(void)state;
	for (int i = 0; i < 2; i++)
		assert_int_equal(library_load("libm.so.6", f, ARRAY_SIZE(f)), 0);
	assert_true(cosine(0) == 1);
}

static char logged[256];

static void on_log(void *ctx, enum carton_log_level level, const char *subject, const char *message)
{
	(void)ctx;
	assert_int_equal(level, CARTON_LOG_ERROR);
	snprintf(logged, sizeof(logged), "%s: %s", subject, message);
}

static void test_missing(void **state)
{
	const struct library_function f[] = { { "no_such_function", (void **)&absent } };

	(void)state;
	carton_log_set(on_log, NULL);
	assert_int_equal(library_load("libnosuch.so.9", f, 1), -ELIBACC);
	assert_non_null(strstr(logged, "libnosuch.so.9: cannot be loaded: "));
	assert_int_equal(library_load("libm.so.6", f, 1), -ELIBACC);
	assert_non_null(strstr(logged, "no_such_function"));
	assert_null(absent);
	carton_log_set(NULL, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_loads),
		cmocka_unit_test(test_missing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
