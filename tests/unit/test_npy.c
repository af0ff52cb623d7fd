/* SPDX-License-Identifier: Apache-2.0 */
/* .npy headers by themselves; tests/format/test_formats.py compares them with numpy's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "tensor/npy.h"
#include "../must.h"

static void expect(const char *descr, const uint64_t *shape, unsigned rank, const char *dict,
		   size_t total)
{
	struct buf b = buf_init(NPY_HEADER_MAX);

	assert_int_equal(npy_header(descr, shape, rank, &b), 0);
	assert_int_equal(b.len, total);
	assert_memory_equal(b.data, "\x93NUMPY\x01\x00", 8);
	assert_int_equal(get_le16(b.data + 8), total - 10);
	assert_memory_equal(b.data + 10, dict, strlen(dict));
	for (size_t i = 10 + strlen(dict); i < total - 1; i++)
		assert_int_equal(b.data[i], ' ');
	assert_int_equal(b.data[total - 1], '\n');
	buf_finish(&b);
}

static void test_shapes(void **state)
{
	const uint64_t shape[] = { 2, 0, UINT64_MAX };

	(void)state;
	expect("<f4", shape, 0, "{'descr': '<f4', 'fortran_order': False, 'shape': (), }", 128);
	expect("|i1", shape, 1, "{'descr': '|i1', 'fortran_order': False, 'shape': (2,), }", 128);
	expect("<U7", shape, 3,
	       "{'descr': '<U7', 'fortran_order': False, "
	       "'shape': (2, 0, 18446744073709551615), }",
	       128);
}

/* Up to the sizes that numpy has, and one past them. */
static void test_too_big(void **state)
{
	static const struct {
		const char *descr;
		uint64_t max; /* of one dimension */
	} list[] = {
		{ "|i1", INT64_MAX },	  { "<f2", INT64_MAX / 2 },  { "<f4", INT64_MAX / 4 },
		{ "<c8", INT64_MAX / 8 }, { "<U7", INT64_MAX / 28 },
	};

	(void)state;
	assert_true(npy_can_hold("<f4", NULL, 0));
	for (size_t i = 0; i < ARRAY_SIZE(list); i++) {
		const uint64_t n = list[i].max, shapes[][3] = {
			{ 0, n, 1 },
			{ n + 1, 0, 1 },
			{ 0, n / 2 + 1, 2 },
			{ UINT64_MAX, n, 0 },
		};

		for (size_t bad = 0; bad < 4; bad++)
			assert_int_equal(npy_can_hold(list[i].descr, shapes[bad], 3), !bad);
	}
}

static void test_widest(void **state)
{
	uint64_t shape[MAX_TENSOR_RANK];
	struct buf b = buf_init(NPY_HEADER_MAX);

	(void)state;
	for (size_t i = 0; i < MAX_TENSOR_RANK; i++)
		shape[i] = UINT64_MAX;
	assert_int_equal(npy_header("<U536870911", shape, MAX_TENSOR_RANK, &b), 0);
	assert_int_equal(b.len % 64, 0);
	buf_finish(&b);
}

static void test_version_2(void **state)
{
	enum { N = 30000 };
	uint64_t *shape = must(calloc(N, sizeof(*shape)));
	struct buf b = buf_init(MIB);

	(void)state;
	assert_int_equal(npy_header("<f4", shape, N, &b), 0);
	assert_int_equal(b.data[6], 2);
	assert_int_equal(get_le32(b.data + 8), b.len - 12);
	assert_int_equal(b.len % 64, 0);
	assert_int_equal(b.data[b.len - 1], '\n');
	free(shape);
	buf_finish(&b);
}

static void test_full(void **state)
{
	struct buf b = buf_init(127);

	(void)state;
	assert_int_equal(npy_header("<f4", NULL, 0, &b), -EFBIG);
	assert_int_equal(b.len, 0);
	buf_finish(&b);
}

static void test_string_descr(void **state)
{
	char descr[16];

	(void)state;
	assert_int_equal(npy_string_descr(0, descr), 0);
	assert_string_equal(descr, "<U1");
	assert_int_equal(npy_string_descr(536870911, descr), 0);
	assert_string_equal(descr, "<U536870911");
	assert_int_equal(npy_string_descr(536870912, descr), -EFBIG);
	assert_int_equal(npy_string_descr(UINT64_MAX, descr), -EFBIG);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shapes), cmocka_unit_test(test_too_big),
		cmocka_unit_test(test_widest), cmocka_unit_test(test_version_2),
		cmocka_unit_test(test_full),   cmocka_unit_test(test_string_descr),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
