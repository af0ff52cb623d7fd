/* SPDX-License-Identifier: Apache-2.0 */
/* What of a local file is read from the disk ahead of its readers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/util.h"
#include "content/disk_ahead.h"

#define READ (128 * KIB)
#define SIZE (64 * MIB + 5)

/* Reads in order; what is announced has to go on from *at. */
static void read_in_order(struct disk_ahead *d, uint64_t from, uint64_t to, uint64_t *at)
{
	for (uint64_t off = from; off < to; off += READ) {
		struct disk_range r = disk_ahead_read(d, SIZE, off, (size_t)MIN(READ, to - off));

		if (r.n == 0)
			continue;
		if (*at)
			assert_int_equal(r.off, *at);
		assert_true(r.off > off);
		assert_true(r.off + r.n <= MIN(off + 8 * MIB, SIZE));
		*at = r.off + r.n;
	}
}

static void test_in_order(void **state)
{
	struct disk_ahead *d = disk_ahead_new();
	uint64_t at = 0;

	(void)state;
	assert_non_null(d);
	/* the beginning alone is no stream */
	read_in_order(d, 0, 512 * KIB, &at);
	assert_int_equal(at, 0);
	read_in_order(d, 512 * KIB, 16 * MIB, &at);
	assert_in_range(at, 18 * MIB, 24 * MIB);
	/* a second reader, elsewhere, does not end the first stream */
	at = 0;
	read_in_order(d, 40 * MIB, 48 * MIB, &at);
	assert_in_range(at, 50 * MIB, 56 * MIB);
	at = 0;
	read_in_order(d, 16 * MIB, SIZE, &at);
	assert_int_equal(at, SIZE);
	disk_ahead_free(d);
}

/* As memcpy(3) may read a mapping: what is announced lies before what is read, without gaps. */
static void test_towards_the_start(void **state)
{
	struct disk_ahead *d = disk_ahead_new();
	uint64_t at = 0, announced = 0;

	(void)state;
	assert_non_null(d);
	for (uint64_t off = 48 * MIB; off >= 16 * MIB; off -= READ) {
		/* not where units begin */
		struct disk_range r = disk_ahead_read(d, SIZE, off + 20 * KIB, READ);

		if (r.n == 0)
			continue;
		assert_true(r.off + r.n <= off + READ);
		assert_true(r.off + 8 * MIB >= off);
		if (at)
			assert_int_equal(r.off + r.n, at);
		at = r.off;
		announced += r.n;
	}
	assert_in_range(at, 8 * MIB, 14 * MIB);
	assert_in_range(announced, 32 * MIB, 40 * MIB);
	/* to the start of the file, and not beyond */
	for (uint64_t off = 16 * MIB; off > 0; off -= READ)
		disk_ahead_read(d, SIZE, off - READ, READ);
	assert_int_equal(disk_ahead_read(d, SIZE, 0, READ).n, 0);
	disk_ahead_free(d);
}

/* One large READ alone is no stream, in neither direction. */
static void test_one_large_read(void **state)
{
	struct disk_ahead *d = disk_ahead_new();

	(void)state;
	assert_non_null(d);
	assert_int_equal(disk_ahead_read(d, SIZE, 32 * MIB, 2 * MIB).n, 0);
	assert_int_equal(disk_ahead_read(d, SIZE, 8 * MIB, 2 * MIB).n, 0);
	disk_ahead_free(d);
}

/* Two threads answer what the kernel sends at once: it comes in nearly any order. */
static void test_out_of_order(void **state)
{
	struct disk_ahead *d = disk_ahead_new();
	uint64_t announced = 0;

	(void)state;
	assert_non_null(d);
	for (uint64_t off = 0; off < 32 * MIB; off += 4 * READ)
		for (unsigned i = 0; i < 4; i++)
			announced += disk_ahead_read(d, SIZE, off + (i ^ 1) * READ, READ).n;
	assert_in_range(announced, 24 * MIB, 40 * MIB);
	disk_ahead_free(d);
}

static void test_here_and_there(void **state)
{
	struct disk_ahead *d = disk_ahead_new();
	uint64_t at = 1;

	(void)state;
	assert_non_null(d);
	for (unsigned i = 0; i < 10000; i++) {
		at = at * 2862933555777941757 + 3037000493;
		assert_int_equal(disk_ahead_read(d, UINT64_MAX / 2, (at >> 2) & ~4095ULL, 4096).n,
				 0);
	}
	disk_ahead_free(d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_in_order),       cmocka_unit_test(test_towards_the_start),
		cmocka_unit_test(test_one_large_read), cmocka_unit_test(test_out_of_order),
		cmocka_unit_test(test_here_and_there),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
