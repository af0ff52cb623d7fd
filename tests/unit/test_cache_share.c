/* SPDX-License-Identifier: Apache-2.0 */
/* Partials that several processes fill together, and which of them fetches what. */
#include "cache_help.h"

#include "cache/claims.h"
#include "cache/internal.h"

#define SIZE 100000
#define SHARED 1 /* the key */
#define OBJECT 2
#define DONE 7

static struct cache_fill *join(struct cache *c)
{
	struct cache_fill *f;

	assert_int_equal(cache_join(c, key_of(SHARED).sha256, SIZE, &f), 0);
	return f;
}

static bool is_same_file(const struct cache_fill *a, const struct cache_fill *b)
{
	struct stat x, y;

	assert_int_equal(fstat(cache_fill_fd(a), &x) | fstat(cache_fill_fd(b), &y), 0);
	return x.st_ino == y.st_ino;
}

static size_t leftovers(struct env *e)
{
	return entries(e, "partials") + held(e) + entries(e, "tmp");
}

/* ---- the lock file ---- */

/* A name that begins with these eight bytes, the lowest first. */
static struct key key_at(uint64_t start, unsigned n)
{
	struct key k = key_of(n);

	for (unsigned i = 0; i < 8; i++)
		k.sha256[i] = (uint8_t)(start >> 8 * i);
	return k;
}

/* The first bytes of the names decide what is locked: at both ends of the range, and beside it. */
static void test_lock_of_each_name(void **state)
{
	static const uint64_t starts[] = { 0, 8, 16, 1ull << 63, UINT64_MAX - 8, UINT64_MAX };
	struct env *e = *state;
	struct cache_fill *f[ARRAY_SIZE(starts)], *other;

	for (size_t i = 0; i < ARRAY_SIZE(starts); i++)
		assert_int_equal(cache_begin(e->c, key_at(starts[i], 1).sha256, &f[i]), 0);
	for (size_t i = 0; i < ARRAY_SIZE(starts); i++) {
		struct key same = key_at(starts[i], 2);

		/* Other names with the same two bytes: one after the other. */
		assert_int_equal(cache_begin(e->c, same.sha256, &other), -EAGAIN);
		assert_int_equal(cache_join(e->c, same.sha256, SIZE, &other), -EAGAIN);
		assert_int_equal(cache_lock_is_held(e->c, same.sha256), 1);
		cache_fill_abort(f[i], false);
		assert_int_equal(cache_lock_is_held(e->c, same.sha256), 0);
		assert_int_equal(cache_begin(e->c, same.sha256, &other), 0);
		cache_fill_abort(other, false);
	}
	assert_int_equal(leftovers(e), 0);
}

/* To make and unlink a file for each object would cost more than the object. */
static void test_lock_file_stays(void **state)
{
	struct env *e = *state;
	char path[PATH_MAX];
	struct stat before, after;

	assert_int_equal(publish(e->c, key_of(1), SIZE), 0);
	snprintf(path, sizeof(path), "%s/v1/lock", e->cache);
	assert_int_equal(stat(path, &before), 0);
	assert_int_equal(publish(e->c, key_of(2), SIZE), 0);
	assert_int_equal(cache_gc(e->c, 0, NULL), 0);
	assert_int_equal(stat(path, &after), 0);
	assert_int_equal(after.st_ino, before.st_ino);
	assert_int_equal(leftovers(e), 0);
}

/* ---- one file ---- */

