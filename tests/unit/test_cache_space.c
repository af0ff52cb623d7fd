/* SPDX-License-Identifier: Apache-2.0 */
/* The space of the cache: what goes first, what never goes, a full disk, and leftovers. */
#include "cache_help.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <time.h>

#include "mount_help.h"

/* ---- space ---- */

static void test_lru(void **state)
{
	struct env *e = *state;
	struct cache *c = open_cache(e, 0);
	uint64_t freed = 0;
	int fd;

	for (unsigned i = 0; i < 5; i++) {
		assert_int_equal(publish(c, key_of(i), 65536), 0);
		used_at(c, key_of(i), 1000 + 100 * (i ^ 1)); /* oldest: 1, 0, 3, 2, 5, 4 */
	}
	assert_int_equal(cache_lookup(c, key_of(1).sha256, &fd, NULL), 0); /* now the newest */
	close(fd);
	assert_int_equal(cache_lookup(c, key_of(3).sha256, &fd, NULL), 0);
	used_at(c, key_of(3), 1); /* the oldest, but open */
	assert_int_equal(cache_gc(c, 3 * 65536, &freed), 0);
	assert_int_equal(freed, 2 * 65536);
	assert_false(has(c, key_of(0)) || has(c, key_of(2)));
	assert_true(has(c, key_of(1)) && has(c, key_of(3)) && has(c, key_of(4)));

	assert_int_equal(cache_gc(c, 0, &freed), 0);
	assert_int_equal(freed, 2 * 65536);
	assert_true(has(c, key_of(3)));
	close(fd);
	assert_int_equal(cache_gc(c, 0, &freed), 0);
	assert_int_equal(freed, 65536);
	assert_int_equal(entries(e, "objects"), 0);
	cache_close(c);
}

static int count_sizes(void *ctx, const struct cache_object *o)
{
	uint64_t *sum = ctx;

	*sum += o->size;
	return o->used == 4242 ? 42 : 0;
}

static void test_limit(void **state)
{
	struct env *e = *state;
	struct cache *c = open_cache(e, MIB);
	struct cache_fill *f;
	uint64_t sum = 0;
	int fd, fds[4];

	for (unsigned i = 0; i < 4; i++) {
		assert_int_equal(publish(c, key_of(i), 256 * KIB), 0);
		used_at(c, key_of(i), 1000 + i);
	}
	/* More than the limit cannot be had, and costs nothing. */
	assert_int_equal(cache_reserve(c, MIB + 1), -ENOSPC);
	assert_int_equal(cache_reserve(c, UINT64_MAX), -ENOSPC);
	assert_true(has(c, key_of(0)));
	assert_int_equal(cache_reserve(c, 1), 0);
	assert_false(has(c, key_of(0)));
	assert_true(has(c, key_of(1)));
	assert_int_equal(publish(c, key_of(4), 512 * KIB), 0);
	used_at(c, key_of(4), 2000);
	assert_false(has(c, key_of(1)));
	assert_true(has(c, key_of(3)) && has(c, key_of(4)));

	/* Unreserved bytes are counted when they are published. */
	assert_int_equal(cache_begin(c, key_of(5).sha256, &f), 0);
	assert_int_equal(put_bytes(cache_fill_fd(f), key_of(5), 0, 300 * KIB), 0);
	assert_int_equal(cache_fill_publish(f, NULL, 300 * KIB, &fd), 0);
	assert_int_equal(cache_list(c, count_sizes, &sum), 0);
	assert_true(sum <= MIB);
	assert_true(has(c, key_of(5)));

	/* All of it in use: no room, and nothing that is not in use is removed in vain. */
	assert_int_equal(cache_gc(c, 0, NULL), 0);
	close(fd);
	for (unsigned i = 0; i < 4; i++) {
		assert_int_equal(publish(c, key_of(10 + i), 200 * KIB), 0);
		assert_int_equal(cache_lookup(c, key_of(10 + i).sha256, &fds[i], NULL), 0);
	}
	close(fds[0]);
	assert_int_equal(cache_reserve(c, 900 * KIB), -ENOSPC);
	assert_true(has(c, key_of(10)));
	assert_int_equal(cache_reserve(c, 400 * KIB), 0);
	assert_false(has(c, key_of(10)));
	for (unsigned i = 1; i < 4; i++) {
		assert_true(has(c, key_of(10 + i)));
		close(fds[i]);
	}
	cache_close(c);
}

