/* SPDX-License-Identifier: Apache-2.0 */
/* String tensors: measured, written in both forms, stopped, refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "tensor/strings.h"
#include "base/util.h"

struct text {
	const char *s;
	size_t left, step; /* given out `step` bytes at a time */
};

static ssize_t read_text(void *ctx, void *ret_buf, size_t n)
{
	struct text *t = ctx;

	n = MIN(MIN(n, t->step), t->left);
	memcpy(ret_buf, t->s, n);
	t->s += n;
	t->left -= n;
	return (ssize_t)n;
}

static struct text text_of(const char *s, size_t step)
{
	return (struct text){ s, strlen(s), step };
}

static int write_buf(void *ctx, const void *data, size_t n)
{
	return buf_add(ctx, data, n);
}

static const char sample[] = "# one\ndata = ['a', \"\\u00e9\\u0000\", '''\n\U0001F973x''', '',]\n";

static void test_forms(void **state)
{
	static const char bytes[] = "\x01\0\0\0a"
				    "\x03\0\0\0\xc3\xa9\0"
				    "\x05\0\0\0\xf0\x9f\xa5\xb3x\0\0\0\0";
	static const uint32_t ucs4[] = { 'a', 0, 0, 0xe9, 0, 0, 0x1f973, 'x', 0, 0, 0, 0 };
	struct strings_size size;
	struct text t;
	struct buf b;

	(void)state;
	for (size_t step = 1; step < 70; step += 4) {
		t = text_of(sample, step);
		assert_int_equal(strings_measure(read_text, &t, &size, NULL), 0);
		assert_int_equal(size.count, 4);
		assert_int_equal(size.bytes, sizeof(bytes) - 1);
		assert_int_equal(size.width, 2);
		assert_true(size.trailing_nul);
		b = buf_init(KIB);
		t = text_of(sample, step);
		assert_int_equal(strings_emit(read_text, &t,
					      &(struct strings_output){ 4, 0, write_buf, &b },
					      NULL),
				 0);
		assert_int_equal(b.len, size.bytes);
		assert_memory_equal(b.data, bytes, b.len);
		b.len = 0;
		t = text_of(sample, step);
		assert_int_equal(strings_emit(read_text, &t,
					      &(struct strings_output){ 4, 3, write_buf, &b },
					      NULL),
				 0);
		assert_int_equal(b.len, sizeof(ucs4));
		for (size_t i = 0; i < ARRAY_SIZE(ucs4); i++)
			assert_int_equal(get_le32(b.data + 4 * i), ucs4[i]);
		buf_finish(&b);
	}
}

static void test_narrow(void **state)
{
	struct reason error;
	struct text t = text_of(sample, 99);
	struct buf b = buf_init(KIB);

	(void)state;
	assert_int_equal(strings_emit(read_text, &t,
				      &(struct strings_output){ 4, 1, write_buf, &b }, &error),
			 -EBADMSG);
	assert_string_equal(error.text, "element 1 has 2 code points, more than 1");
	buf_finish(&b);
}

static ssize_t read_fails(void *ctx, void *ret_buf, size_t n)
{
	(void)ctx;
	(void)ret_buf;
	(void)n;
	return -EIO;
}

static int write_stops(void *ctx, const void *data, size_t n)
{
	(void)data;
	*(size_t *)ctx = n;
	return -ECANCELED;
}

static void test_stopped(void **state)
{
	struct strings_size size = { .count = 77 };
	struct text t = text_of(sample, 99);
	size_t n = 0;

	(void)state;
	assert_int_equal(strings_measure(read_fails, NULL, &size, NULL), -EIO);
	assert_int_equal(size.count, 77);
	assert_int_equal(strings_emit(read_text, &t,
				      &(struct strings_output){ 4, 0, write_stops, &n }, NULL),
			 -ECANCELED);
	assert_int_equal(n, 25);
}

static void test_refused(void **state)
{
	static const char *const texts[] = {
		"",
		"data = 1",
		"data = [1, 2]",
		"data = ['a', ['b']]",
		"data = ['a', 'b']\nmore = 1",
		"[data]",
		"[[data]]\n[[data]]",
		"data = ['a', 'b'\n",
		"x.data = ['a', 'b']",
		"data = ['a', 'b']\n[t]",
	};
	struct reason error;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		struct strings_size size;
		struct text t = text_of(texts[i], 99);

		error.text[0] = '\0';
		assert_int_equal(strings_measure(read_text, &t, &size, &error), -EBADMSG);
		assert_true(strlen(error.text) > 5);
	}
}

/* Measured is whatever is there, written just as many as there should be. */
static void test_other_number(void **state)
{
	struct reason error;
	struct strings_size size;
	struct buf b = buf_init(KIB);

	(void)state;
	for (uint64_t n = 0; n < 6; n++) {
		struct text t = text_of(sample, 99);

		assert_int_equal(strings_measure(read_text, &t, &size, NULL), 0);
		assert_int_equal(size.count, 4);
		t = text_of(sample, 99);
		b.len = 0;
		assert_int_equal(strings_emit(read_text, &t,
					      &(struct strings_output){ n, 0, write_buf, &b },
					      &error),
				 n == 4 ? 0 : -EBADMSG);
	}
	assert_string_equal(error.text, "data has 4 elements, but its shape 5");
	buf_finish(&b);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_forms),	     cmocka_unit_test(test_narrow),
		cmocka_unit_test(test_stopped),	     cmocka_unit_test(test_refused),
		cmocka_unit_test(test_other_number),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
