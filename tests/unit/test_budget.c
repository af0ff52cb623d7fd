/* SPDX-License-Identifier: Apache-2.0 */
/* The budget: what fits, what gives way, and where the default comes from. */
#include "zip_help.h"

#include <sys/stat.h>

#include "base/budget.h"

static void test_limits(void **state)
{
	struct log_seen *seen = log_watch();
	struct budget b;

	(void)state;
	budget_init(&b, 1000);
	assert_int_equal(budget_take(&b, 600), 0);
	assert_true(budget_keep(&b, 400));
	assert_false(budget_keep(&b, 1));
	assert_int_equal(budget_left(&b), 0);
	/* a small table is not refused for what others hold, but for other tables */
	assert_int_equal(budget_take(&b, 400), 0);
	assert_int_equal(budget_take(&b, 1), -EFBIG);
	assert_says(seen, "takes at least 1 KiB of memory, and the limit is 0 KiB");
	assert_says(seen, "memory=2K");
	budget_drop(&b, 400);
	assert_int_equal(budget_take(&b, UINT64_MAX), -EFBIG);
	budget_give(&b, 1000);
	assert_int_equal(budget_left(&b), 1000);
	assert_int_equal(budget_take(NULL, 1), 0);
	assert_true(budget_keep(NULL, 1));
}

/* What is said of a buffer that is refused because of others is more than the limit. */
static void test_refused_buffer(void **state)
{
	struct log_seen *seen = log_watch();
	struct budget b;

	(void)state;
	budget_init(&b, 2 * MIB);
	assert_true(budget_hold(&b, MIB));
	assert_int_equal(budget_take(&b, 8192), 0);
	assert_false(budget_hold(&b, MIB));
	assert_int_equal(budget_refuse(&b, MIB), -EFBIG);
	assert_says(seen, "takes at least 3 MiB of memory, and the limit is 2 MiB");
	assert_says(seen, "memory=3M");
}

/* Refused for tables only, of whatever size, and without a line. */
static void test_try(void **state)
{
	struct log_seen *seen = log_watch();
	struct budget b;

	(void)state;
	budget_init(&b, MIB);
	budget_charge(&b, MIB);
	assert_true(budget_try(&b, MIB - 1));
	assert_false(budget_try(&b, 2));
	assert_true(budget_try(&b, 1));
	assert_int_equal(b.used, 2 * MIB);
	assert_false(budget_try(&b, 1));
	assert_true(budget_try(NULL, UINT64_MAX));
	assert_int_equal(seen->n, 0);
	carton_log_set(NULL, NULL);
}

static void test_limit_by_size(void **state)
{
	struct log_seen *seen = log_watch();
	struct budget b;

	(void)state;
	/* chosen: no other limit */
	budget_init(&b, 1 * GIB);
	budget_limit_by_size(&b, 100);
	assert_int_equal(budget_take(&b, 1 * GIB), 0);
	budget_init(&b, 0);
	assert_true(b.limit >= MIN_MEMORY);
	b.limit = 1 * GIB;
	budget_limit_by_size(&b, 1 * GIB);
	assert_true(b.limit == 1 * GIB);
	budget_limit_by_size(&b, 100);
	assert_int_equal(budget_take(&b, MEMORY_START + 100 * MEMORY_EXPANSION), 0);
	assert_int_equal(budget_take(&b, 1), -EFBIG);
	assert_says(seen, "takes at least 41 MiB of memory, and the limit is 40 MiB");
	assert_says(seen, "memory=51M");
	assert_false(budget_keep(&b, 1));
	assert_false(budget_hold(&b, 1));
	carton_log_set(NULL, NULL);
}

