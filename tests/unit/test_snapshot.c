/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots: what was read can be read again; what was not, and what is damaged, is said to be so. */
#include "cache_help.h"

#include "base/digest.h"
#include "base/limits.h"
#include "fetch/snapshot.h"

#define URL "https://models.example/m.carton"
#define SIZE 100000
#define MTIME 1600000000

/* A source in memory that is not local, as a remote one is not. */
static int memory_pread(struct source *s, void *ret_buf, size_t n, uint64_t off)
{
	if (off > s->size || n > s->size - off)
		return -ENODATA;
	fill_bytes(key_of(1), ret_buf, off, n);
	return 0;
}

static void memory_free(struct source *s)
{
	free(s);
}

static const struct source_ops memory_ops = { memory_pread, source_part, memory_free, NULL };

static struct source *memory_source(uint64_t size)
{
	struct source *s = calloc(1, sizeof(*s));

	*s = (struct source){ .ops = &memory_ops, .refs = 1, .size = size, .fd = -1 };
	return s;
}

static struct source *recorder_of(uint64_t size)
{
	struct source *inner = memory_source(size), *recorder;

	assert_int_equal(snapshot_record(inner, MTIME, &recorder), 0);
	source_unref(inner);
	assert_true(recorder->size == size && !source_is_local(recorder));
	return recorder;
}

/* Reads, and compares with what must be there. */
static void read_right(struct source *s, uint64_t off, size_t n)
{
	char got[4096], want[4096];

	assert_int_equal(source_pread(s, got, n, off), 0);
	fill_bytes(key_of(1), want, off, n);
	assert_memory_equal(got, want, n);
}

/* Keeps a snapshot of three reads. */
static void keep(struct cache *c)
{
	struct source *recorder = recorder_of(SIZE);
	struct stream *stream;
	char got[3000];

	read_right(recorder, SIZE - 1000, 1000);
	read_right(recorder, 5000, 1);
	assert_int_equal(source_stream(recorder, 6000, 3000, &stream), 0);
	assert_int_equal(stream_read_full(stream, got, sizeof(got)), 3000);
	stream_close(stream);
	assert_int_equal(source_pread(recorder, got, 1, SIZE), -ENODATA);
	snapshot_save(recorder, c, URL);
	read_right(recorder, 50000, 100); /* after the end of the recording */
	source_unref(recorder);
}

static void test_replay(void **state)
{
	struct env *e = *state;
	struct cache *c = open_cache(e, 0);
	struct stream *stream;
	struct source *s;
	int64_t mtime;
	char got[3000];

	assert_int_equal(snapshot_open(c, URL, &s, &mtime), -ENOENT);
	keep(c);
	assert_int_equal(snapshot_open(c, URL "x", &s, &mtime), -ENOENT);
	assert_int_equal(snapshot_open(c, URL, &s, &mtime), 0);
	assert_true(mtime == MTIME && s->size == SIZE && !source_is_local(s));
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
	cache_free(c);
}

/* The same bytes through pieces of any length; what does not fit the bound is not kept. */
static void test_bound(void **state)
{
	struct env *e = *state;
	struct cache *c = open_cache(e, GIB);
	const size_t step = 64 * MIB - 16;
	char *buf = malloc(step);

	for (uint64_t over = 0; over < 2; over++) {
		struct source *recorder = recorder_of(2 * GIB), *s;
		int64_t mtime;

		/* a header of 24 bytes; 16 for each read */
		for (int i = 0; i < 3; i++)
			assert_int_equal(source_pread(recorder, buf, step, 0), 0);
		assert_int_equal(source_pread(recorder, buf, step - 24 + over, over), 0);
		snapshot_save(recorder, c, over ? URL "/over" : URL);
		source_unref(recorder);
		assert_int_equal(snapshot_open(c, over ? URL "/over" : URL, &s, &mtime),
				 over ? -ENOENT : 0);
		if (!over)
			source_unref(s);
	}
	free(buf);
	cache_free(c);
}

/* Puts `text` there as the snapshot of URL, with its right hash. */
static void plant(struct env *e, struct cache *c, const void *text, size_t n)
{
	char hex[65], path[PATH_MAX];
	struct cache_fill *fill;
	struct key k, note;
	int fd;

	assert_int_equal(sha256_mem(text, n, k.sha256), 0);
	assert_int_equal(sha256_mem("snapshot " URL, strlen("snapshot " URL), note.sha256), 0);
	assert_int_equal(cache_begin(c, k.sha256, &fill), 0);
	assert_int_equal(pwrite_full(cache_fill_fd(fill), text, n, 0), 0);
	assert_int_equal(cache_fill_publish(fill, n, &fd), 0);
	close(fd);
	hex_encode(k.sha256, 32, hex);
	assert_int_equal(cache_note_put(c, note.sha256, hex), 0);
	assert_int_equal(access(inside(e, "notes", note, "", path), F_OK), 0);
}

static void test_malformed(void **state)
{
	struct env *e = *state;
	struct cache *c = open_cache(e, 0);
	uint8_t text[24 + 16 + 4] = "cfsnap01";
	struct source *s;
	int64_t mtime;
	char got[4];

	put_le64(text + 8, 10);
	put_le64(text + 32, 4);
	plant(e, c, text, sizeof(text));
	assert_int_equal(snapshot_open(c, URL, &s, &mtime), 0);
	assert_int_equal(source_pread(s, got, 4, 0), 0);
	assert_int_equal(source_pread(s, got, 4, 1), -ENETUNREACH);
	source_unref(s);
	/* cut anywhere but after the header: what is left is no list of reads */
	for (size_t n = 0; n < sizeof(text); n++) {
		if (n == 24)
			continue;
		plant(e, c, text, n);
		assert_int_equal(snapshot_open(c, URL, &s, &mtime), -ENOENT);
	}
	for (unsigned i = 0; i < 4; i++) {
		const uint64_t lengths[] = { 5, 3, UINT64_MAX, UINT64_MAX - 15 };

		put_le64(text + 32, lengths[i]);
		plant(e, c, text, sizeof(text));
		assert_int_equal(snapshot_open(c, URL, &s, &mtime), -ENOENT);
	}
	text[0] = 'C';
	put_le64(text + 32, 4);
	plant(e, c, text, sizeof(text));
	assert_int_equal(snapshot_open(c, URL, &s, &mtime), -ENOENT);
	cache_free(c);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, env_setup, env_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_replay),
		TEST(test_bound),
		TEST(test_malformed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
