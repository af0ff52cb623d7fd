/* SPDX-License-Identifier: Apache-2.0 */
/*
 * File names of tensors; that no two collide is tested at length in tests/format/test_formats.py.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "tensor/filename.h"
#include "base/util.h"

static void expect(const char *name, size_t n, bool nested, const char *want)
{
	char got[TENSOR_FILENAME_SIZE];

	assert_int_equal(tensor_filename(name, n, nested, got), 0);
	assert_string_equal(got, want);
}

#define PLAIN(name, want) expect(name, sizeof(name) - 1, false, want)
#define NESTED(name, want) expect(name, sizeof(name) - 1, true, want)

static void test_encoded(void **state)
{
	(void)state;
	PLAIN("weight", "weight");
	PLAIN("a b=c\\\"'~:*?", "a b=c\\\"'~:*?");
	PLAIN("a/b", "a%2Fb");
	PLAIN("100%", "100%25");
	PLAIN("%2F", "%252F");
	PLAIN("\0\x01\x1f\x7f", "%00%01%1F%7F");
	PLAIN("\xc2\x80\xc2\x9f\xc2\xa0", "%C2%80%C2%9F\xc2\xa0");
	PLAIN("\xf0\x9f\xa5\xb3.\xc3\xa9", "\xf0\x9f\xa5\xb3.\xc3\xa9");
	PLAIN(".", "%2E");
	PLAIN("..", "%2E%2E");
	PLAIN("..a..", "%2E%2Ea..");
	PLAIN("index", "index");
	PLAIN("A.npy", "A.npy");
	PLAIN("", "%~empty");
	PLAIN("%~empty", "%25~empty");
	PLAIN("\xff\xc0", "%FF%C0");
}

static void test_nested(void **state)
{
	(void)state;
	NESTED("A", "A");
	NESTED("A.npy", "A%2Enpy");
	NESTED("A.bin.bin", "A.bin%2Ebin");
	NESTED("index.json", "index%2Ejson");
	NESTED(".bin", "%2Ebin");
	NESTED("..json", "%2E%2Ejson");
	NESTED("A.BIN", "A.BIN");
	NESTED("bin", "bin");
	NESTED("", "%~empty");
}

static void test_long(void **state)
{
	char name[300], got[2][TENSOR_FILENAME_SIZE];

	(void)state;
	memset(name, 'x', sizeof(name));
	assert_int_equal(tensor_filename(name, 251, false, got[0]), 0);
	assert_int_equal(strlen(got[0]), 251);
	assert_int_equal(strlen(got[0]) + strlen(".bin"), MAX_COMPONENT);
	for (size_t n = 252; n < 254; n++) {
		assert_int_equal(tensor_filename(name, n, false, got[n - 252]), 0);
		assert_int_equal(strlen(got[n - 252]), 100 + 2 + 64);
		assert_memory_equal(got[n - 252], name, 100);
		assert_memory_equal(got[n - 252] + 100, "%~", 2);
	}
	assert_string_not_equal(got[0], got[1]);
	/* A character is never cut, nor what it is encoded as. */
	memcpy(name + 99, "\xc3\xa9", 2);
	assert_int_equal(tensor_filename(name, 252, false, got[0]), 0);
	assert_memory_equal(got[0] + 99, "%~", 2);
	memset(name, '/', sizeof(name));
	assert_int_equal(tensor_filename(name, 84, false, got[0]), 0);
	assert_memory_equal(got[0] + 96, "%2F%~", 5);
	assert_int_equal(tensor_filename(name, 83, false, got[0]), 0);
	assert_int_equal(strlen(got[0]), 249);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_encoded),
		cmocka_unit_test(test_nested),
		cmocka_unit_test(test_long),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