/* A partial counts and goes like an object, but not one that is being filled. */
static void test_partials_are_evicted(void **state)
{
	struct env *e = *state;
	struct cache *c = open_cache(e, MIB);
	struct key old = key_of(1), live = key_of(2);
	struct cache_fill *f;
	char path[PATH_MAX];
	uint64_t freed = 1;
	int fd;

	assert_int_equal(cache_begin(c, old.sha256, &f), 0);
	assert_int_equal(cache_fill_restart(f, "v"), 0);
	assert_int_equal(put_bytes(cache_fill_fd(f), old, 0, 400 * KIB), 0);
	assert_int_equal(cache_fill_progress(f, 400 * KIB), 0);
	cache_fill_abort(f, true);
	assert_int_equal(cache_begin(c, live.sha256, &f), 0);
	assert_int_equal(cache_fill_reserve(f, 400 * KIB), 0);
	assert_int_equal(cache_fill_reserve(f, 600 * KIB), 0); /* grows within the limit */
	assert_int_equal(access(inside(e, "partials", old, "", path), F_OK), 0);
	assert_int_equal(cache_gc(c, MIB, &freed), 0);
	assert_int_equal(freed, 0);
	assert_int_equal(cache_fill_reserve(f, 900 * KIB), 0);
	assert_int_equal(access(inside(e, "partials", old, "", path), F_OK), -1);
	assert_int_equal(access(inside(e, "partials", old, ".v", path), F_OK), -1);
	assert_int_equal(cache_fill_reserve(f, MIB + 4096), -ENOSPC);
	assert_int_equal(cache_fill_reserve(f, UINT64_MAX), -ENOSPC);
	assert_int_equal(put_bytes(cache_fill_fd(f), live, 0, 900 * KIB), 0);
	assert_int_equal(cache_fill_publish(f, NULL, 900 * KIB, &fd), 0);
	close(fd);
	cache_close(c);
}

/* ---- grants ---- */

static struct cache_fill *asks; /* for room, just before another fill gets its blocks */
static int answer;

/* In place of libc's, so that the moment before is the same each time. */
int fallocate(int fd, int mode, off_t off, off_t n)
{
	struct cache_fill *f = asks;

	asks = NULL;
	if (f)
		answer = cache_fill_reserve(f, 400 * KIB);
	return (int)syscall(SYS_fallocate, fd, mode, off, n);
}

static struct cache_fill *begin(struct cache *c, unsigned i)
{
	struct cache_fill *f = NULL;

	assert_int_equal(cache_begin(c, key_of(i).sha256, &f), 0);
	return f;
}

/* Room that a fill was granted counts before it has its blocks, and no longer after its end. */
static void test_grants(void **state)
{
	struct env *e = *state;
	struct cache *c = open_cache(e, MIB);
	struct cache_fill *first = begin(c, 1), *second = begin(c, 2), *third = begin(c, 3);

	asks = second;
	assert_int_equal(cache_fill_reserve(first, 700 * KIB), 0);
	assert_int_equal(answer, -ENOSPC);
	cache_fill_abort(first, false);
	asks = third;
	assert_int_equal(cache_fill_reserve(second, 400 * KIB), 0);
	assert_int_equal(answer, 0);
	assert_int_equal(cache_fill_reserve(third, 700 * KIB), -ENOSPC);
	/* what could not be had is not kept either */
	assert_int_equal(cache_fill_reserve(second, 600 * KIB), 0);
	assert_int_equal(cache_fill_restart(second, NULL), 0);
	assert_int_equal(cache_fill_reserve(third, 900 * KIB), 0);
	cache_fill_abort(second, false);
	cache_fill_abort(third, false);
	cache_close(c);
}

/* Those of files that several fill, which have their blocks when they are written. */
static void test_grants_of_parts(void **state)
{
	struct env *e = *state;
	struct cache *c = open_cache(e, MIB);
	struct cache_fill *f, *other = begin(c, 2);

	assert_int_equal(cache_join(c, key_of(1).sha256, 4 * MIB, &f), 0);
	assert_int_equal(cache_fill_more(f, 300 * KIB), 0);
	assert_int_equal(cache_fill_more(f, 300 * KIB), 0);
	assert_int_equal(cache_fill_reserve(other, 500 * KIB), -ENOSPC);
	assert_int_equal(put_bytes(cache_fill_fd(f), key_of(1), 0, 300 * KIB), 0);
	assert_int_equal(cache_fill_reserve(other, 500 * KIB), -ENOSPC);
	cache_fill_less(f, 300 * KIB);
	assert_int_equal(cache_fill_reserve(other, 500 * KIB), 0);
	assert_int_equal(cache_fill_more(f, 300 * KIB), -ENOSPC);
	cache_fill_abort(other, false);
	assert_int_equal(cache_fill_more(f, 300 * KIB), 0);
	cache_fill_abort(f, false);
	cache_close(c);
}

