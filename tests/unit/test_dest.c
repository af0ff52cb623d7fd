/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Destinations: a cache entry, an unnamed file, memory; resuming, room, and threads that write at
 * once.
 */
#include "cache_help.h"

#include <pthread.h>

#include "cache/dest.h"

static int put(struct dest *d, struct key k, uint64_t off, size_t n)
{
	char *data = must(malloc(n + 1));
	int r;

	fill_bytes(k, data, off, n);
	r = dest_write(d, data, n, off);
	free(data);
	return r;
}

/* Any order will do, and what is behind the end is dropped. */
static void fill_and_commit(struct dest *d, struct key k, const uint8_t *name)
{
	struct source *source;
	char out[100], want[100];

	assert_int_equal(put(d, k, 70000, 5000), 0);
	assert_int_equal(put(d, k, 0, 50000), 0);
	dest_progress(d, 50000);
	assert_int_equal(put(d, k, 50000, 20000), 0);
	assert_int_equal(dest_end(d), 75000);
	assert_int_equal(dest_read(d, out, sizeof(out), 69950), 0);
	fill_bytes(k, want, 69950, sizeof(want));
	assert_memory_equal(out, want, sizeof(want));
	assert_int_equal(dest_read(d, out, 2, 74999), -ENOSPC);
	assert_int_equal(dest_commit(d, name, 70000, &source), 0);
	assert_int_equal(source->size, 70000);
	assert_true(bytes_are_right(source->fd, k, 70000));
	source_unref(source);
}

static void test_cache_entry(void **state)
{
	struct env *e = *state;
	struct cache *c = open_cache(e, 0);
	struct dest *d, *other;

	assert_int_equal(dest_cache(c, key_of(1).sha256, &d), 0);
	assert_true(dest_is_cached(d));
	assert_int_equal(dest_cache(c, key_of(1).sha256, &other), -EAGAIN);
	fill_and_commit(d, key_of(1), NULL);
	assert_true(has(c, key_of(1)));
	assert_int_equal(dest_cache(c, key_of(1).sha256, &other), -EEXIST);
	/* under another name */
	assert_int_equal(dest_cache(c, key_of(2).sha256, &d), 0);
	fill_and_commit(d, key_of(3), key_of(3).sha256);
	assert_true(has(c, key_of(3)) && !has(c, key_of(2)));
	assert_int_equal(entries(e, "partial"), 0);
	cache_close(c);
}

static void test_file_and_memory(void **state)
{
	struct env *e = *state;
	struct cache *c = open_cache(e, 0);
	char validator[10] = "x";
	uint64_t len = 42;
	dev_t dev = 0;
	struct dest *d;

	assert_int_equal(dest_file(c, &dev, &d), 0);
	assert_int_not_equal(dev, 0);
	assert_false(dest_is_cached(d));
	assert_int_equal(dest_partial(d, &len, validator, sizeof(validator)), 0);
	assert_int_equal(len, 0);
	assert_string_equal(validator, "");
	fill_and_commit(d, key_of(1), NULL);
	/* not twice on one disk */
	assert_int_equal(dest_file(c, &dev, &d), -ENOSPC);
	assert_int_equal(dest_file(NULL, NULL, &d), 0);
	dest_abort(d, true);
	assert_int_equal(dest_memory(80000, &d), 0);
	assert_int_equal(put(d, key_of(1), 79000, 1001), -ENOSPC);
	assert_int_equal(dest_reserve(d, 80001, true), -ENOSPC);
	assert_int_equal(dest_reserve(d, 80000, true), 0);
	assert_int_equal(put(d, key_of(1), 79000, 1000), 0);
	assert_int_equal(dest_restart(d, "none"), 0);
	assert_int_equal(dest_end(d), 0);
	fill_and_commit(d, key_of(1), NULL);
	dest_abort(NULL, true);
	cache_close(c);
}