static void test_join(void **state)
{
	struct env *e = *state;
	struct key k = key_of(SHARED);
	struct cache_fill *a = join(e->c), *b = join(e->c), *alone;
	uint64_t freed;
	int fd;

	assert_true(is_same_file(a, b));
	assert_int_equal(cache_begin(e->c, k.sha256, &alone), -EAGAIN);
	assert_int_equal(put_bytes(cache_fill_fd(a), k, 0, SIZE), 0);
	assert_true(bytes_are_right(cache_fill_fd(b), k, SIZE));
	/* as long as one of them has it */
	cache_fill_abort(a, true);
	assert_int_equal(cache_gc(e->c, 0, &freed), 0);
	a = join(e->c);
	assert_true(is_same_file(a, b));

	assert_int_equal(cache_fill_publish(a, key_of(OBJECT).sha256, SIZE, &fd), 0);
	assert_int_equal(cache_fill_publish(b, key_of(OBJECT).sha256, SIZE, &(int){ -1 }), -ENOENT);
	assert_true(bytes_are_right(fd, k, SIZE));
	close(fd);
	/* a new one, which the other one of them leaves alone */
	a = join(e->c);
	assert_false(is_same_file(a, b));
	assert_int_equal(cache_fill_publish(b, key_of(OBJECT).sha256, SIZE, &(int){ -1 }), -ESTALE);
	cache_fill_abort(b, false);
	b = join(e->c);
	assert_true(is_same_file(a, b));
	cache_fill_abort(a, false);
	assert_int_equal(entries(e, "partials"), 0);
	cache_fill_abort(b, true);
	assert_int_equal(leftovers(e), 0);

	assert_int_equal(cache_begin(e->c, k.sha256, &alone), 0);
	assert_int_equal(cache_join(e->c, k.sha256, SIZE, &b), -EAGAIN);
	cache_fill_abort(alone, false);
}

/* Whatever somebody has done to it, who joins has a file of that size, and others keep theirs. */
static void test_mended(void **state)
{
	struct env *e = *state;
	struct key k = key_of(SHARED);
	struct cache_fill *a = join(e->c), *b;
	char hex[2 * 32 + 1], name[PATH_MAX], sidecar[PATH_MAX + 2];
	struct stat st;

	hex_encode(k.sha256, 32, hex);
	snprintf(name, sizeof(name), "%s/v1/partials/%s", e->cache, hex);
	snprintf(sidecar, sizeof(sidecar), "%s.v", name);
	assert_int_equal(put_bytes(cache_fill_fd(a), k, 0, SIZE), 0);
	assert_int_equal(truncate(name, SIZE / 2) | unlink(sidecar), 0);
	b = join(e->c);
	assert_true(is_same_file(a, b));
	assert_true(bytes_are_right(cache_fill_fd(a), k, SIZE / 2));
	assert_int_equal(fstat(cache_fill_fd(a), &st), 0);
	assert_int_equal(st.st_size, SIZE);
	cache_fill_abort(b, true);
	assert_int_equal(truncate(name, 3L * SIZE) | truncate(sidecar, 3), 0);
	b = join(e->c);
	assert_true(is_same_file(a, b));
	assert_int_equal(fstat(cache_fill_fd(a), &st), 0);
	assert_int_equal(st.st_size, SIZE);
	cache_fill_abort(a, true);
	cache_fill_abort(b, true);
	/* a sweep leaves it for later */
	cache_close(e->c);
	e->c = open_cache(e, 0);
	assert_int_equal(entries(e, "partials"), 2);
	a = join(e->c);
	assert_true(bytes_are_right(cache_fill_fd(a), k, SIZE / 2));
	cache_fill_abort(a, false);
}

/* ---- at every moment ---- */

static int child_shares(const struct env *e)
{
	struct cache_fill *f;
	int fd;

	if (cache_join(e->c, key_of(SHARED).sha256, SIZE, &f) < 0 ||
	    put_bytes(cache_fill_fd(f), key_of(SHARED), 0, SIZE) < 0)
		return 1;
	if (cache_fill_publish(f, key_of(OBJECT).sha256, SIZE, &fd) < 0)
		return 2;
	close(fd);
	return DONE;
}

/* What a second one does while the first has stopped in the middle: true if it got the file. */
static bool shares(struct env *e, struct cache_fill **ret)
{
	int r = cache_join(e->c, key_of(SHARED).sha256, SIZE, ret);

	/* the other one has just the lock for that */
	assert_true(r == 0 || r == -EAGAIN);
	if (r == 0)
		assert_int_equal(put_bytes(cache_fill_fd(*ret), key_of(SHARED), 0, SIZE), 0);
	return r == 0;
}

