/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What processes and threads do to each other in one cache: they want the same object, die with
 * SIGKILL at every step, remove what others use. A child reports by its exit status only.
 */
#include "cache_help.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#define SIZE 20000 /* of the objects here */
#define PART 8192  /* what counts when a fill dies */
#define VALIDATOR "\"v1\" http://origin/object"
#define LIFE 3	      /* the object of one life */
#define STEP_MS 10000 /* far more than anything here takes */

/* ---- one fill for all ---- */

/* What children share: counters in a shared mapping. */
struct shared {
	int fills, inside, worst, done;
};

static struct shared *shared_new(void)
{
	struct shared *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE,
				MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(s, MAP_FAILED);
	return s;
}

static void go_in(struct shared *s)
{
	if (__atomic_add_fetch(&s->inside, 1, __ATOMIC_SEQ_CST) != 1)
		__atomic_store_n(&s->worst, 1, __ATOMIC_SEQ_CST);
}

static void go_out(struct shared *s)
{
	__atomic_sub_fetch(&s->inside, 1, __ATOMIC_SEQ_CST);
}

/* The loop that cache.h describes. 0 and a descriptor, or -errno. */
static int get(struct cache *c, struct key k, struct shared *s, int *ret_fd)
{
	for (;;) {
		struct cache_fill *f;
		int r = cache_lookup(c, k.sha256, ret_fd, NULL);

		if (r != -ENOENT)
			return r;
		r = cache_begin(c, k.sha256, &f);
		if (r == -EEXIST)
			continue;
		if (r == -EAGAIN) {
			r = cache_wait(c, k.sha256, STEP_MS, NULL);
			if (r == 0)
				continue;
		}
		if (r < 0)
			return r;
		go_in(s);
		__atomic_add_fetch(&s->fills, 1, __ATOMIC_SEQ_CST);
		r = put_bytes(cache_fill_fd(f), k, 0, SIZE);
		go_out(s);
		if (r == 0)
			r = cache_fill_publish(f, NULL, SIZE, ret_fd);
		if (r < 0)
			cache_fill_abort(f, false);
		return r;
	}
}

/* fork() that starts the child when the parent has closed its end of the pipe. */
static pid_t fork_at(int gate[2])
{
	pid_t pid = fork();
	char c;

	assert_true(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(gate[1]);
		if (read(gate[0], &c, 1) != 0)
			_exit(98);
	}
	return pid;
}

static void test_processes_fetch_once(void **state)
{
	struct env *e = *state;
	struct shared *s = shared_new();
	struct cache *c = open_cache(e, 0);
	pid_t pids[6];
	int gate[2];

	assert_int_equal(pipe2(gate, O_CLOEXEC), 0);
	for (unsigned i = 0; i < ARRAY_SIZE(pids); i++) {
		pids[i] = fork_at(gate);
		if (pids[i])
			continue;
		struct cache *own = c;

		/* Half of them open the cache themselves, half inherit it. */
		if (i % 2 && cache_open(e->cache, 0, &own) < 0)
			_exit(1);
		for (unsigned n = 0; n < 50; n++) {
			int fd;

			if (get(own, key_of(n), s, &fd) < 0)
				_exit(2);
			if (!bytes_are_right(fd, key_of(n), SIZE))
				_exit(3);
			close(fd);
		}
		if (own != c)
			cache_close(own);
		_exit(0);
	}
	close(gate[0]);
	close(gate[1]);
	for (unsigned i = 0; i < ARRAY_SIZE(pids); i++)
		assert_int_equal(wait_child(pids[i]), 0);
	assert_int_equal(s->fills, 50);
	assert_int_equal(entries(e, "objects"), 50);
	assert_int_equal(held(e) + entries(e, "partials") + entries(e, "tmp"), 0);
	cache_close(c);
	munmap(s, sizeof(*s));
}

struct thread_arg {
	struct cache *c;
	struct shared *s;
	int bad;
};

static void *get_many(void *ctx)
{
	struct thread_arg *a = ctx;

	for (unsigned n = 0; n < 50; n++) {
		int fd;

		if (get(a->c, key_of(n), a->s, &fd) < 0 || !bytes_are_right(fd, key_of(n), SIZE)) {
			a->bad = 1;
			return NULL;
		}
		close(fd);
		if (cache_reserve(a->c, 4096) < 0)
			a->bad = 1;
	}
	return NULL;
}

static void test_threads_fetch_once(void **state)
{
	struct env *e = *state;
	struct shared *s = shared_new();
	struct thread_arg a[6];
	pthread_t t[6];
	struct cache *c = open_cache(e, 0);

	for (unsigned i = 0; i < 6; i++) {
		a[i] = (struct thread_arg){ c, s, 0 };
		assert_int_equal(pthread_create(&t[i], NULL, get_many, &a[i]), 0);
	}
	for (unsigned i = 0; i < 6; i++) {
		pthread_join(t[i], NULL);
		assert_int_equal(a[i].bad, 0);
	}
	assert_int_equal(s->fills, 50);
	cache_close(c);
	munmap(s, sizeof(*s));
}

