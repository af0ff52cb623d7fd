/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of unverified bytes: a cache entry, an unnamed file, memory; resuming, room, threads that
 * write at once, and others who write to what is committed.
 */
#include "cache_help.h"

#include <pthread.h>
#include <sys/resource.h>

#include "base/budget.h"
#include "cache/room.h"

static int put(struct file *d, struct key k, uint64_t off, size_t n)
{
	char *data = must(malloc(n + 1));
	int r;

	fill_bytes(k, data, off, n);
	r = file_write(d, data, n, off);
	free(data);
	return r;
}

/* Any order will do, and what is behind the end is dropped. */
static void fill_and_commit(struct file *d, struct key k, const uint8_t *name)
{
	struct source *source;
	char out[100], want[100];

	assert_int_equal(put(d, k, 70000, 5000), 0);
	assert_int_equal(put(d, k, 0, 50000), 0);
	file_progress(d, 50000);
	assert_int_equal(put(d, k, 50000, 20000), 0);
	assert_int_equal(file_end(d), 75000);
	assert_int_equal(file_read(d, out, sizeof(out), 69950), 0);
	fill_bytes(k, want, 69950, sizeof(want));
	assert_memory_equal(out, want, sizeof(want));
	assert_int_equal(file_read(d, out, 2, 74999), -ENOSPC);
	assert_int_equal(file_commit(d, name, 70000, &source), 0);
	assert_int_equal(source->size, 70000);
	assert_true(bytes_are_right(source->fd, k, 70000));
	source_unref(source);
}

static void test_cache_entry(void **state)
{
	struct env *e = *state;
	struct cache *c = open_cache(e, 0);
	struct file *d, *other;

	assert_int_equal(file_cache(c, key_of(1).sha256, &d), 0);
	assert_true(file_is_cached(d));
	assert_int_equal(file_cache(c, key_of(1).sha256, &other), -EAGAIN);
	fill_and_commit(d, key_of(1), NULL);
	assert_true(has(c, key_of(1)));
	assert_int_equal(file_cache(c, key_of(1).sha256, &other), -EEXIST);
	/* under another name */
	assert_int_equal(file_cache(c, key_of(2).sha256, &d), 0);
	fill_and_commit(d, key_of(3), key_of(3).sha256);
	assert_true(has(c, key_of(3)) && !has(c, key_of(2)));
	assert_int_equal(entries(e, "partials"), 0);
	cache_close(c);
}

static void test_file_and_memory(void **state)
{
	struct env *e = *state;
	struct cache *c = open_cache(e, 0);
	char validator[10] = "x";
	uint64_t len = 42;
	struct file *d;

	assert_int_equal(file_unnamed(c, &d), 0);
	assert_int_not_equal(file_disk(d), 0);
	assert_false(file_is_cached(d));
	assert_int_equal(file_partial(d, &len, validator, sizeof(validator)), 0);
	assert_int_equal(len, 0);
	assert_string_equal(validator, "");
	fill_and_commit(d, key_of(1), NULL);
	assert_int_equal(file_unnamed(NULL, &d), 0);
	/* of an empty object */
	assert_int_equal(file_reserve(d, 0, true), 0);
	file_abort(d, true);
	assert_int_equal(file_memory(80000, &d), 0);
	assert_int_equal(put(d, key_of(1), 79000, 1001), -ENOSPC);
	assert_int_equal(file_reserve(d, 80001, true), -ENOSPC);
	assert_int_equal(file_reserve(d, 80000, true), 0);
	assert_int_equal(put(d, key_of(1), 79000, 1000), 0);
	assert_int_equal(file_restart(d, "none"), 0);
	assert_int_equal(file_end(d), 0);
	fill_and_commit(d, key_of(1), NULL);
	file_abort(NULL, true);
	cache_close(c);
}

