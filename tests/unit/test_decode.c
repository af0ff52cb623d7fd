/* SPDX-License-Identifier: Apache-2.0 */
/* The three methods: right bytes or an error, however the bytes come and are asked for. */
#include "zip_help.h"

#include "archive/container.h"

static const unsigned methods[] = { METHOD_STORED, METHOD_DEFLATE, METHOD_ZSTD };

static int open_decoder(struct stream *in, unsigned method, uint64_t stored, uint64_t size,
			struct stream **ret)
{
	const struct entry e = {
		.name = "entry", .method = (uint8_t)method, .stored = stored, .size = size
	};

	return decode_open(in, &e, NULL, ret);
}

/* Decodes `in` to its end in steps of `step`; how many bytes, or what failed. */
static ssize_t decode(const struct buf *in, unsigned method, uint64_t size, size_t most,
		      size_t step, char *out)
{
	struct stream *s;
	ssize_t got;
	size_t have = 0;
	int r;

	r = open_decoder(mem_stream(in->data, in->len, most), method, in->len, size, &s);
	if (r < 0)
		return r;
	do {
		got = stream_read(s, out + have, step);
		if (got > 0)
			have += (size_t)got;
	} while (got > 0 && have <= size);
	if (got == 0) /* the end stays the end */
		got = stream_read(s, out + have, step);
	stream_close(s);
	return got < 0 ? got : (ssize_t)have;
}

static struct buf packed(unsigned method, const char *data, size_t n)
{
	struct buf b = buf_init(SIZE_MAX / 2);

	pack(&b, method, data, n);
	return b;
}

static void test_round_trips(void **state)
{
	static const size_t sizes[] = {
		0, 1, 100, 65535, 128 * KIB - 1, 128 * KIB, 128 * KIB + 1, 256 * KIB, 1000000,
	}, steps[] = { 1, 4096, 100000, 2 * MIB };
	char *data = make_bytes(1000000, 1), *out = must(malloc(1000000 + 2 * MIB));

	(void)state;
	memset(data, 'z', 500000);
	for (size_t m = 0; m < 3; m++)
		for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
			struct buf b = packed(methods[m], data, sizes[i]);

			for (size_t j = sizes[i] > 100000; j < ARRAY_SIZE(steps); j++) {
				memset(out, 0xee, sizes[i]);
				assert_int_equal(
					decode(&b, methods[m], sizes[i], SIZE_MAX, steps[j], out),
					sizes[i]);
				assert_memory_equal(out, data, sizes[i]);
				assert_int_equal(
					decode(&b, methods[m], sizes[i], 1000, steps[j], out),
					sizes[i]);
				assert_memory_equal(out, data, sizes[i]);
			}
			buf_finish(&b);
		}
	free(data);
	free(out);
}

/* In one step: exactly the promised bytes, or nothing. */
static void test_in_memory(void **state)
{
	static const size_t sizes[] = { 0, 1, 1024, 65536 };
	char *data = make_bytes(70000, 1), *out = must(malloc(70000));

	(void)state;
	memset(data, 'z', 30000);
	for (size_t m = 0; m < 3; m++)
		for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
			struct buf b = packed(methods[m], data, sizes[i]);

			memset(out, 0xee, 70000);
			assert_int_equal(decode_memory(b.data, b.len, methods[m], out, sizes[i]),
					 0);
			assert_memory_equal(out, data, sizes[i]);
			assert_int_equal(
				decode_memory(b.data, b.len, methods[m], out, sizes[i] + 1),
				-EAGAIN);
			if (sizes[i] > 0)
				assert_int_equal(
					decode_memory(b.data, b.len, methods[m], out, sizes[i] - 1),
					-EAGAIN);
			for (size_t cut = 1; cut < MIN(b.len, (size_t)9); cut++)
				assert_int_equal(decode_memory(b.data, b.len - cut, methods[m], out,
							       sizes[i]),
						 -EAGAIN);
			assert_int_equal(buf_addc(&b, 'x'), 0);
			assert_int_equal(decode_memory(b.data, b.len, methods[m], out, sizes[i]),
					 -EAGAIN);
			assert_int_equal(decode_memory(b.data, b.len, 14, out, sizes[i]), -EAGAIN);
			buf_finish(&b);
		}
	free(data);
	free(out);
}

