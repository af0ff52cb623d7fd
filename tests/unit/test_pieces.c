/* SPDX-License-Identifier: Apache-2.0 */
/* Into which pieces a large file is cut: each byte once, and as caches on the way cut files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/util.h"
#include "fetch/internal.h"

#define CONNECTIONS 4
#define LEAST (256 * KIB)
#define MOST (4 * MIB)

static bool is_aligned(struct piece c)
{
	uint64_t n = c.end - c.off;

	return n >= LEAST && n <= MOST && (n & (n - 1)) == 0 && c.off % n == 0;
}

/* How long pieces take, and until their first bytes, in ms: piece n. */
struct speed {
	int64_t (*took)(unsigned n), (*waited)(unsigned n);
};

/*
 * Takes all pieces, over connections that each have one under way; the one that comes first is
 * picked by the number of the next. All but the first piece, which begins where the fetch does, and
 * the last begin and end at multiples of their size. Returns how many there were.
 */
static unsigned take_all(uint64_t off, uint64_t end, size_t known, struct speed speed)
{
	struct piece way[CONNECTIONS] = { 0 }, c;
	struct pieces p;
	unsigned n = 0;
	uint64_t at = off;

	pieces_begin(&p, off, end, CONNECTIONS, known);
	for (; pieces_take(&p, at, &c); n++) {
		struct piece *other = &way[n * 2654435761U >> 30];

		assert_int_equal(c.off, at);
		assert_true(c.off < c.end && c.end <= end);
		if (n > 0 && c.end < end && !is_aligned(c))
			fail_msg("from %llu: [%llu, %llu)", (unsigned long long)off,
				 (unsigned long long)c.off, (unsigned long long)c.end);
		assert_true(c.end == end || c.end % LEAST == 0);
		at = c.end;
		pieces_learn(&p, other->end - other->off, speed.took(n), speed.waited(n));
		*other = c;
	}
	assert_int_equal(at, end);
	return n;
}

static int64_t none(unsigned n)
{
	(void)n;
	return 0;
}

static int64_t long_time(unsigned n)
{
	(void)n;
	return 2000;
}

/* Fast and slow, so that the size changes at all places. */
static int64_t in_turns(unsigned n)
{
	return n / 5 % 2 ? 1 : 2000;
}

static int64_t sometimes(unsigned n)
{
	return n % 3 ? 0 : 900;
}

static void test_begin_at_multiples_of_their_size(void **state)
{
	static const struct speed speeds[] = { { none, none },
					       { long_time, none },
					       { in_turns, none },
					       { in_turns, sometimes },
					       { long_time, sometimes } };
	static const uint64_t begins[] = {
		0, 512 * KIB, 768 * KIB, 5 * MIB + 256 * KIB, 1, 777777
	};
	static const size_t known[] = { 0, 256 * KIB, MIB, MOST };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(speeds); i++)
		for (size_t j = 0; j < ARRAY_SIZE(begins); j++)
			for (size_t k = 0; k < ARRAY_SIZE(known); k++)
				take_all(begins[j], begins[j] + 100 * MIB + 77777, known[k],
					 speeds[i]);
}

/* That costs few requests: one for each smaller size, where the first ones begin. */
static void test_few_pieces(void **state)
{
	const struct speed fast = { none, none };
	unsigned n = take_all(0, 100 * MIB, MOST, fast);

	(void)state;
	assert_true(n >= 100 / 4 && n < 100 / 4 + 20);
	assert_true(take_all(256 * KIB, 100 * MIB, MOST, fast) <= n + 4);
	assert_true(take_all(1, 100 * MIB, MOST, fast) <= n + 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_begin_at_multiples_of_their_size),
		cmocka_unit_test(test_few_pieces),
	};

	return cmocka_run_group_tests_name("pieces", tests, NULL, NULL);
}
