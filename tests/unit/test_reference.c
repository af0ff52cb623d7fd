/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of REGISTRY/NAME. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "http/reference.h"

static void test_references(void **state)
{
	static const struct {
		const char *text;
		bool host, name;
	} cases[] = {
		{ "h", true, true },	       { "h:1", true, false },
		{ "h:", false, false },	       { "h:123456", false, false },
		{ "[::1]:5000", true, false }, { "[]", false, false },
		{ "-h", false, true },	       { "h/a", false, true },
		{ "", false, false },	       { ".", false, false },
		{ "..", false, false },	       { "...", false, true },
		{ "a/../b", false, false },    { "a/.", false, false },
		{ "a//b", false, false },      { "/a", false, false },
		{ "a/", false, false },	       { "Org/A_b.c~d-e", false, true },
		{ "a%2fb", false, false },     { "a b", false, false },
		{ "a\\b", false, false },      { "a?b", false, false },
		{ "a@b", false, false },       { "a{b}", false, false },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		const char *text = cases[i].text;

		if (reference_is_host(text, strlen(text)) != cases[i].host ||
		    reference_is_name(text, strlen(text)) != cases[i].name)
			fail_msg("%s", text);
	}
	/* nothing behind the end is read */
	assert_true(reference_is_name("a/../b", 1));
	assert_false(reference_is_name("a/../b", 2));
	assert_true(reference_is_host("h/a", 1));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_references),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