/* The file of a lock is made and removed all the time, by all: never are two inside. */
static void test_lock_is_exclusive(void **state)
{
	struct env *e = *state;
	struct shared *s = shared_new();
	struct cache *c = open_cache(e, 0);
	struct key k = key_of(1);
	pid_t pids[5];
	int gate[2];

	assert_int_equal(pipe2(gate, O_CLOEXEC), 0);
	for (unsigned i = 0; i < ARRAY_SIZE(pids); i++) {
		pids[i] = fork_at(gate);
		if (pids[i])
			continue;
		for (int n = 0; n < 100; n++) {
			struct cache_fill *f;
			int r;

			if (i == 0) { /* the sweeper */
				if (cache_gc(c, UINT64_MAX, NULL) < 0)
					_exit(1);
				continue;
			}
			do
				r = cache_begin(c, k.sha256, &f);
			while (r == -EAGAIN);
			if (r < 0)
				_exit(2);
			go_in(s);
			if (put_bytes(cache_fill_fd(f), k, 0, 100) < 0)
				_exit(3);
			go_out(s);
			cache_fill_abort(f, false);
		}
		_exit(0);
	}
	close(gate[0]);
	close(gate[1]);
	for (unsigned i = 0; i < ARRAY_SIZE(pids); i++)
		assert_int_equal(wait_child(pids[i]), 0);
	assert_int_equal(s->worst, 0);
	cache_close(c);
	munmap(s, sizeof(*s));
}

/* ---- death ---- */

enum step { OPENED, BEGUN, RESTARTED, RESERVED, WRITTEN, NOTED, BEHIND, STEPS };

/* A fill up to `step`, then SIGKILL; never returns. */
static void fill_and_die(const struct env *e, struct key k, enum step step)
{
	struct cache_fill *f = NULL;
	struct cache *c;
	int r = 0;

	if (cache_open(e->cache, 0, &c) < 0)
		_exit(1);
	if (step >= BEGUN)
		r = cache_begin(c, k.sha256, &f);
	if (r == 0 && step >= RESTARTED)
		r = cache_fill_restart(f, VALIDATOR);
	if (r == 0 && step >= RESERVED)
		r = cache_fill_reserve(f, SIZE);
	if (r == 0 && step >= WRITTEN)
		r = put_bytes(cache_fill_fd(f), k, 0, PART);
	if (r == 0 && step >= NOTED)
		r = cache_fill_progress(f, PART);
	if (r == 0 && step >= BEHIND) /* bytes with a hole before them, which do not count */
		r = put_bytes(cache_fill_fd(f), k, PART + 5000, 1000);
	if (r < 0)
		_exit(2);
	raise(SIGKILL);
	_exit(3);
}

/* Takes over what a dead one left: at once, with right bytes only, to a right object. */
static uint64_t adopt(struct cache *c, struct key k)
{
	char validator[64];
	struct cache_fill *f;
	uint64_t len = 0;
	struct stat st;
	int fd, r;

	r = cache_begin(c, k.sha256, &f);
	if (r == 0) {
		assert_int_equal(cache_fill_partial(f, &len, validator, sizeof(validator)), 0);
		assert_string_equal(validator, len ? VALIDATOR : "");
		assert_int_equal(fstat(cache_fill_fd(f), &st), 0);
		assert_int_equal(st.st_size, len);
		assert_true(bytes_are_right(cache_fill_fd(f), k, len));
		assert_int_equal(put_bytes(cache_fill_fd(f), k, len, SIZE - len), 0);
		assert_int_equal(cache_fill_publish(f, NULL, SIZE, &fd), 0);
		close(fd);
	} else {
		assert_int_equal(r, -EEXIST); /* it had come as far as that */
		len = SIZE;
	}
	assert_int_equal(cache_lookup(c, k.sha256, &fd, NULL), 0);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_size, SIZE);
	assert_int_equal(st.st_mode & 07777, 0400);
	assert_true(bytes_are_right(fd, k, SIZE));
	close(fd);
	return len;
}

static void test_dead_holder_is_adopted(void **state)
{
	struct env *e = *state;
	struct cache *c = open_cache(e, 0);

	for (enum step step = OPENED; step < STEPS; step++) {
		struct key k = key_of(step);
		pid_t pid = fork();

		assert_true(pid >= 0);
		if (pid == 0)
			fill_and_die(e, k, step);
		assert_int_equal(wait_child(pid), 128 + SIGKILL);
		assert_int_equal(adopt(c, k), step >= NOTED ? PART : 0);
	}
	assert_int_equal(entries(e, "partials") + held(e) + entries(e, "tmp"), 0);
	cache_close(c);
}