/* Whatever is cut off, added or promised wrongly is noticed by the time of the last byte. */
static void test_wrong_lengths(void **state)
{
	char *data = make_bytes(300000, 2), *out = must(malloc(700000));

	(void)state;
	memset(data, 'z', 100000);
	for (size_t m = 0; m < 3; m++) {
		struct buf b = packed(methods[m], data, 300000);
		size_t len = b.len;

		for (size_t step = 1000; step <= 400000; step += 399000) {
			assert_int_equal(decode(&b, methods[m], 299999, SIZE_MAX, step, out),
					 -EBADMSG);
			assert_int_equal(decode(&b, methods[m], 300001, SIZE_MAX, step, out),
					 -EBADMSG);
			assert_int_equal(decode(&b, methods[m], 0, SIZE_MAX, step, out), -EBADMSG);
			b.len = len - 1;
			assert_int_equal(decode(&b, methods[m], 300000, SIZE_MAX, step, out),
					 -EBADMSG);
			b.len = 0;
			assert_int_equal(decode(&b, methods[m], 300000, SIZE_MAX, step, out),
					 -EBADMSG);
			b.len = len;
			/* bytes left over, in the same block and in one of their own */
			assert_int_equal(buf_addc(&b, 'x'), 0);
			assert_int_equal(decode(&b, methods[m], 300000, SIZE_MAX, step, out),
					 -EBADMSG);
			for (size_t i = 0; i < 300000; i++)
				buf_addc(&b, 0);
			assert_int_equal(decode(&b, methods[m], 300000, SIZE_MAX, step, out),
					 -EBADMSG);
			b.len = len;
		}
		buf_finish(&b);
	}
	free(data);
	free(out);
}

static void test_empty_with_rest(void **state)
{
	char out[10];

	(void)state;
	for (size_t m = 1; m < 3; m++) {
		struct buf b = packed(methods[m], "", 0);

		assert_int_equal(decode(&b, methods[m], 0, SIZE_MAX, 5, out), 0);
		buf_adds(&b, "rest");
		assert_int_equal(decode(&b, methods[m], 0, SIZE_MAX, 5, out), -EBADMSG);
		b.len = 0;
		buf_adds(&b, "no such data");
		assert_int_equal(decode(&b, methods[m], 0, SIZE_MAX, 5, out), -EBADMSG);
		buf_finish(&b);
	}
}

/* The source is shorter than the entry's stored size: the stream's end is told as damage. */
static void test_short_source(void **state)
{
	char *data = make_bytes(1000, 3), out[2000];

	(void)state;
	for (size_t m = 0; m < 3; m++) {
		struct buf b = packed(methods[m], data, 1000);
		struct stream *s;
		int r;

		r = open_decoder(mem_stream(b.data, b.len / 2, SIZE_MAX), methods[m],
				 methods[m] ? b.len : 1000, 1000, &s);
		if (r == 0) {
			assert_int_equal(stream_read_full(s, out, 2000), -EBADMSG);
			stream_close(s);
		} else {
			assert_int_equal(r, -EBADMSG);
		}
		buf_finish(&b);
	}
	free(data);
}

static ssize_t failing_read(struct stream *s, void *ret_buf, size_t n)
{
	(void)s;
	(void)ret_buf;
	(void)n;
	return -EHOSTUNREACH;
}

static void failing_close(struct stream *s)
{
	(void)s;
}

/* What lies beneath fails as itself, not as damage. */
static void test_errors_pass(void **state)
{
	static const struct stream_ops ops = { failing_read, failing_close };
	struct stream failing = { &ops }, *s;
	char out[100];

	(void)state;
	for (size_t m = 0; m < 3; m++) {
		int r = open_decoder(&failing, methods[m], 100, 100, &s);

		if (r == 0) {
			assert_int_equal(stream_read_full(s, out, 100), -EHOSTUNREACH);
			stream_close(s);
		} else {
			assert_int_equal(r, -EHOSTUNREACH);
		}
	}
	assert_int_equal(open_decoder(&failing, 12, 100, 100, &s), -EOPNOTSUPP);
	assert_int_equal(open_decoder(&failing, METHOD_STORED, 99, 100, &s), -EBADMSG);
}

static void test_bit_flips(void **state)
{
	char *data = make_bytes(3000, 4), *out = must(malloc(10000));

	(void)state;
	memset(data, 'z', 1000);
	for (size_t m = 1; m < 3; m++) {
		struct buf b = packed(methods[m], data, 3000);

		for (size_t bit = 0; bit < 8 * b.len; bit += 3) {
			ssize_t got;

			b.data[bit / 8] ^= (char)(1 << bit % 8);
			got = decode(&b, methods[m], 3000, SIZE_MAX, 4096, out);
			assert_true(got == 3000 || got == -EBADMSG || got == -EOPNOTSUPP);
			b.data[bit / 8] ^= (char)(1 << bit % 8);
		}
		buf_finish(&b);
	}
	free(data);
	free(out);
}

/* ---- zstd frames ---- */

/* A frame header with that window, then one raw block "a": RFC 8878 3.1.1. */
static struct buf frame_with_window(unsigned log, bool dictionary)
{
	struct buf b = buf_init(100);

	zip_put(&b, 0xfd2fb528, 4);
	zip_put(&b, dictionary ? 1 : 0, 1);
	zip_put(&b, (log - 10) << 3, 1);
	if (dictionary)
		zip_put(&b, 7, 1);
	zip_put(&b, 1 | 1 << 3, 3);
	zip_put(&b, 'a', 1);
	return b;
}

