/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshots: what was read can be read again; what was not, and what is damaged, is said to be so.
 */
#include "cache_help.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/digest.h"
#include "base/limits.h"
#include "fetch/remote_source.h"
#include "fetch/snapshot.h"

#define URL "https://models.example/m.carton"
#define SIZE 100000
#define MTIME 1600000000

/* Holds [off, off + n). */
static void cache_range(struct cached_ranges *h, uint64_t off, size_t n)
{
	char *data = must(malloc(n));

	fill_bytes(key_of(1), data, off, n);
	assert_int_equal(cached_ranges_add(h, data, n, off), 0);
}

/* Reads, and compares with what must be there. */
static void read_right(struct source *s, uint64_t off, size_t n)
{
	char got[4096], want[4096];

	assert_int_equal(source_pread(s, got, n, off), 0);
	fill_bytes(key_of(1), want, off, n);
	assert_memory_equal(got, want, n);
}

/* Keeps a snapshot of three stretches. */
static void keep(struct cache *c)
{
	struct snapshot s = { SIZE, MTIME, cached_ranges_new(MAX_SNAPSHOT) };

	cache_range(s.ranges, SIZE - 1000, 1000);
	cache_range(s.ranges, 5000, 1);
	cache_range(s.ranges, 6000, 3000);
	snapshot_save(&s, c, URL);
	cached_ranges_free(s.ranges);
}

static void test_restore(void **state)
{
	struct env *e = *state;
	struct cache *c = open_cache(e, 0);
	struct fetch_place *places;
	struct stream *stream;
	struct source *s;
	char got[3000];

	assert_int_equal(remote_source_restore(c, URL, &s), -ENOENT);
	keep(c);
	assert_int_equal(remote_source_restore(c, URL "x", &s), -ENOENT);
	assert_int_equal(remote_source_restore(c, URL, &s), 0);
	assert_true(remote_source_mtime(s) == MTIME && s->size == SIZE && !source_is_local(s));
	assert_int_equal(remote_source_places(s, &places), 0);
	for (int i = 0; i < 2; i++) {
		read_right(s, SIZE - 1000, 1000);
		read_right(s, 6500, 2500);
		read_right(s, 5000, 1);
		read_right(s, SIZE - 1, 1);
	}
	assert_int_equal(source_stream(s, 6000, 3000, &stream), 0);
	assert_int_equal(stream_read_full(stream, got, sizeof(got)), 3000);
	stream_close(stream);
	assert_int_equal(source_pread(s, got, 2, 5000), -ENETUNREACH);
	assert_int_equal(source_pread(s, got, 1, 50000), -ENETUNREACH);
	assert_int_equal(source_pread(s, got, 2, SIZE - 1), -ENODATA);
	assert_int_equal(source_pread(s, got, 1, UINT64_MAX), -ENODATA);
	source_unref(s);
	keep(c); /* the same again: nothing more is kept */
	assert_int_equal(entries(e, "notes"), 1);
	assert_int_equal(entries(e, "objects"), 1);
	cache_close(c);
}

/* Older stretches give way to newer ones. */
static void test_bounded(void **state)
{
	struct cached_ranges *h = cached_ranges_new(100);
	char got[60];

	(void)state;
	cache_range(h, 0, 60);
	cache_range(h, 1000, 40);
	assert_true(cached_ranges_read(h, got, 60, 0) && cached_ranges_read(h, got, 40, 1000));
	cache_range(h, 2000, 1);
	assert_false(cached_ranges_read(h, got, 1, 0));
	assert_true(cached_ranges_read(h, got, 40, 1000) && cached_ranges_read(h, NULL, 1, 2000));
	cached_ranges_trim(h, 1);
	assert_true(!cached_ranges_read(h, got, 1, 1000) && cached_ranges_read(h, got, 1, 2000));
	cache_range(h, 3000, 50); /* larger than all that may be held: it alone */
	assert_true(!cached_ranges_read(h, got, 1, 2000) && cached_ranges_read(h, got, 50, 3000));
	cached_ranges_free(h);
}

/* What does not fit the bound is not kept. */
static void test_bound(void **state)
{
	struct env *e = *state;
	struct cache *c = open_cache(e, GIB);
	const size_t step = 64 * MIB - 16;

	for (uint64_t over = 0; over < 2; over++) {
		struct snapshot s = { 2 * GIB, MTIME, cached_ranges_new(MAX_SNAPSHOT) };
		const char *url = over ? URL "/over" : URL;

		/* a header of 24 bytes; 16 for each stretch */
		for (int i = 0; i < 4; i++)
			assert_int_equal(cached_ranges_add(s.ranges, must(calloc(1, step)),
							   i < 3 ? step : step - 24 + over,
							   (uint64_t)i),
					 0);
		snapshot_save(&s, c, url);
		cached_ranges_free(s.ranges);
		assert_int_equal(snapshot_load(c, url, &s), over ? -ENOENT : 0);
		if (!over)
			cached_ranges_free(s.ranges);
	}
	cache_close(c);
}

/* Puts `text` there as the snapshot of URL, with its right hash. */
static void plant(struct cache *c, const void *text, size_t n)
{
	char hex[65];
	struct cache_fill *fill;
	struct key k, note = { 0 };
	int fd;

	assert_int_equal(sha256_mem(text, n, k.sha256), 0);
	assert_int_equal(sha256_mem("snapshot " URL, strlen("snapshot " URL), note.sha256), 0);
	assert_int_equal(cache_begin(c, k.sha256, &fill), 0);
	assert_int_equal(pwrite_full(cache_fill_fd(fill), text, n, 0), 0);
	assert_int_equal(cache_fill_publish(fill, NULL, n, &fd), 0);
	close(fd);
	hex_encode(k.sha256, 32, hex);
	assert_int_equal(cache_note_put(c, note.sha256, hex), 0);
}