/* Memory is counted as it comes, or as it is reserved, up to the budget and not a byte beyond. */
static void test_counted_memory(void **state)
{
	struct budget b;
	struct file *d;

	(void)state;
	budget_init(&b, 64 * KIB);
	assert_int_equal(file_memory(80000, &d), 0);
	file_count(d, &b);
	assert_int_equal(put(d, key_of(1), 0, 1), 0);
	assert_int_equal(budget_left(&b), 60 * KIB);
	assert_int_equal(put(d, key_of(1), 4095, 2), 0);
	assert_int_equal(budget_left(&b), 56 * KIB);
	assert_int_equal(put(d, key_of(1), 60000, 5536), 0);
	assert_int_equal(budget_left(&b), 0);
	assert_false(file_is_over(d));
	assert_int_equal(put(d, key_of(1), 65535, 2), -ENOMEM);
	assert_true(file_is_over(d));
	assert_int_equal(file_end(d), 65536);
	/* what was written before is given back */
	assert_int_equal(file_restart(d, NULL), 0);
	assert_false(file_is_over(d));
	assert_int_equal(budget_left(&b), 64 * KIB);
	assert_int_equal(file_reserve(d, 65537, false), -ENOMEM);
	assert_true(file_is_over(d));
	assert_int_equal(budget_left(&b), 64 * KIB);
	assert_int_equal(file_reserve(d, 65536, false), 0);
	assert_int_equal(budget_left(&b), 0);
	/* what it cannot have in any case is no matter of memory */
	assert_int_equal(put(d, key_of(1), 80000, 1), -ENOSPC);
	file_abort(d, false);
	assert_int_equal(budget_left(&b), 64 * KIB);
}

/* What file_progress() said is there for the next one, and nothing else. */
static void test_resume(void **state)
{
	struct env *e = *state;
	struct cache *c = open_cache(e, 0);
	char validator[100];
	uint64_t len;
	struct file *d;

	assert_int_equal(file_cache(c, key_of(1).sha256, &d), 0);
	assert_int_equal(file_restart(d, "version"), 0);
	assert_int_equal(put(d, key_of(1), 0, 50000), 0);
	assert_int_equal(put(d, key_of(1), 60000, 100), 0);
	file_progress(d, 50000);
	file_abort(d, true);
	assert_int_equal(file_cache(c, key_of(1).sha256, &d), 0);
	assert_int_equal(file_partial(d, &len, validator, sizeof(validator)), 0);
	assert_int_equal(len, 50000);
	assert_int_equal(file_end(d), 50000);
	assert_string_equal(validator, "version");
	file_abort(d, false);
	assert_int_equal(file_cache(c, key_of(1).sha256, &d), 0);
	assert_int_equal(file_partial(d, &len, validator, sizeof(validator)), 0);
	assert_int_equal(len, 0);
	file_abort(d, false);
	cache_close(c);
}

static void test_room(void **state)
{
	struct env *e = *state;
	struct cache *c = open_cache(e, 200000);
	struct file *d;

	assert_int_equal(publish(c, key_of(7), 100000), 0);
	assert_int_equal(file_cache(c, key_of(1).sha256, &d), 0);
	/* a claim evicts nothing */
	assert_int_equal(file_reserve(d, 300000, false), -ENOSPC);
	assert_int_equal(file_reserve(d, 150000, false), 0);
	assert_true(has(c, key_of(7)));
	assert_int_equal(put(d, key_of(1), 250000, 1), -ENOSPC);
	assert_int_equal(put(d, key_of(1), 0, 150000), 0);
	assert_false(has(c, key_of(7)));
	file_abort(d, false);
	assert_int_equal(file_cache(c, key_of(1).sha256, &d), 0);
	assert_int_equal(file_reserve(d, 300000, true), -ENOSPC);
	assert_int_equal(file_reserve(d, 150000, true), 0);
	assert_int_equal(file_write(d, "", 1, UINT64_MAX), -EFBIG);
	file_abort(d, false);
	cache_close(c);
}

struct part {
	struct file *dest;
	unsigned nth;
};

static void *write_part(void *arg)
{
	struct part *p = arg;

	for (uint64_t i = p->nth; i < 100; i += 4)
		if (put(p->dest, key_of(1), i * 10000, 10000) < 0)
			return p;
	return NULL;
}

static void test_threads(void **state)
{
	struct env *e = *state;
	struct cache *c = open_cache(e, 0);
	struct source *source;
	struct part parts[4];
	pthread_t threads[4];
	struct file *d;
	void *failed;

	assert_int_equal(file_cache(c, key_of(1).sha256, &d), 0);
	for (unsigned i = 0; i < 4; i++) {
		parts[i] = (struct part){ d, i };
		assert_int_equal(pthread_create(&threads[i], NULL, write_part, &parts[i]), 0);
	}
	for (unsigned i = 0; i < 4; i++) {
		pthread_join(threads[i], &failed);
		assert_null(failed);
	}
	assert_int_equal(file_commit(d, NULL, 1000000, &source), 0);
	assert_true(bytes_are_right(source->fd, key_of(1), 1000000));
	source_unref(source);
	cache_close(c);
}

