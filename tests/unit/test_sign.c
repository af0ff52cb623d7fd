/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of a signature that its writer and its reader share. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/util.h"
#include "sign/sign.h"

/* What base64_decode() returns for a text, of which it must make `want`. */
static ssize_t decode(const char *text, const char *want)
{
	char copy[64];
	ssize_t n;

	strcpy(copy, text);
	n = base64_decode(copy, strlen(text));
	if (n >= 0)
		assert_true((size_t)n == strlen(want) && memcmp(copy, want, (size_t)n) == 0);
	return n;
}

static void test_base64(void **state)
{
	static const char *const wrong[] = {
		"TQ",	"TQ=",	   "TQ===", "TR==",	"TWF=",	    "TWE",     "=",
		"==",	"====",	   "A===",  "TQ==TQ==", "T Q=",	    "TWFu\n",  "TWF-",
		"TWF_", "TWF\x80", "TW=u",  " TWFu",	"TQ\r\n==", "TWFuTWE", "TWF*",
	};

	(void)state;
	assert_int_equal(decode("", ""), 0);
	assert_int_equal(decode("TQ==", "M"), 1);
	assert_int_equal(decode("TWE=", "Ma"), 2);
	assert_int_equal(decode("TWFu", "Man"), 3);
	assert_int_equal(decode("+/+/TWFu", "\xfb\xff\xbfMan"), 6);
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
		assert_int_equal(decode(wrong[i], ""), -EBADMSG);
}

/* It reads back what is written, of each length. */
static void test_base64_both_ways(void **state)
{
	uint8_t data[200];
	char text[300];

	(void)state;
	for (size_t n = 0; n < sizeof(data); n++) {
		for (size_t i = 0; i < n; i++)
			data[i] = (uint8_t)(n * 31 + i * 7);
		base64_encode(data, n, text);
		assert_int_equal(base64_decode(text, strlen(text)), n);
		assert_memory_equal(text, data, n);
	}
}

static void test_encoding(void **state)
{
	char head[DSSE_PAE_SIZE];

	(void)state;
	assert_int_equal(dsse_pae(12345, head), 45);
	assert_string_equal(head, "DSSEv1 28 application/vnd.in-toto+json 12345 ");
	assert_true(dsse_pae(SIZE_MAX, head) < DSSE_PAE_SIZE);
}

static void test_left_out(void **state)
{
	static const char *const out[] = { ".git",	 ".git/config",	   ".github/a/b",
					   ".gitignore", ".gitattributes", "misc/model.sig",
					   "model.sig" };
	static const char *const in[] = { ".gitmodules", "sub/.git",	    ".git2/x",
					  "model.sig/x", "misc/model.sig2", "a" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(out); i++)
		assert_true(sign_leaves_out(out[i]));
	for (size_t i = 0; i < ARRAY_SIZE(in); i++)
		assert_false(sign_leaves_out(in[i]));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_base64),
		cmocka_unit_test(test_base64_both_ways),
		cmocka_unit_test(test_encoding),
		cmocka_unit_test(test_left_out),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