static void *fill_and_hold(void *ctx)
{
	struct env *e = ctx;
	static atomic_uint next;
	struct key k = key_of(atomic_fetch_add(&next, 1));
	struct cache_fill *f;
	int fd = -1;

	if (cache_begin(e->c, k.sha256, &f) < 0)
		return (void *)-1;
	if (cache_fill_reserve(f, 300 * KIB) < 0 ||
	    put_bytes(cache_fill_fd(f), k, 0, 300 * KIB) < 0 ||
	    cache_fill_publish(f, NULL, 300 * KIB, &fd) < 0)
		cache_fill_abort(f, false);
	return (void *)(intptr_t)fd;
}

/* However the threads meet: three of eight files have room, none more and none fewer. */
static void test_limit_of_threads(void **state)
{
	struct env *e = *state;
	pthread_t threads[8];
	int fds[8];
	void *fd;

	e->c = open_cache(e, MIB);
	for (int round = 0; round < 12; round++) {
		unsigned kept = 0;

		for (unsigned i = 0; i < 8; i++)
			pthread_create(&threads[i], NULL, fill_and_hold, e);
		for (unsigned i = 0; i < 8; i++) {
			pthread_join(threads[i], &fd);
			kept += (intptr_t)fd >= 0;
			fds[i] = (int)(intptr_t)fd;
		}
		assert_int_equal(kept, 3);
		for (unsigned i = 0; i < 8; i++)
			fd_close(fds[i]);
		assert_int_equal(cache_gc(e->c, 0, NULL), 0);
	}
	cache_close(e->c);
}

/* ---- disks ---- */

static void put_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

/* Mounts of our own, for root or where user namespaces are allowed. */
static bool may_mount(void)
{
	unsigned uid = geteuid(), gid = getegid();
	char map[64];

	if (!own_mounts(uid ? CLONE_NEWUSER : 0))
		return false;
	if (uid) {
		snprintf(map, sizeof(map), "%u %u 1", uid, uid);
		put_text("/proc/self/uid_map", map);
		put_text("/proc/self/setgroups", "deny");
		snprintf(map, sizeof(map), "%u %u 1", gid, gid);
		put_text("/proc/self/gid_map", map);
	}
	return true;
}

/* A real, small disk: its end shows before the first byte, and a gc makes room. */
static void test_small_disk(void **state)
{
	struct env *e = *state;
	struct cache_fill *f;
	struct statvfs vfs;
	struct cache *c;
	char *block;
	int fd, big;

	if (!may_mount())
		skip();
	assert_int_equal(mkdir(e->cache, 0700), 0);
	assert_int_equal(mount("tmpfs", e->cache, "tmpfs", 0, "size=8m,mode=0700"), 0);
	c = open_cache(e, 0); /* a tenth: 819 KiB */
	assert_int_equal(cache_reserve(c, 800 * KIB), 0);
	assert_int_equal(cache_reserve(c, 900 * KIB), -ENOSPC);
	cache_close(c);

	c = open_cache(e, GIB);
	for (unsigned i = 0; i < 7; i++) {
		assert_int_equal(publish(c, key_of(i), MIB), 0);
		used_at(c, key_of(i), 1000 + i);
	}
	/* 5 % of 8 MiB stay free: two more do not fit, so the two oldest go. */
	assert_int_equal(publish(c, key_of(8), 2 * MIB), 0);
	assert_false(has(c, key_of(0)) || has(c, key_of(1)));
	assert_true(has(c, key_of(2)) && has(c, key_of(6)));
	assert_int_equal(statvfs(e->cache, &vfs), 0);
	assert_true(vfs.f_bavail >= vfs.f_blocks / 20);

	assert_int_equal(cache_begin(c, key_of(9).sha256, &f), 0);
	assert_int_equal(cache_fill_reserve(f, 8 * MIB), -ENOSPC); /* never, so nothing goes */
	assert_true(has(c, key_of(2)));
	assert_int_equal(cache_fill_reserve(f, 5 * MIB), 0);
	assert_false(has(c, key_of(5)));
	cache_fill_abort(f, false);

	/* Full to the last byte by someone else: what is there can be read, gc and names work. */
	assert_int_equal(cache_tmpfile(c, &big), 0);
	block = must(calloc(1, 65536));
	for (uint64_t at = 0; pwrite(big, block, 65536, (off_t)at) > 0; at += 65536)
		;
	free(block);
	assert_int_equal(statvfs(e->cache, &vfs), 0);
	assert_int_equal(vfs.f_bavail, 0);
	cache_close(c);
	c = open_cache(e, GIB);
	assert_int_equal(cache_lookup(c, key_of(8).sha256, &fd, NULL), 0);
	assert_true(bytes_are_right(fd, key_of(8), 2 * MIB));
	assert_int_equal(cache_begin(c, key_of(9).sha256, &f), 0);
	assert_int_equal(cache_fill_reserve(f, 3 * MIB), -ENOSPC);
	cache_fill_abort(f, false);
	close(fd);
	assert_int_equal(publish(c, key_of(9), 64 * KIB), 0);
	assert_false(has(c, key_of(8)));
	close(big);
	cache_close(c);
	assert_int_equal(umount(e->cache), 0);
}