/* What dest_progress() said is there for the next one, and nothing else. */
static void test_resume(void **state)
{
	struct env *e = *state;
	struct cache *c = open_cache(e, 0);
	char validator[100];
	uint64_t len;
	struct dest *d;

	assert_int_equal(dest_cache(c, key_of(1).sha256, &d), 0);
	assert_int_equal(dest_restart(d, "version"), 0);
	assert_int_equal(put(d, key_of(1), 0, 50000), 0);
	assert_int_equal(put(d, key_of(1), 60000, 100), 0);
	dest_progress(d, 50000);
	dest_abort(d, true);
	assert_int_equal(dest_cache(c, key_of(1).sha256, &d), 0);
	assert_int_equal(dest_partial(d, &len, validator, sizeof(validator)), 0);
	assert_int_equal(len, 50000);
	assert_int_equal(dest_end(d), 50000);
	assert_string_equal(validator, "version");
	dest_abort(d, false);
	assert_int_equal(dest_cache(c, key_of(1).sha256, &d), 0);
	assert_int_equal(dest_partial(d, &len, validator, sizeof(validator)), 0);
	assert_int_equal(len, 0);
	dest_abort(d, false);
	cache_close(c);
}

static void test_room(void **state)
{
	struct env *e = *state;
	struct cache *c = open_cache(e, 200000);
	struct dest *d;

	assert_int_equal(publish(c, key_of(7), 100000), 0);
	assert_int_equal(dest_cache(c, key_of(1).sha256, &d), 0);
	/* a claim evicts nothing */
	assert_int_equal(dest_reserve(d, 300000, false), -ENOSPC);
	assert_int_equal(dest_reserve(d, 150000, false), 0);
	assert_true(has(c, key_of(7)));
	assert_int_equal(put(d, key_of(1), 250000, 1), -ENOSPC);
	assert_int_equal(put(d, key_of(1), 0, 150000), 0);
	assert_false(has(c, key_of(7)));
	dest_abort(d, false);
	assert_int_equal(dest_cache(c, key_of(1).sha256, &d), 0);
	assert_int_equal(dest_reserve(d, 300000, true), -ENOSPC);
	assert_int_equal(dest_reserve(d, 150000, true), 0);
	assert_int_equal(dest_write(d, "", 1, UINT64_MAX), -EFBIG);
	dest_abort(d, false);
	cache_close(c);
}

struct part {
	struct dest *dest;
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
	struct dest *d;
	void *failed;

	assert_int_equal(dest_cache(c, key_of(1).sha256, &d), 0);
	for (unsigned i = 0; i < 4; i++) {
		parts[i] = (struct part){ d, i };
		assert_int_equal(pthread_create(&threads[i], NULL, write_part, &parts[i]), 0);
	}
	for (unsigned i = 0; i < 4; i++) {
		pthread_join(threads[i], &failed);
		assert_null(failed);
	}
	assert_int_equal(dest_commit(d, NULL, 1000000, &source), 0);
	assert_true(bytes_are_right(source->fd, key_of(1), 1000000));
	source_unref(source);
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
	struct dest *d, *first;

	assert_int_equal(dest_file(c, NULL, &first), 0);
	assert_int_equal(put(first, key_of(1), 0, 100000), 0);
	assert_int_equal(dest_commit(first, NULL, 100000, &from), 0);
	fill_bytes(key_of(1), want, 0, 100000);

	assert_int_equal(dest_cache(c, key_of(1).sha256, &d), 0);
	assert_int_equal(put(d, key_of(1), 0, 30000), 0);
	assert_int_equal(source_stream(from, 30000, 70000, &in), 0);
	assert_int_equal(dest_stream(d, 30000, in, &through), 0);
	assert_int_equal(stream_read_full(through, got, 100000), 100000);
	assert_int_equal(stream_read(through, got, 1), 0);
	stream_close(through);
	assert_memory_equal(got, want, 100000);
	assert_int_equal(dest_commit(d, NULL, 100000, &source), 0);
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
		cmocka_unit_test_setup_teardown(test_resume, env_setup, env_teardown),
		cmocka_unit_test_setup_teardown(test_room, env_setup, env_teardown),
		cmocka_unit_test_setup_teardown(test_threads, env_setup, env_teardown),
		cmocka_unit_test_setup_teardown(test_stream, env_setup, env_teardown),
	};

	return cmocka_run_group_tests_name("dest", tests, NULL, NULL);
}