/* ---- where there is room ---- */

static bool drop(void *ctx, bool entries)
{
	unsigned *left = ctx;

	(void)entries;
	return *left > 0 && (*left)--;
}

/* What nobody needs gives way before the next place is tried, and each place is tried once. */
static void test_order(void **state)
{
	struct env *e = *state;
	struct cache *c = open_cache(e, 0);
	struct key k = key_of(1);
	unsigned left = 1, entries_tried = 0, files = 0;
	struct room room = { .cache = c,
			     .key = k.sha256,
			     .size = UINT64_MAX,
			     .memory = 100,
			     .drop = drop,
			     .ctx = &left };
	struct file *d, *other;
	bool more = true;

	assert_true(room_in_cache(&room));
	assert_int_equal(room_open(&room, &d), 0);
	/* another one fills it, which is no reason to leave it */
	assert_int_equal(room_open(&room, &other), -EAGAIN);
	for (; more && (room.at < ROOM_MEMORY || room.at == ROOM_CACHE);
	     assert_int_equal(more ? room_open(&room, &d) : 0, 0)) {
		entries_tried += file_is_cached(d);
		files += !file_is_cached(d);
		file_abort(d, false);
		more = room_next(&room, -ENOSPC, 100) == 0;
	}
	assert_int_equal(left, 0);
	assert_int_equal(entries_tried, 2);
	assert_in_range(files, 1, 2);
	/* in memory, as it may fit there */
	assert_true(more);
	assert_int_equal(put(d, k, 0, 101), -ENOSPC);
	assert_int_equal(put(d, k, 0, 100), 0);
	file_abort(d, false);
	assert_int_equal(room_next(&room, -ENOSPC, 101), -ENOSPC);
	assert_int_equal(room_open(&room, &d), -ENOSPC);
	cache_close(c);
}

/*
 * A place that cannot be used at all is left at once, and what does not fit into memory does not
 * get there.
 */
static void test_unusable(void **state)
{
	struct env *e = *state;
	struct cache *c = open_cache(e, 0);
	struct key k = key_of(1);
	unsigned left = 1;
	struct room room = { .cache = c,
			     .key = k.sha256,
			     .size = UINT64_MAX,
			     .memory = 100,
			     .drop = drop,
			     .ctx = &left };

	assert_int_equal(room_next(&room, -EACCES, 0), 0);
	assert_false(room_in_cache(&room));
	assert_int_equal(left, 1);
	room.reached = 101;
	while (room_next(&room, -EIO, 0) == 0)
		assert_int_not_equal(room.at, ROOM_MEMORY);
	room = (struct room){ .size = 101, .memory = 100 };
	assert_false(room_in_cache(&room));
	assert_int_equal(room.at, ROOM_ELSEWHERE);
	assert_int_equal(room_next(&room, -ENOSPC, 0), -ENOSPC);
	room = (struct room){ .size = 100, .memory = 100 };
	assert_false(room_in_cache(&room));
	assert_int_equal(room_next(&room, -ENOSPC, 0), 0);
	assert_int_equal(room.at, ROOM_MEMORY);
	cache_close(c);
}