/* ---- leftovers ---- */

static void make_file(const char *path, int64_t age_s)
{
	close(open(path, O_CREAT | O_WRONLY, 0600));
	set_mtime(path, time(NULL) - age_s);
}

static void test_sweep(void **state)
{
	struct env *e = *state;
	struct cache *c = open_cache(e, 0);
	struct cache_fill *f;
	char path[PATH_MAX], tmp[256];
	int alive;

	snprintf(tmp, sizeof(tmp), "%s/v1/tmp/dead", e->cache);
	make_file(tmp, 0);
	snprintf(tmp, sizeof(tmp), "%s/v1/tmp/alive", e->cache);
	make_file(tmp, 1000000);
	alive = open(tmp, O_RDWR);
	assert_int_equal(flock(alive, LOCK_EX), 0);
	make_file(inside(e, "partials", key_of(2), "", path), 0);   /* without a sidecar */
	make_file(inside(e, "partials", key_of(3), ".v", path), 0); /* without a partial */
	leave_partial(c, key_of(4), "v");
	leave_partial(c, key_of(5), "v");
	set_mtime(inside(e, "partials", key_of(5), "", path),
		  time(NULL) - CACHE_PARTIAL_MAX_AGE_S - 10);
	/* The same, but alive: as old as that, and without a sidecar. */
	assert_int_equal(cache_begin(c, key_of(6).sha256, &f), 0);
	set_mtime(inside(e, "partials", key_of(6), "", path), 1000);
	assert_int_equal(entries(e, "partials"), 7);

	/* Of version 0.1.0: in use, and not. */
	snprintf(tmp, sizeof(tmp), "%s/v1/locks", e->cache);
	assert_int_equal(mkdir(tmp, 0700), 0);
	snprintf(tmp, sizeof(tmp), "%s/v1/partial", e->cache);
	assert_int_equal(mkdir(tmp, 0700), 0);
	make_file(inside(e, "partial", key_of(7), ".v", path), 0);
	set_mtime(tmp, time(NULL) - CACHE_PARTIAL_MAX_AGE_S - 10);

	cache_close(open_cache(e, 0));
	assert_int_equal(access(tmp, F_OK), -1);
	assert_int_equal(entries(e, "locks"), 0);
	assert_int_equal(entries(e, "tmp"), 1);
	assert_int_equal(held(e), 1);
	assert_int_equal(entries(e, "partials"), 3);
	assert_int_equal(access(inside(e, "partials", key_of(4), "", path), F_OK), 0);
	assert_int_equal(access(inside(e, "partials", key_of(4), ".v", path), F_OK), 0);
	assert_int_equal(access(inside(e, "partials", key_of(6), "", path), F_OK), 0);
	cache_fill_abort(f, false);

	close(alive);
	assert_int_equal(cache_gc(c, UINT64_MAX, NULL), 0);
	assert_int_equal(entries(e, "tmp"), 0);
	assert_int_equal(entries(e, "partials"), 2);
	cache_close(c);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, env_setup, env_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_lru),	       TEST(test_limit),	   TEST(test_partials_are_evicted),
		TEST(test_grants),     TEST(test_grants_of_parts), TEST(test_limit_of_threads),
		TEST(test_small_disk), TEST(test_sweep),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