static void test_zstd_window(void **state)
{
	struct log_seen *seen = log_watch();
	struct buf b;
	char out[16];

	(void)state;
	b = frame_with_window(MAX_ZSTD_WINDOW_LOG, false);
	assert_int_equal(decode(&b, METHOD_ZSTD, 1, SIZE_MAX, 16, out), 1);
	assert_int_equal(out[0], 'a');
	buf_finish(&b);
	assert_int_equal(seen->n, 0);

	b = frame_with_window(MAX_ZSTD_WINDOW_LOG + 1, false);
	assert_int_equal(decode(&b, METHOD_ZSTD, 1, SIZE_MAX, 16, out), -EOPNOTSUPP);
	buf_finish(&b);
	assert_string_equal(seen->subject, "entry");
	assert_says(seen, "window is larger than 2^27");

	b = frame_with_window(20, true);
	assert_int_equal(decode(&b, METHOD_ZSTD, 1, SIZE_MAX, 16, out), -EOPNOTSUPP);
	buf_finish(&b);
	assert_says(seen, "dictionary");
	carton_log_set(NULL, NULL);
}

static void test_zstd_frames(void **state)
{
	struct buf b = buf_init(SIZE_MAX / 2);
	char out[16];

	(void)state;
	/* two frames and a skippable one are one file */
	pack(&b, METHOD_ZSTD, "abc", 3);
	zip_put(&b, 0x184d2a50, 4);
	zip_put(&b, 2, 4);
	zip_put(&b, 0, 2);
	pack(&b, METHOD_ZSTD, "defg", 4);
	assert_int_equal(decode(&b, METHOD_ZSTD, 7, SIZE_MAX, 16, out), 7);
	assert_memory_equal(out, "abcdefg", 7);
	assert_int_equal(decode(&b, METHOD_ZSTD, 7, 1, 1, out), 7);
	assert_int_equal(decode(&b, METHOD_ZSTD, 3, SIZE_MAX, 16, out), -EBADMSG);
	buf_finish(&b);
}

/*
 * Formats from before RFC 8878, which libzstd may still take: a raw block of "a" each, and the end.
 */
static void test_zstd_before(void **state)
{
	static const char *const heads[] = { "\x25\xb5\x2f\xfd\0", "\x26\xb5\x2f\xfd\0",
					     "\x27\xb5\x2f\xfd\0\x50" };
	struct log_seen *seen = log_watch();
	char out[16];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(heads); i++)
		for (int second = 0; second < 2; second++) {
			struct buf b = packed(METHOD_ZSTD, "b", second ? 1 : 0);

			b.len *= (size_t)second;
			buf_add(&b, heads[i], i == 2 ? 6 : 5);
			buf_add(&b, "\x40\0\1a\xc0\0\0", 7);
			assert_int_equal(
				decode(&b, METHOD_ZSTD, 1 + (uint64_t)second, SIZE_MAX, 16, out),
				-EBADMSG);
			assert_says(seen, "bad zstd data");
			assert_int_equal(
				decode_memory(b.data, b.len, METHOD_ZSTD, out, 1 + (size_t)second),
				-EAGAIN);
			buf_finish(&b);
		}
	carton_log_set(NULL, NULL);
}

/* Nothing at all is no data of either method. */
static void test_no_bytes(void **state)
{
	struct buf b = buf_init(1);
	char out[16];

	(void)state;
	for (size_t m = 1; m < 3; m++) {
		assert_int_equal(decode(&b, methods[m], 0, SIZE_MAX, 16, out), -EBADMSG);
		assert_int_equal(decode_memory("", 0, methods[m], out, 0), -EAGAIN);
	}
	buf_finish(&b);
}

static void test_names(void **state)
{
	(void)state;
	assert_string_equal(decode_name(METHOD_STORED), "stored");
	assert_string_equal(decode_name(METHOD_DEFLATE), "deflate");
	assert_string_equal(decode_name(METHOD_ZSTD), "zstd");
	assert_string_equal(decode_name(14), "unknown");
	for (unsigned m = 0; m < 256; m++)
		assert_int_equal(decode_knows(m), m == 0 || m == 8 || m == 93);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trips),	cmocka_unit_test(test_wrong_lengths),
		cmocka_unit_test(test_empty_with_rest), cmocka_unit_test(test_short_source),
		cmocka_unit_test(test_errors_pass),	cmocka_unit_test(test_bit_flips),
		cmocka_unit_test(test_zstd_window),	cmocka_unit_test(test_zstd_frames),
		cmocka_unit_test(test_in_memory),	cmocka_unit_test(test_names),
		cmocka_unit_test(test_zstd_before),	cmocka_unit_test(test_no_bytes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
