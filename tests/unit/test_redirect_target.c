/* SPDX-License-Identifier: Apache-2.0 */
/* Signed URLs: when they expire, and what is left of them without their signature. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "http/http.h"

static void test_expiry(void **state)
{
	static const struct {
		const char *query;
		int64_t when;
	} cases[] = {
		{ "", 0 },
		{ "?a=b&c", 0 },
		{ "?X-Amz-Date=20250131T235959Z&X-Amz-Expires=60", 1738367999 + 60 },
		{ "?x-amz-expires=1&x=y&x-amz-date=20250131T235959Z#f", 1738367999 + 1 },
		{ "?X-Amz-Date=20250131T235959Z&X-Amz-Expires=9223372036854775807",
		  1738367999 + 3153600000 },
		{ "?X-Amz-Date=20250131T235959Z&X-Amz-Expires=-9", 1738367999 },
		{ "?X-Amz-Expires=60", 0 },
		{ "?X-Amz-Date=2025&X-Amz-Expires=60", 0 },
		{ "?X-Goog-Date=20250131T235959Z&X-Goog-Expires=3600", 1738367999 + 3600 },
		{ "?Expires=1738367999&Signature=x", 1738367999 },
		{ "?Expires=soon", 0 },
		{ "?Expires=-5", 0 },
		{ "?sv=2020&se=2025-01-31T23%3A59%3A59Z&sig=x", 1738367999 },
		{ "?se=2025-01-31T23:59:59Z", 1738367999 },
		{ "?se=no", 0 },
	};
	char url[256];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		snprintf(url, sizeof(url), "https://h/path%s", cases[i].query);
		assert_int_equal(http_url_expiry(url), cases[i].when);
	}
}

static void test_unsigned(void **state)
{
	static const char *const cases[][2] = {
		{ "https://h/p", "https://h/p" },
		{ "https://h/p?", "https://h/p?" },
		{ "https://h/p?v=2&X-Amz-Date=1&X-Amz-Signature=2&w=3", "https://h/p?v=2&w=3" },
		{ "https://h/p?X-Amz-Date=1&X-Amz-Signature=2", "https://h/p" },
		{ "https://h/p?Expires=1&Signature=s&Key-Pair-Id=k&Policy=p", "https://h/p" },
		{ "https://h/p?AWSAccessKeyId=1&Signature=a%2Fb&Expires=3", "https://h/p" },
		{ "https://h/p?sv=1&sp=r&sig=x&snapshot=2", "https://h/p?snapshot=2" },
		{ "https://h/p?sp=1&policy=2&se=3", "https://h/p?sp=1&policy=2&se=3" },
		{ "https://h/p?expiresolder=1", "https://h/p?expiresolder=1" },
		{ "https://h/p?a=b#X-Amz-Date=1", "https://h/p?a=b" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char *got = http_url_unsigned(cases[i][0]);

		assert_string_equal(got, cases[i][1]);
		free(got);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_expiry),
		cmocka_unit_test(test_unsigned),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
