/* SPDX-License-Identifier: Apache-2.0 */
/* Names that seem to differ only in how their characters are composed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/composed.h"
#include "base/util.h"

static const struct {
	const char *a, *b;
	bool alike;
} list[] = {
	{ "gr\u00f6\u00dfe.txt", "gro\u0308\u00dfe.txt", true },
	{ "\u00e9", "e\u0301", true },
	{ "\u1ec7", "e\u0323\u0302", true },
	{ "\u1ec7", "\u1eb9\u0302", true },
	{ "\u00ea\u0323", "e\u0323\u0302", true },
	{ "\u304c\u30d1", "\u304b\u3099\u30cf\u309a", true },
	{ "d/\u00e9/e\u0301", "d/e\u0301/\u00e9", true },
	{ "\ubaa8\ub378", "\u1106\u1169\u1103\u1166\u11af", true },
	{ "\uac00", "\u1100\u1161", true },
	/* other syllables, other letters, and other names */
	{ "\ubaa8", "\u1106\u1161", false },
	{ "\ubaa8", "\u1106", false },
	{ "\ub378", "\u1103\u1166\u11b0", false },
	{ "\u00e9", "\u00e9", false },
	{ "\u00e9", "e", false },
	{ "e\u0301", "e", false },
	{ "\u00e9\u0302", "\u00e9", false },
	{ "\u00e9", "e\u0301x", false },
	{ "\u00e9x", "e\u0301", false },
	{ "\u0301", "e\u0301", false },
	{ "", "e\u0301", false },
	{ "a", "b", false },
	{ "\xff", "e\u0301", false },
	{ "\u00e9\xff", "e\u0301\xff", false },
	{ "\u00e9\xff", "e\u0301\xfe", false },
};

static void test_pairs(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(list); i++)
		if (composed_alike(list[i].a, list[i].b) != list[i].alike ||
		    composed_alike(list[i].b, list[i].a) != list[i].alike)
			fail_msg("pair %zu: \"%s\", \"%s\"", i, list[i].a, list[i].b);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pairs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