static void test_malformed(void **state)
{
	struct env *e = *state;
	struct cache *c = open_cache(e, 0);
	uint8_t text[24 + 16 + 4] = "cfsnap01";
	struct source *s;
	char got[4];

	put_le64(text + 8, 10);
	put_le64(text + 32, 4);
	plant(c, text, sizeof(text));
	assert_int_equal(remote_source_restore(c, URL, &s), 0);
	assert_int_equal(source_pread(s, got, 4, 0), 0);
	assert_int_equal(source_pread(s, got, 4, 1), -ENETUNREACH);
	source_unref(s);
	/* cut anywhere but after the header: what is left is no list of reads */
	for (size_t n = 0; n < sizeof(text); n++) {
		if (n == 24)
			continue;
		plant(c, text, n);
		assert_int_equal(remote_source_restore(c, URL, &s), -ENOENT);
	}
	for (unsigned i = 0; i < 4; i++) {
		const uint64_t lengths[] = { 5, 3, UINT64_MAX, UINT64_MAX - 15 };

		put_le64(text + 32, lengths[i]);
		plant(c, text, sizeof(text));
		assert_int_equal(remote_source_restore(c, URL, &s), -ENOENT);
	}
	text[0] = 'C';
	put_le64(text + 32, 4);
	plant(c, text, sizeof(text));
	assert_int_equal(remote_source_restore(c, URL, &s), -ENOENT);
	cache_close(c);
}

/* A byte was changed that leaves it well-formed: the size, where a range is, what it has. */
static void test_damaged(void **state)
{
	static const off_t places[] = { 8, 16, 24, 40, 43 };
	struct env *e = *state;
	struct cache *c = open_cache(e, 0);
	uint8_t text[24 + 16 + 4] = "cfsnap01";
	char path[PATH_MAX];
	struct source *s;
	struct key k;

	put_le64(text + 8, 10);
	put_le64(text + 32, 4);
	assert_int_equal(sha256_mem(text, sizeof(text), k.sha256), 0);
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		const uint8_t wrong = text[places[i]] ^ 1;
		int fd;

		plant(c, text, sizeof(text));
		assert_int_equal(cache_path(c, k.sha256, path, sizeof(path)), 0);
		assert_int_equal(chmod(path, 0600), 0);
		fd = open(path, O_WRONLY | O_CLOEXEC);
		assert_int_equal(pwrite(fd, &wrong, 1, places[i]), 1);
		close(fd);
		assert_int_equal(remote_source_restore(c, URL, &s), -ENOENT);
		/* and it is not kept */
		assert_int_equal(access(path, F_OK), -1);
	}
	cache_close(c);
}

struct tamperer {
	int fd;
	off_t at;
	char right;
	atomic_bool over;
};

static void *tamper(void *arg)
{
	struct tamperer *t = arg;
	const char wrong = (char)(t->right ^ 1);

	while (!atomic_load(&t->over)) {
		assert_int_equal(pwrite(t->fd, &wrong, 1, t->at), 1);
		assert_int_equal(pwrite(t->fd, &t->right, 1, t->at), 1);
	}
	return NULL;
}

/*
 * Another process changes a byte to and fro: what is loaded is right, or it is said to be damaged.
 */
static void test_tampered(void **state)
{
	const size_t size = 24 + 16 + MIB;
	uint8_t *text = must(calloc(1, size));
	struct env *e = *state;
	struct cache *c = open_cache(e, 0);
	struct tamperer t = { .at = 24 + 16 + MIB / 2 };
	char *got = must(malloc(MIB)), path[PATH_MAX];
	unsigned loaded = 0;
	struct key k;

	memcpy(text, "cfsnap01", 8);
	put_le64(text + 8, MIB);
	put_le64(text + 32, MIB);
	assert_int_equal(sha256_mem(text, size, k.sha256), 0);
	for (unsigned i = 0; i < 50; i++) {
		struct source *s;
		pthread_t thread;

		plant(c, text, size);
		assert_int_equal(cache_path(c, k.sha256, path, sizeof(path)), 0);
		assert_int_equal(chmod(path, 0600), 0);
		t.fd = open(path, O_RDWR | O_CLOEXEC);
		assert_true(t.fd >= 0);
		atomic_store(&t.over, false);
		assert_int_equal(pthread_create(&thread, NULL, tamper, &t), 0);
		if (remote_source_restore(c, URL, &s) == 0) {
			assert_int_equal(source_pread(s, got, MIB, 0), 0);
			assert_memory_equal(got, text + 24 + 16, MIB);
			source_unref(s);
			loaded++;
		}
		atomic_store(&t.over, true);
		pthread_join(thread, NULL);
		close(t.fd);
		assert_int_equal(unlink(path) == 0 || errno == ENOENT, 1);
	}
	assert_true(loaded > 0);
	free(got);
	free(text);
	cache_close(c);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, env_setup, env_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_restore),   TEST(test_bounded), TEST(test_bound),
		TEST(test_malformed), TEST(test_damaged), TEST(test_tampered),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
