/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two processes at one object, in every order that matters: a child makes one call of the cache and
 * is stopped at each of its system calls in turn, the parent does the opposite meanwhile, and then
 * the child goes on. No luck with timing is needed to meet a race here.
 */
#include "cache_help.h"

#define OBJECT 1
#define OTHER 2
#define SIZE 4096
#define LONG_MS 10000 /* far more than anything here takes */

/* What a child says of its call, as an exit status. Anything else is a failure. */
enum { DONE = 10, REFUSED = 11 };

/* ---- both want to fill ---- */

static int child_begins(const struct env *e)
{
	struct cache_fill *f;
	int r = cache_begin(e->c, key_of(OBJECT).sha256, &f);

	return r == 0 ? DONE : r == -EAGAIN ? REFUSED : 1;
}

static void test_one_fills(void **state)
{
	struct env *e = *state;
	int mine = 0, theirs = 0;

	for (int n = 1;; n++) {
		struct cache_fill *f;
		pid_t pid;
		int status = child_stop_at(child_begins, e, n, &pid), r;

		if (status >= 0) {
			assert_int_equal(status, DONE);
			break;
		}
		r = cache_begin(e->c, key_of(OBJECT).sha256, &f);
		if (r < 0) {
			assert_int_equal(r, -EAGAIN);
			assert_int_equal(child_finish(pid), DONE);
			theirs++;
			continue;
		}
		cache_fill_abort(f, false);
		assert_int_equal(cache_begin(e->c, key_of(OBJECT).sha256, &f), 0);
		assert_int_equal(child_finish(pid), REFUSED);
		cache_fill_abort(f, false);
		mine++;
	}
	assert_true(mine > 2 && theirs > 2);
}

/* ---- one looks up, one removes ---- */

static int child_looks_up(const struct env *e)
{
	struct stat st;
	int fd, r;

	r = cache_lookup(e->c, key_of(OBJECT).sha256, &fd, NULL);
	if (r < 0)
		return r == -ENOENT ? REFUSED : 1;
	if (fstat(fd, &st) < 0 || st.st_nlink != 1)
		return 2; /* what nobody else finds is of no use in a cache */
	return bytes_are_right(fd, key_of(OBJECT), SIZE) ? DONE : 3;
}

static void test_lookup_against_gc(void **state)
{
	struct env *e = *state;
	int removed = 0, spared = 0;

	for (int n = 1;; n++) {
		uint64_t freed;
		pid_t pid;
		int r, status;

		r = publish(e->c, key_of(OBJECT), SIZE);
		assert_true(r == 0 || r == -EEXIST);
		status = child_stop_at(child_looks_up, e, n, &pid);
		if (status >= 0) {
			assert_int_equal(status, DONE);
			break;
		}
		assert_int_equal(cache_gc(e->c, 0, &freed), 0);
		if (freed) {
			/* And a new one comes in its place. */
			assert_int_equal(publish(e->c, key_of(OBJECT), SIZE), 0);
			removed++;
		} else {
			spared++;
		}
		assert_int_equal(child_finish(pid), DONE);
	}
	assert_true(removed > 2 && spared > 2);
}

/* A gc that is about to remove an object leaves it when it is used in the meantime. */
static int child_removes_one(const struct env *e)
{
	return cache_gc(e->c, SIZE, NULL) == 0 ? DONE : 1;
}

static void test_gc_against_use(void **state)
{
	struct env *e = *state;
	char path[PATH_MAX];
	int used = 0, gone = 0;

	for (int n = 1;; n++) {
		pid_t pid;
		int status, fd, r;

		for (unsigned i = OBJECT; i <= OTHER; i++) {
			r = publish(e->c, key_of(i), SIZE);
			assert_true(r == 0 || r == -EEXIST);
			used_at(e->c, key_of(i), 1000 * i);
		}
		status = child_stop_at(child_removes_one, e, n, &pid);
		if (status >= 0) {
			assert_int_equal(status, DONE);
			assert_false(has(e->c, key_of(OBJECT)));
			assert_true(has(e->c, key_of(OTHER)));
			break;
		}
		r = cache_lookup(e->c, key_of(OBJECT).sha256, &fd, NULL);
		if (r == 0)
			close(fd);
		else
			assert_int_equal(r, -ENOENT);
		assert_int_equal(child_finish(pid), DONE);
		assert_int_equal(cache_path(e->c, key_of(OBJECT).sha256, path, sizeof(path)), r);
		*(r == 0 ? &used : &gone) += 1;
	}
	assert_true(used > 2 && gone > 2);
}

/* ---- one drops what another has replaced ---- */

static int child_drops(const struct env *e)
{
	return cache_drop(e->c, key_of(OBJECT).sha256, e->fd) == 0 ? DONE : 1;
}

