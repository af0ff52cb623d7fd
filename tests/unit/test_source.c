/* SPDX-License-Identifier: Apache-2.0 */
/* Hashes and tags, and the sources and streams that bytes come from. */
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "zip_help.h"

/* ---- digests ---- */

static void expect_hash(const uint8_t hash[SHA256_SIZE], const char *want)
{
	char hex[2 * SHA256_SIZE + 1];

	hex_encode(hash, SHA256_SIZE, hex);
	assert_string_equal(hex, want);
}

/* FIPS 180-2's examples, and the empty message. */
static void test_sha256(void **state)
{
	uint8_t hash[SHA256_SIZE];
	struct sha256 *s;
	char block[1000];

	(void)state;
	sha256_of("", 0, hash);
	expect_hash(hash, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
	sha256_of("abc", 3, hash);
	expect_hash(hash, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	memset(block, 'a', sizeof(block));
	assert_int_equal(sha256_new(&s), 0);
	for (size_t i = 0; i < 1000; i++)
		assert_int_equal(sha256_update(s, block, sizeof(block)), 0);
	assert_int_equal(sha256_update(s, block, 0), 0);
	assert_int_equal(sha256_final(s, hash), 0);
	expect_hash(hash, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
	sha256_free(s);
	sha256_free(NULL);
}

static void test_crc32(void **state)
{
	(void)state;
	assert_int_equal(crc32_update(0, "123456789", 9), 0xcbf43926);
	assert_int_equal(crc32_update(crc32_update(0, "1234", 4), "56789", 5), 0xcbf43926);
	assert_int_equal(crc32_update(0, "", 0), 0);
	assert_int_equal(crc32_join(crc32_update(0, "1234", 4), crc32_update(0, "56789", 5), 5),
			 0xcbf43926);
}

/* Whichever implementation was built, at any alignment and length. */
static void test_crc32_as_zlib(void **state)
{
	char *data = make_bytes(70000, 2);
	uint32_t crc = 0, want = 0;

	(void)state;
	for (size_t off = 0, n = 0; off + n < 70000; off += n, n += n / 8 + 1) {
		crc = crc32_update(crc, data + off, n);
		want = (uint32_t)crc32_z(want, (const unsigned char *)data + off, n);
		assert_int_equal(crc, want);
	}
	free(data);
}

static void test_tags(void **state)
{
	uint8_t tag[TAG_SIZE], again[TAG_SIZE], other[TAG_SIZE];
	char *data = make_bytes(100000, 1);
	struct tagger *t, *u;

	(void)state;
	assert_int_equal(tagger_new(NULL, &t), 0);
	assert_int_equal(tagger_new(NULL, &u), 0);
	assert_int_equal(tagger_tag(t, data, 100000, tag), 0);
	assert_int_equal(tagger_tag(t, data, 100000, again), 0);
	assert_memory_equal(tag, again, TAG_SIZE);
	assert_int_equal(tagger_tag(u, data, 100000, other), 0);
	assert_memory_not_equal(tag, other, TAG_SIZE);
	assert_int_equal(tagger_tag(t, data, 99999, other), 0);
	assert_memory_not_equal(tag, other, TAG_SIZE);
	for (size_t bit = 0; bit < 800000; bit += 7919) {
		data[bit / 8] ^= (char)(1 << bit % 8);
		assert_int_equal(tagger_tag(t, data, 100000, other), 0);
		assert_memory_not_equal(tag, other, TAG_SIZE);
		data[bit / 8] ^= (char)(1 << bit % 8);
	}
	assert_int_equal(tagger_tag(t, data, 0, other), 0);
	assert_int_equal(tagger_tag(t, data, 0, again), 0);
	assert_memory_equal(other, again, TAG_SIZE);
	tagger_free(t);
	tagger_free(u);
	tagger_free(NULL);
	free(data);
}

struct tag_job {
	const struct tagger *t;
	const char *data;
	uint8_t tag[TAG_SIZE];
	int r;
};

static void *tag_often(void *arg)
{
	struct tag_job *job = arg;

	for (int i = 0; i < 50 && job->r == 0; i++)
		job->r = tagger_tag(job->t, job->data, 50000, job->tag);
	return NULL;
}

/* One tagger for all threads, and no thread disturbs another. */
static void test_tags_in_threads(void **state)
{
	char *data = make_bytes(8 * 50000, 2);
	struct tag_job jobs[8] = { 0 };
	uint8_t want[TAG_SIZE];
	pthread_t threads[8];
	struct tagger *t;

	(void)state;
	assert_int_equal(tagger_new(NULL, &t), 0);
	for (size_t i = 0; i < 8; i++) {
		jobs[i].t = t;
		jobs[i].data = data + 50000 * i;
		assert_int_equal(pthread_create(&threads[i], NULL, tag_often, &jobs[i]), 0);
	}
	for (size_t i = 0; i < 8; i++) {
		pthread_join(threads[i], NULL);
		assert_int_equal(jobs[i].r, 0);
		assert_int_equal(tagger_tag(t, jobs[i].data, 50000, want), 0);
		assert_memory_equal(jobs[i].tag, want, TAG_SIZE);
	}
	tagger_free(t);
	free(data);
}

/* ---- sources ---- */

static struct source *file_source(const char *data, size_t n)
{
	int fd = memfd_create("test", MFD_CLOEXEC);
	struct source *s;

	assert_int_equal(pwrite_full(fd, data, n, 0), 0);
	assert_int_equal(source_from_fd(fd, &s), 0);
	return s;
}

static void test_file(void **state)
{
	struct source *s = file_source("0123456789", 10);
	struct stream *a, *b;
	char got[16] = "";

	(void)state;
	assert_int_equal(s->size, 10);
	assert_true(source_is_local(s));
	assert_int_equal(source_pread(s, got, 4, 3), 0);
	assert_memory_equal(got, "3456", 4);
	assert_int_equal(source_pread(s, got, 0, 99), 0);
	assert_int_equal(source_pread(s, got, 2, 9), -ENODATA);
	assert_int_equal(source_pread(s, got, 1, UINT64_MAX), -EINVAL);
	assert_int_equal(source_stream(s, 2, 6, &a), 0);
	assert_int_equal(source_stream(s, 10, 0, &b), 0);
	source_unref(s); /* the streams have references of their own */
	assert_int_equal(stream_read(b, got, 5), 0);
	assert_int_equal(stream_read(a, got, 4), 4);
	assert_memory_equal(got, "2345", 4);
	assert_int_equal(stream_read_full(a, got, 16), 2);
	assert_memory_equal(got, "67", 2);
	assert_int_equal(stream_read(a, got, 4), 0);
	stream_close(a);
	stream_close(b);
	stream_close(NULL);
	source_unref(NULL);
}

static void test_file_cut_off(void **state)
{
	struct source *s = file_source("0123456789", 10);
	struct stream *stream;
	char got[16];

	(void)state;
	assert_int_equal(source_stream(s, 0, 10, &stream), 0);
	assert_int_equal(stream_read(stream, got, 4), 4);
	assert_int_equal(ftruncate(s->fd, 6), 0);
	assert_int_equal(stream_read_full(stream, got, 10), -ENODATA);
	assert_int_equal(s->size, 10);
	assert_int_equal(source_pread_nowait(s, got, 10, 0), -EAGAIN);
	stream_close(stream);
	source_unref(s);
}

/* Never other bytes, whether or not the file system can say what is in memory. */
static void test_nowait(void **state)
{
	char path[] = "/tmp/source-test-XXXXXX", *data = make_bytes(300000, 3),
	     *got = must(malloc(300000));
	struct source *s;
	int fd = mkstemp(path), r;

	(void)state;
	assert_true(fd >= 0);
	unlink(path);
	assert_int_equal(pwrite_full(fd, data, 300000, 0), 0);
	assert_int_equal(fsync(fd), 0);
	assert_int_equal(source_from_fd(fd, &s), 0);
	assert_int_equal(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
	for (int i = 0; i < 2; i++) {
		memset(got, 0, 300000);
		r = source_pread_nowait(s, got, 300000, 0);
		if (r != -EAGAIN) {
			assert_int_equal(r, 0);
			assert_memory_equal(got, data, 300000);
		}
		assert_int_equal(source_pread(s, got, 300000, 0), 0);
		assert_memory_equal(got, data, 300000);
	}
	assert_int_equal(source_pread_nowait(s, got, 0, 0), 0);
	source_unref(s);
	free(data);
	free(got);
}

static void test_bad_fd(void **state)
{
	struct source *s = (struct source *)(void *)state;

	assert_int_equal(source_from_fd(-1, &s), -EBADF);
	assert_ptr_equal(s, state);
}

static void test_read_full(void **state)
{
	static const char data[] = "abcdefghij";
	struct stream *s = mem_stream(data, 10, 3);
	struct mem_source *m;
	char got[16];

	(void)state;
	assert_int_equal(stream_read(s, got, 16), 3);
	assert_int_equal(stream_read_full(s, got, 5), 5);
	assert_memory_equal(got, "defgh", 5);
	assert_int_equal(stream_read_full(s, got, 16), 2);
	assert_int_equal(stream_read_full(s, got, 0), 0);
	stream_close(s);

	/* an error counts more than the bytes before it */
	s = mem_stream(data, 10, 3);
	m = container_of(container_of(s, struct mem_stream, stream)->source, struct mem_source,
			 source);
	assert_int_equal(stream_read(s, got, 3), 3);
	m->fail = -ENOTCONN;
	assert_int_equal(stream_read_full(s, got, 16), -ENOTCONN);
	stream_close(s);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sha256),		cmocka_unit_test(test_crc32),
		cmocka_unit_test(test_crc32_as_zlib),	cmocka_unit_test(test_tags),
		cmocka_unit_test(test_tags_in_threads), cmocka_unit_test(test_file),
		cmocka_unit_test(test_file_cut_off),	cmocka_unit_test(test_nowait),
		cmocka_unit_test(test_bad_fd),		cmocka_unit_test(test_read_full),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