static void assert_published(struct env *e)
{
	struct stat st;
	int fd;

	assert_int_equal(cache_lookup(e->c, key_of(OBJECT).sha256, &fd, NULL), 0);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0400);
	assert_true(bytes_are_right(fd, key_of(SHARED), SIZE));
	close(fd);
}

static void at_every_system_call(struct env *e, bool killed)
{
	unsigned refused = 0;
	int n = 1, status = -1;

	for (; status < 0; n++) {
		struct cache_fill *f = NULL;
		pid_t pid = -1;
		bool both;
		int fd;

		status = child_stop_at(child_shares, e, n, &pid);
		both = shares(e, &f);
		refused += !both;
		if (status < 0 && killed) {
			kill(pid, SIGKILL);
			assert_int_equal(wait_child(pid), 128 + SIGKILL);
		} else if (status < 0) {
			assert_int_equal(child_finish(pid), DONE);
		}
		if (both && cache_fill_publish(f, key_of(OBJECT).sha256, SIZE, &fd) == 0)
			close(fd);
		else
			cache_fill_abort(f, true);
		if (both || !killed)
			assert_published(e);
		assert_int_equal(cache_gc(e->c, 0, NULL), 0);
		/* what a killed one has left is as good as any */
		cache_fill_abort(join(e->c), false);
		assert_int_equal(leftovers(e), 0);
		assert_false(has(e->c, key_of(OBJECT)));
	}
	assert_int_equal(status, DONE);
	assert_true(n > 40 && refused > 10);
}

static void test_beside_at_every_system_call(void **state)
{
	at_every_system_call(*state, false);
}

static void test_killed_at_every_system_call(void **state)
{
	at_every_system_call(*state, true);
}

/* ---- claims ---- */

static void test_claims(void **state)
{
	struct env *e = *state;
	struct cache_fill *fa = join(e->c), *fb = join(e->c);
	int a = cache_fill_fd(fa), b = cache_fill_fd(fb), same = dup(a), ready[2];
	char byte;
	pid_t pid;

	assert_true(claim_take(a, 100, 100) && claim_take(a, 200, 100));
	assert_true(claim_take(a, 100, 50) && claim_take(same, 100, 50));
	assert_false(claim_is_taken(a, 0, SIZE) || claim_is_taken(b, 0, 100));
	assert_true(claim_is_taken(b, 0, 101) && claim_is_taken(b, 299, 1));
	assert_false(claim_take(b, 299, 10) || claim_take(b, 0, SIZE));
	assert_true(claim_take(b, 300, 10) && claim_is_taken(a, 0, SIZE));
	claim_give(a, 100, 100);
	assert_true(claim_take(b, 100, 100) && !claim_take(a, 100, 1) && !claim_take(b, 200, 1));
	claim_give(b, 0, SIZE);
	claim_give(a, 0, SIZE);

	/* that of a process ends with it */
	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		struct cache_fill *f;

		if (cache_join(e->c, key_of(SHARED).sha256, SIZE, &f) == 0 &&
		    claim_take(cache_fill_fd(f), 500, 100) && write(ready[1], "x", 1) == 1)
			pause();
		_exit(1);
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	assert_true(!claim_take(a, 550, 1) && claim_take(a, 600, 1));
	kill(pid, SIGKILL);
	assert_int_equal(wait_child(pid), 128 + SIGKILL);
	assert_true(claim_take(a, 500, 100));
	close(ready[0]);
	close(same);
	cache_fill_abort(fa, false);
	cache_fill_abort(fb, false);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_setup, close_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_lock_of_each_name),
		TEST(test_lock_file_stays),
		TEST(test_join),
		TEST(test_mended),
		TEST(test_beside_at_every_system_call),
		TEST(test_killed_at_every_system_call),
		TEST(test_claims),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