/* Tables are counted as they grow, what they do not get is not counted. */
static void test_grow(void **state)
{
	struct budget b;
	uint64_t taken = 0, *array = NULL;
	size_t cap = 0;
	int r = 0;

	(void)state;
	budget_init(&b, 10000);
	for (size_t n = 1; r == 0; n++) {
		r = budget_room(&b, &taken, array, &cap, n);
		assert_int_equal(taken, cap * sizeof(*array));
		assert_int_equal(b.used, taken);
		assert_true(r < 0 || cap >= n);
	}
	assert_int_equal(r, -EFBIG);
	assert_int_equal(cap, 1024);
	budget_give(&b, taken);
	assert_int_equal(b.used, 0);
	assert_int_equal(budget_grow(&b, &taken, 5, 5, 8), 0);
	assert_int_equal(b.used, 0);
	free(array);
}

static void drop(void *ctx, uint64_t n)
{
	budget_drop(ctx, n);
}

static void test_kept_gives_way(void **state)
{
	struct budget b;

	(void)state;
	budget_init(&b, 1000);
	assert_true(budget_keep(&b, 1000));
	b.make_room = drop;
	b.ctx = &b;
	assert_int_equal(budget_take(&b, 700), 0);
	assert_int_equal(budget_left(&b), 0);
	assert_int_equal(b.tables, 700);
	/* for a buffer, too, but not for more kept content */
	budget_give(&b, 700);
	assert_true(budget_keep(&b, 700));
	assert_false(budget_keep(&b, 1));
	assert_true(budget_hold(&b, 300));
	assert_int_equal(b.used, 1000);
	assert_false(budget_hold(&b, 2000));
	assert_true(budget_hold(NULL, 2000));
	/* what is needed in any case is counted over the limit, and nothing else fits then */
	budget_charge(&b, 500);
	assert_int_equal(b.used, 1500);
	assert_int_equal(budget_left(&b), 0);
	assert_false(budget_keep(&b, 1));
	budget_drop(&b, 500);
	assert_int_equal(b.used, 1000);
	budget_charge(NULL, 1);
}

static void put(const char *dir, const char *name, const char *text)
{
	char path[512];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	for (char *p = path + strlen(dir) + 1; (p = strchr(p, '/')); *p++ = '/') {
		*p = '\0';
		mkdir(path, 0700);
	}
	f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static void test_groups(void **state)
{
	char dir[] = "/tmp/cartonfs-budget-XXXXXX", groups[64], command[64];

	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(groups, sizeof(groups), "%s/groups", dir);
	assert_true(budget_group_limit(groups, dir) == UINT64_MAX);
	/* version 2: the least of all ancestors, also memory.high */
	put(dir, "groups", "0::/a/b/c\n");
	assert_true(budget_group_limit(groups, dir) == UINT64_MAX);
	put(dir, "a/b/c/memory.max", "max\n");
	put(dir, "a/b/memory.max", "5000000000\n");
	put(dir, "a/memory.max", "6000000000\n");
	assert_true(budget_group_limit(groups, dir) == 5000000000);
	put(dir, "a/memory.high", "4000000000\n");
	assert_true(budget_group_limit(groups, dir) == 4000000000);
	/* in a container the path may be one of the host */
	put(dir, "memory.max", "3000\n");
	put(dir, "groups", "0::/elsewhere/d\n");
	assert_true(budget_group_limit(groups, dir) == 3000);
	/* version 1 */
	put(dir, "groups", "9:cpu:/x\n4:memory:/a\n0::/\n");
	put(dir, "memory/a/memory.limit_in_bytes", "2000\n");
	assert_true(budget_group_limit(groups, dir) == 2000);
	put(dir, "memory/memory.limit_in_bytes", "1000\n");
	assert_true(budget_group_limit(groups, dir) == 1000);
	snprintf(command, sizeof(command), "rm -r %s", dir);
	assert_int_equal(system(command), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_limit_by_size),
		cmocka_unit_test(test_refused_buffer),
		cmocka_unit_test(test_grow),
		cmocka_unit_test(test_kept_gives_way),
		cmocka_unit_test(test_groups),
		cmocka_unit_test(test_try),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
