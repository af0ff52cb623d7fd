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

	struct library math = { .file = "libm.so.6", .functions = f, .n = 1 }, again = math;

	(void)state;
	assert_int_equal(library_load(&math), 0);
	assert_int_equal(library_load(&math), 0);
	assert_int_equal(library_load(&again), 0);
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

	struct library math = { .file = "libm.so.6", .functions = f, .n = 1 };
	struct library none = { .file = "libnosuch.so.9", .functions = f, .n = 1 };

	(void)state;
	carton_log_set(on_log, NULL);
	assert_int_equal(library_load(&none), -ELIBACC);
	assert_non_null(strstr(logged, "libnosuch.so.9: cannot be loaded: "));
	assert_int_equal(library_load(&math), -ELIBACC);
	assert_non_null(strstr(logged, "no_such_function"));
	/* the failure stays, and is logged once */
	*logged = '\0';
	assert_int_equal(library_load(&math), -ELIBACC);
	assert_string_equal(logged, "");
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