/* Everything there is to do with an object, for the kills below; returns its exit status. */
static int live_whole_life(const struct env *e)
{
	const struct key k = key_of(LIFE);
	struct cache_fill *f;
	struct cache *c;
	int fd;

	if (cache_open(e->cache, 0, &c) < 0 || cache_begin(c, k.sha256, &f) < 0)
		return 1;
	if (cache_fill_restart(f, VALIDATOR) < 0 || cache_fill_reserve(f, SIZE) < 0 ||
	    put_bytes(cache_fill_fd(f), k, 0, PART) < 0 || cache_fill_progress(f, PART) < 0)
		return 2;
	cache_fill_abort(f, true);
	if (cache_begin(c, k.sha256, &f) < 0 ||
	    put_bytes(cache_fill_fd(f), k, PART, SIZE - PART) < 0)
		return 3;
	if (cache_fill_publish(f, NULL, SIZE, &fd) < 0)
		return 4;
	/* Right bytes, but dropped all the same; then filled anew, and removed. */
	if (cache_drop(c, k.sha256, fd) < 0)
		return 5;
	close(fd);
	if (publish(c, k, SIZE) < 0 || cache_gc(c, 0, NULL) < 0 || has(c, k))
		return 6;
	return publish(c, k, SIZE) < 0 ? 7 : 0;
}

static void test_killed_at_every_system_call(void **state)
{
	struct env *e = *state;
	struct key k = key_of(LIFE);
	int n = 1, adopted = 0;

	for (bool killed = true; killed; n++) {
		struct cache *c;
		uint64_t len;
		pid_t pid;
		int status = child_stop_at(live_whole_life, e, n, &pid);

		killed = status < 0;
		if (!killed) {
			assert_int_equal(status, 0);
		} else {
			kill(pid, SIGKILL);
			assert_int_equal(wait_child(pid), 128 + SIGKILL);
		}
		c = open_cache(e, 0);
		len = adopt(c, k);
		adopted += len == PART;
		assert_int_equal(entries(e, "partials") + held(e) + entries(e, "tmp"), 0);
		assert_int_equal(entries(e, "objects"), 1);
		cache_close(c);
		assert_int_equal(walk(e->cache, true), 0);
	}
	assert_true(n > 200);
	assert_true(adopted > 10);
}

/* ---- use ---- */

static void test_gc_spares_what_others_use(void **state)
{
	struct env *e = *state;
	struct cache *c = open_cache(e, 0);
	struct key k = key_of(1);
	int ready[2], fd;
	uint64_t freed;
	char byte;
	pid_t pid;

	assert_int_equal(publish(c, k, SIZE), 0);
	assert_int_equal(publish(c, key_of(2), SIZE), 0);
	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		int copy;

		/* Its own cache and descriptor, of which it keeps a copy only. */
		if (cache_open(e->cache, 0, &c) < 0 || cache_lookup(c, k.sha256, &fd, NULL) < 0)
			_exit(1);
		copy = dup(fd);
		close(fd);
		cache_close(c);
		if (copy >= 0 && write(ready[1], "x", 1) == 1)
			pause();
		_exit(1);
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	assert_int_equal(cache_gc(c, 0, &freed), 0);
	assert_true(has(c, k));
	assert_false(has(c, key_of(2)));
	kill(pid, SIGKILL);
	assert_int_equal(wait_child(pid), 128 + SIGKILL);
	assert_int_equal(cache_gc(c, 0, &freed), 0);
	assert_true(freed >= SIZE);
	assert_false(has(c, k));
	close(ready[0]);
	cache_close(c);
}

/* Readers, fillers and gc at once: what a reader has open is right, and stays in the cache. */
static void test_gc_against_readers(void **state)
{
	struct env *e = *state;
	struct shared *s = shared_new();
	struct cache *c = open_cache(e, 0);
	pid_t pids[4];
	int gate[2];

	assert_int_equal(pipe2(gate, O_CLOEXEC), 0);
	for (unsigned i = 0; i < ARRAY_SIZE(pids); i++) {
		pids[i] = fork_at(gate);
		if (pids[i])
			continue;
		while (i == 0 && __atomic_load_n(&s->done, __ATOMIC_SEQ_CST) < 3)
			if (cache_gc(c, 0, NULL) < 0)
				_exit(1);
		for (unsigned n = 0; i && n < 600; n++) {
			struct key k = key_of(n % 7);
			int fd;

			if (get(c, k, s, &fd) < 0)
				_exit(2);
			if (!has(c, k))
				_exit(3);
			if (!bytes_are_right(fd, k, SIZE))
				_exit(4);
			if (!has(c, k))
				_exit(5);
			close(fd);
		}
		__atomic_add_fetch(&s->done, 1, __ATOMIC_SEQ_CST);
		_exit(0);
	}
	close(gate[0]);
	close(gate[1]);
	for (unsigned i = ARRAY_SIZE(pids); i-- > 0;) /* gc goes on while there are readers */
		assert_int_equal(wait_child(pids[i]), 0);
	assert_int_equal(cache_gc(c, 0, NULL), 0);
	assert_int_equal(entries(e, "objects") + entries(e, "partials") + held(e), 0);
	assert_true(s->fills >= 7);
	cache_close(c);
	munmap(s, sizeof(*s));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, env_setup, env_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_processes_fetch_once),	TEST(test_threads_fetch_once),
		TEST(test_lock_is_exclusive),		TEST(test_dead_holder_is_adopted),
		TEST(test_killed_at_every_system_call), TEST(test_gc_spares_what_others_use),
		TEST(test_gc_against_readers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