static void test_drop_against_replace(void **state)
{
	struct env *e = *state;
	int replaced = 0;

	for (int n = 1;; n++) {
		int status, fd, r;
		pid_t pid;

		r = publish(e->c, key_of(OBJECT), SIZE);
		assert_true(r == 0 || r == -EEXIST);
		assert_int_equal(cache_lookup(e->c, key_of(OBJECT).sha256, &e->fd, NULL), 0);
		status = child_stop_at(child_drops, e, n, &pid);
		if (status >= 0) {
			assert_int_equal(status, DONE);
			assert_false(has(e->c, key_of(OBJECT)));
			close(e->fd);
			break;
		}
		/* The parent finds the same damage, and has a better one at once. */
		if (cache_lookup(e->c, key_of(OBJECT).sha256, &fd, NULL) == 0) {
			assert_int_equal(cache_drop(e->c, key_of(OBJECT).sha256, fd), 0);
			close(fd);
		}
		r = publish(e->c, key_of(OBJECT), SIZE);
		assert_int_equal(child_finish(pid), DONE);
		if (r == 0)
			replaced++;
		else
			assert_int_equal(r, -EAGAIN); /* the child is at it */
		assert_int_equal(has(e->c, key_of(OBJECT)), r == 0);
		close(e->fd);
	}
	assert_true(replaced > 2);
}

/* ---- one publishes, one removes all it can ---- */

static int child_publishes(const struct env *e)
{
	struct key k = key_of(OBJECT);
	struct cache_fill *f;
	int fd, r;

	r = cache_begin(e->c, k.sha256, &f);
	if (r < 0)
		return r == -EAGAIN ? REFUSED : 1;
	if (cache_fill_restart(f, "v") < 0 || cache_fill_reserve(f, SIZE) < 0 ||
	    put_bytes(cache_fill_fd(f), k, 0, SIZE) < 0 || cache_fill_progress(f, SIZE) < 0 ||
	    cache_fill_publish(f, NULL, SIZE, &fd) < 0)
		return 2;
	/* As long as it is open here, it is there for all. */
	return has(e->c, k) && bytes_are_right(fd, k, SIZE) && has(e->c, k) ? DONE : 3;
}

static void test_publish_against_gc(void **state)
{
	struct env *e = *state;
	int n = 1;

	for (;; n++) {
		pid_t pid;
		int status;

		assert_int_equal(cache_gc(e->c, 0, NULL), 0);
		status = child_stop_at(child_publishes, e, n, &pid);
		if (status < 0) {
			assert_int_equal(cache_gc(e->c, 0, NULL), 0);
			assert_int_equal(child_finish(pid), DONE);
			continue;
		}
		assert_int_equal(status, DONE);
		break;
	}
	assert_true(n > 40);
	assert_int_equal(entries(e, "partials") + held(e) + entries(e, "tmp"), 0);
}

/* ---- waiting ---- */

static void *cancel_it(void *cancel)
{
	cancel_fire(cancel);
	return NULL;
}

static void test_wait(void **state)
{
	struct env *e = *state;
	struct cache *c = e->c;
	struct key k = key_of(1);
	struct cache_fill *f;
	struct cancel cancel;
	pthread_t thread;
	int ready[2];
	int64_t start;
	char byte;
	pid_t pid;

	assert_int_equal(cache_wait(c, k.sha256, 0, NULL), 0);
	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		if (cache_begin(c, k.sha256, &f) == 0 && write(ready[1], "x", 1) == 1)
			pause();
		_exit(1);
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	assert_int_equal(cache_begin(c, k.sha256, &f), -EAGAIN);
	start = now_ms();
	assert_int_equal(cache_wait(c, k.sha256, 30, NULL), -ETIMEDOUT);
	assert_true(now_ms() - start >= 30);
	cancel_init(&cancel, NULL);
	assert_int_equal(pthread_create(&thread, NULL, cancel_it, &cancel), 0);
	assert_int_equal(cache_wait(c, k.sha256, -1, &cancel), -ECANCELED);
	pthread_join(thread, NULL);
	assert_int_equal(cache_wait(c, k.sha256, -1, &cancel), -ECANCELED);
	cancel_finish(&cancel);

	/* It dies, and its lock with it. */
	kill(pid, SIGKILL);
	assert_int_equal(cache_wait(c, k.sha256, LONG_MS, NULL), 0);
	assert_int_equal(wait_child(pid), 128 + SIGKILL);
	assert_int_equal(cache_begin(c, k.sha256, &f), 0);
	cache_fill_abort(f, false);
	close(ready[0]);
}

/* A child that was forked during a fill does not hold the lock on. */
static void test_fork_during_fill(void **state)
{
	struct env *e = *state;
	struct cache *c = e->c;
	struct cache_fill *f;
	pid_t pid;

	assert_int_equal(cache_begin(c, key_of(1).sha256, &f), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		pause();
		_exit(1);
	}
	cache_fill_abort(f, false);
	assert_int_equal(cache_begin(c, key_of(1).sha256, &f), 0);
	cache_fill_abort(f, false);
	kill(pid, SIGKILL);
	assert_int_equal(wait_child(pid), 128 + SIGKILL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_setup, close_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_one_fills),	       TEST(test_lookup_against_gc),
		TEST(test_gc_against_use),     TEST(test_drop_against_replace),
		TEST(test_publish_against_gc), TEST(test_wait),
		TEST(test_fork_during_fill),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