/* What is larger than any file may be goes nowhere, and displaces nothing. */
static void test_too_large(void **state)
{
	struct env *e = *state;
	struct cache *c = open_cache(e, 0);
	struct key k = key_of(1);
	unsigned left = 1;
	struct room room = { .cache = c,
			     .key = k.sha256,
			     .size = UINT64_MAX,
			     .memory = UINT64_MAX,
			     .drop = drop,
			     .ctx = &left };
	struct room known = room, sparse = room;
	struct rlimit none, limit;
	struct file *d;

	assert_int_equal(getrlimit(RLIMIT_FSIZE, &none), 0);
	limit = (struct rlimit){ 100000, none.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	assert_int_equal(room_open(&room, &d), 0);
	assert_int_equal(put(d, k, 0, 100000), 0);
	assert_int_equal(put(d, k, 100000, 1), -ENOSPC);
	room.wanted = file_wanted(d);
	file_abort(d, false);
	assert_int_equal(room_next(&room, -ENOSPC, 100000), -EFBIG);
	known.size = 100001;
	assert_int_equal(room_open(&known, &d), -EFBIG);
	known.at = ROOM_CACHE;
	known.size = 100000;
	assert_int_equal(room_open(&known, &d), 0);
	file_abort(d, false);
	sparse.sparse = 100001;
	assert_int_equal(room_open(&sparse, &d), -EFBIG);
	assert_int_equal(left, 1);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
	cache_close(c);
}

/* ---- others who write to the file ---- */

#define VERIFIED 5000

static struct file *committed;

/* Status 0: it is refused; 1: it is as long as what was verified; 2: it is not. */
static int commit(const struct env *e)
{
	struct source *source;

	(void)e;
	if (file_commit(committed, NULL, VERIFIED, &source) < 0)
		return 0;
	return source->size == VERIFIED ? 1 : 2;
}

static int open_kind(struct cache *c, int kind)
{
	if (kind == 0)
		return file_cache(c, key_of(1).sha256, &committed);
	return kind == 1 ? file_unnamed(c, &committed) : file_memory(2 * VERIFIED, &committed);
}

/* A byte is added at the nth system call of the commit. False: it has no nth. */
static bool lengthen_at(struct env *e, int kind, int n, unsigned ended[3])
{
	struct cache *c = open_cache(e, 0);
	struct source *writer;
	int status;
	pid_t pid;

	assert_int_equal(open_kind(c, kind), 0);
	assert_int_equal(put(committed, key_of(1), 0, VERIFIED), 0);
	assert_int_equal(file_source(committed, &writer), 0);
	status = child_stop_at(commit, e, n, &pid);
	if (status < 0) {
		assert_int_equal(pwrite_full(writer->fd, "x", 1, VERIFIED), 0);
		ended[child_finish(pid)]++;
	}
	source_unref(writer);
	file_abort(committed, false);
	cache_close(c);
	walk(e->cache, true);
	return status < 0;
}

/* Whoever adds bytes while it is committed: they never become part of what was verified. */
static void test_longer(void **state)
{
	for (int kind = 0; kind < 3; kind++) {
		unsigned ended[3] = { 0, 0, 0 };

		for (int n = 0; lengthen_at(*state, kind, n, ended); n++)
			;
		assert_true(ended[0] > 0 && ended[1] > 0);
		assert_int_equal(ended[2], 0);
	}
}

/* What has lost bytes that were written does not get zeros in their place. */
static void test_shorter(void **state)
{
	struct env *e = *state;
	struct cache *c = open_cache(e, 0);
	struct source *writer, *source;

	for (int kind = 0; kind < 3; kind++) {
		assert_int_equal(open_kind(c, kind), 0);
		assert_int_equal(put(committed, key_of(1), 0, VERIFIED), 0);
		assert_int_equal(file_source(committed, &writer), 0);
		assert_int_equal(ftruncate(writer->fd, VERIFIED - 1), 0);
		source_unref(writer);
		assert_int_equal(file_commit(committed, NULL, VERIFIED, &source), -ENOSPC);
		assert_false(has(c, key_of(1)));
	}
	cache_close(c);
}

/* ---- sparse ---- */

static void assert_bytes(struct file *d, struct key k, uint64_t off, size_t n, bool right)
{
	char got[100], want[100];

	assert_int_equal(file_read(d, got, n, off), 0);
	fill_bytes(k, want, off, n);
	assert_int_equal(memcmp(got, want, n) == 0, right);
}

/* What came in any order is there for the next one, and for who fills it at the same time. */
static void test_sparse(void **state)
{
	struct env *e = *state;
	struct cache *c = open_cache(e, 0);
	struct key k = key_of(1);
	struct source *source;
	struct file *d, *other;

	for (int i = 0; i < 2; i++) {
		assert_int_equal(file_join(c, k.sha256, 100000, &d), 0);
		assert_int_equal(file_sparse(d, 100000), 0);
		assert_bytes(d, k, 60000, 100, i == 1);
		assert_int_equal(file_make_room(d, 100, NULL, drop, &(unsigned){ 0 }), 0);
		assert_int_equal(put(d, k, 60000, 100), 0);
		assert_int_equal(put(d, k, 99999, 2), -EFBIG);
		file_progress(d, 100);
		if (i == 0)
			file_abort(d, true);
	}
	assert_int_equal(file_join(c, k.sha256, 100000, &other), 0);
	assert_int_equal(file_sparse(other, 100000), 0);
	assert_bytes(other, k, 60000, 100, true);
	assert_int_equal(put(other, k, 70000, 100), 0);
	assert_bytes(d, k, 70000, 100, true);
	assert_int_equal(put(d, k, 0, 100000), 0);
	assert_int_equal(file_source(d, &source), 0);
	file_publish(d, key_of(2).sha256);
	assert_true(has(c, key_of(2)) && !has(c, k));
	file_publish(other, key_of(3).sha256);
	assert_false(has(c, key_of(3)));
	file_abort(other, true);
	file_abort(d, true);
	assert_int_equal(entries(e, "partials") + held(e), 0);
	assert_true(bytes_are_right(source->fd, k, 100000));
	source_unref(source);
	cache_close(c);
}

/* Without room in the cache the bytes stay, and the entry goes. */
static void test_sparse_leaves(void **state)
{
	struct env *e = *state;
	struct cache *c = open_cache(e, 200000);
	struct key k = key_of(1);
	unsigned left = 1;
	struct file *d, *other;

	assert_int_equal(file_join(c, k.sha256, 1000000, &d), 0);
	assert_int_equal(file_sparse(d, 1000000), 0);
	assert_int_equal(file_make_room(d, 100000, NULL, drop, &left), 0);
	assert_int_equal(put(d, k, 500000, 100), 0);
	assert_true(file_is_cached(d) && left == 1);
	assert_int_equal(file_make_room(d, 300000, NULL, drop, &left), 0);
	assert_false(file_is_cached(d) || left);
	assert_int_equal(put(d, k, 600000, 100), 0);
	assert_bytes(d, k, 500000, 100, true);
	assert_int_equal(entries(e, "partials"), 0);
	assert_int_equal(file_cache(c, k.sha256, &other), 0);
	file_abort(other, false);
	file_publish(d, k.sha256);
	assert_false(has(c, k));
	file_abort(d, true);
	cache_close(c);
}

/* ---- as a stream ---- */

static void test_stream(void **state)
{
	struct env *e = *state;
	struct cache *c = open_cache(e, 0);
	struct source *from, *source;
	struct stream *in, *through;
	char *got = must(malloc(100000)), *want = must(malloc(100000));
	struct file *d, *first;

	assert_int_equal(file_unnamed(c, &first), 0);
	assert_int_equal(put(first, key_of(1), 0, 100000), 0);
	assert_int_equal(file_commit(first, NULL, 100000, &from), 0);
	fill_bytes(key_of(1), want, 0, 100000);

	assert_int_equal(file_cache(c, key_of(1).sha256, &d), 0);
	assert_int_equal(put(d, key_of(1), 0, 30000), 0);
	assert_int_equal(source_stream(from, 30000, 70000, &in), 0);
	assert_int_equal(file_stream(d, 30000, in, &through), 0);
	assert_int_equal(stream_read_full(through, got, 100000), 100000);
	assert_int_equal(stream_read(through, got, 1), 0);
	stream_close(through);
	assert_memory_equal(got, want, 100000);
	assert_int_equal(file_commit(d, NULL, 100000, &source), 0);
	assert_true(bytes_are_right(source->fd, key_of(1), 100000));
	source_unref(source);
	source_unref(from);
	free(got);
	free(want);
	cache_close(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_cache_entry, env_setup, env_teardown),
		cmocka_unit_test_setup_teardown(test_file_and_memory, env_setup, env_teardown),
		cmocka_unit_test_setup_teardown(test_counted_memory, env_setup, env_teardown),
		cmocka_unit_test_setup_teardown(test_resume, env_setup, env_teardown),
		cmocka_unit_test_setup_teardown(test_room, env_setup, env_teardown),
		cmocka_unit_test_setup_teardown(test_threads, env_setup, env_teardown),
		cmocka_unit_test_setup_teardown(test_order, env_setup, env_teardown),
		cmocka_unit_test_setup_teardown(test_unusable, env_setup, env_teardown),
		cmocka_unit_test_setup_teardown(test_too_large, env_setup, env_teardown),
		cmocka_unit_test_setup_teardown(test_longer, env_setup, env_teardown),
		cmocka_unit_test_setup_teardown(test_shorter, env_setup, env_teardown),
		cmocka_unit_test_setup_teardown(test_sparse, env_setup, env_teardown),
		cmocka_unit_test_setup_teardown(test_sparse_leaves, env_setup, env_teardown),
		cmocka_unit_test_setup_teardown(test_stream, env_setup, env_teardown),
	};

	return cmocka_run_group_tests_name("dest", tests, NULL, NULL);
}
