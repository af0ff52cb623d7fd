/* SPDX-License-Identifier: Apache-2.0 */
/* base64: each text is read as it is written, and there is one text for the same bytes. */
#include <stdlib.h>

#include "base/digest.h"
#include "base/util.h"
#include "zip_help.h"

#define MOST 9000

static void test_there_and_back(void **state)
{
	uint8_t data[MOST];
	char text[4 * MOST / 3 + 8];

	(void)state;
	for (size_t i = 0; i < MOST; i++)
		data[i] = (uint8_t)(i * 7919 >> 3);
	for (size_t n = 0; n < MOST; n += n < 20 ? 1 : 311) {
		base64_encode(data, n, text);
		assert_int_equal(base64_decode(text, strlen(text)), n);
		assert_memory_equal(text, data, n);
	}
}

static void assert_refused(const char *before, const char *s)
{
	char text[4 * MOST / 3 + 64];

	snprintf(text, sizeof(text), "%s%s", before, s);
	assert_int_equal(base64_decode(text, strlen(text)), -EBADMSG);
}

/* At the start, in a block, at the end of one, and at the end of all. */
static void test_other_texts(void **state)
{
	static const char *const bad[] = {
		"QUJ=",
		"QUJDR=",
		"QUI=QUJD",
		"QQ==QUJD",
		"Q===",
		"====",
		"QUJ",
		"QUJD\n",
		" QUJD",
		"QU JD",
		"    QUJD",
		"QUJD    ",
		"QUJD-",
		"QUJD----",
		"QU-_",
		"Q\xc3\xa4"
		"JD",
		"QR==",
	};
	char before[4 * MOST / 3 + 8];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		for (size_t n = 0; n < 4 * 2100; n += 4) {
			if (n > 12 && n % 4096 > 16 && n % 4096 < 4080)
				continue;
			memset(before, 'Q', n);
			before[n] = '\0';
			assert_refused(before, bad[i]);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_there_and_back),
		cmocka_unit_test(test_other_texts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
