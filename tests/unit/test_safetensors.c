/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors headers: read, cut short, at the limits, and written. Every rule of the format has
 * its malformed file in tests/format/test_formats.py.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "tensor/safetensors.h"

struct file {
	const char *data; /* behind the length */
	size_t len;
	uint64_t header; /* the length */
	size_t fail_at;	 /* reads from here on fail */
};

static int read_file(void *ctx, void *ret_buf, size_t n, uint64_t off)
{
	const struct file *f = ctx;

	if (off >= f->fail_at)
		return -EIO;
	if (off == 0) {
		assert_int_equal(n, 8);
		put_le64(ret_buf, f->header);
		return 0;
	}
	assert_true(off >= 8 && off - 8 + n <= f->len);
	memcpy(ret_buf, f->data + off - 8, n);
	return 0;
}

static int parse_n(const char *s, size_t n, struct safetensors **ret, struct reason *e)
{
	struct file f = { s, n, n, SIZE_MAX };

	return safetensors_parse(&(struct safetensors_file){ read_file, &f, 8 + n, NULL }, ret, e);
}

static void test_good(void **state)
{
	static const char text[] =
		"{"
		"\"b\":{\"dtype\":\"F16\",\"shape\":[0,9],\"data_offsets\":[0,0]},"
		"\"__metadata__\":{\"k\":\"v\\u0000\"},"
		"\"\\u0000\":{\"data_offsets\":[0,0],\"shape\":[0],\"dtype\":\"BF16\"}}";
	struct safetensors *s = NULL;

	(void)state;
	assert_int_equal(parse_n(text, strlen(text), &s, NULL), 0);
	assert_int_equal(s->n, 2);
	assert_string_equal(s->list[0].name, "b");
	assert_int_equal(s->list[0].rank, 2);
	assert_int_equal(s->list[0].shape[1], 9);
	assert_int_equal(s->list[1].name_len, 1);
	assert_int_equal(s->list[1].name[0], 0);
	assert_string_equal(s->list[1].dtype->safetensors, "BF16");
	assert_int_equal(s->n_metadata, 1);
	assert_int_equal(s->metadata[0].value_len, 2);
	assert_int_equal(s->data_start, 8 + strlen(text));
	safetensors_free(s);
	safetensors_free(NULL);
}

static void test_every_prefix(void **state)
{
	static const char text[] = "{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0],"
				   "\"x\":[{\"y\":\"\\ud83e\\udd73\"}]}}";
	struct safetensors *s = NULL;
	struct reason e;

	(void)state;
	for (size_t n = 0; n < strlen(text); n++) {
		e.text[0] = '\0';
		assert_int_equal(parse_n(text, n, &s, &e), -EBADMSG);
		assert_true(*e.text && !s);
	}
	assert_int_equal(parse_n(text, strlen(text), &s, &e), 0);
	safetensors_free(s);
}

static void test_read_fails(void **state)
{
	struct file f = { "{}", 2, 2, 0 };
	struct safetensors *s;

	(void)state;
	assert_int_equal(
		safetensors_parse(&(struct safetensors_file){ read_file, &f, 10, NULL }, &s, NULL),
		-EIO);
	f.fail_at = 8;
	assert_int_equal(
		safetensors_parse(&(struct safetensors_file){ read_file, &f, 10, NULL }, &s, NULL),
		-EIO);
	f.fail_at = 9;
	assert_int_equal(
		safetensors_parse(&(struct safetensors_file){ read_file, &f, 10, NULL }, &s, NULL),
		0);
	safetensors_free(s);
}

/* Repeats a piece, "%zu" in it being its number. */
static void repeat(struct buf *b, const char *before, const char *piece, size_t n,
		   const char *after)
{
	assert_int_equal(buf_adds(b, before), 0);
	for (size_t i = 0; i < n; i++) {
		assert_int_equal(i ? buf_addc(b, ',') : 0, 0);
		assert_int_equal(buf_addf(b, "\"%zu\":%s", i, piece), 0);
	}
	assert_int_equal(buf_adds(b, after), 0);
}

static void check_count(size_t limit, const char *before, const char *piece, const char *after)
{
	struct safetensors *s;
	struct reason e;

	for (size_t over = 0; over <= 1; over++) {
		struct buf b = buf_init(GIB);

		repeat(&b, before, piece, limit + over, after);
		assert_int_equal(parse_n(b.data, b.len, &s, &e), over ? -EFBIG : 0);
		if (!over)
			safetensors_free(s);
		buf_finish(&b);
	}
}

static void test_limits(void **state)
{
	(void)state;
	check_count(MAX_TENSORS, "{", "{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}",
		    "}");
	check_count(MAX_SAFETENSORS_KEYS, "{\"__metadata__\":{", "\"\"", "}}");
	check_count(MAX_SAFETENSORS_KEYS - 1, "{\"a\":{\"x\":{", "0",
		    "},\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}");
}

/* ---- writing ---- */

static struct tensor_info info(const char *name, const char *dtype, const uint64_t *shape,
			       unsigned rank)
{
	struct tensor_info i = { .name = name,
				 .name_len = (uint32_t)strlen(name),
				 .dtype = dtype_by_name(dtype, strlen(dtype)),
				 .shape = shape,
				 .rank = rank };

	assert_non_null(i.dtype);
	i.bytes = tensor_count(&i) * i.dtype->bits / 8;
	return i;
}

static void test_write(void **state)
{
	static const uint64_t shape[] = { 1, 2, 3 };
	const struct tensor_info a = info("attn.0", "float32", shape, 3);
	const struct tensor_info list[] = {
		info("b", "uint8", NULL, 0),
		info("a", "int8", NULL, 0),
		a,
		info("B\"\x1f\n/\x7f", "float32", shape, 0),
		info("z", "uint64", shape + 2, 1),
	};
	struct safetensors_item one = { .info = &a }, items[ARRAY_SIZE(list)];
	struct buf b = buf_init(KIB);

	(void)state;
	/* As in the reference implementation's own test. */
	assert_int_equal(safetensors_header(&one, 1, &b), 0);
	assert_int_equal(get_le64(b.data), 64);
	assert_string_equal(
		b.data + 8,
		"{\"attn.0\":{\"dtype\":\"F32\",\"shape\":[1,2,3],\"data_offsets\":[0,24]}}");
	b.len = 0;
	for (size_t i = 0; i < ARRAY_SIZE(list); i++)
		items[i] = (struct safetensors_item){ .info = &list[i], .user = (void *)&list[i] };
	assert_int_equal(safetensors_header(items, ARRAY_SIZE(items), &b), 0);
	assert_string_equal(
		b.data + 8,
		"{\"z\":{\"dtype\":\"U64\",\"shape\":[3],\"data_offsets\":[0,24]},"
		"\"B\\\"\\u001f\\n/\x7f\":"
		"{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[24,28]},"
		"\"attn.0\":{\"dtype\":\"F32\",\"shape\":[1,2,3],\"data_offsets\":[28,52]},"
		"\"a\":{\"dtype\":\"I8\",\"shape\":[],\"data_offsets\":[52,53]},"
		"\"b\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[53,54]}}     ");
	assert_int_equal(b.len % 8, 0);
	assert_int_equal(items[2].offset, 28);
	assert_ptr_equal(items[2].user, &list[2]);
	b.len = 0;
	assert_int_equal(safetensors_header(NULL, 0, &b), 0);
	assert_memory_equal(b.data, "\x08\0\0\0\0\0\0\0{}      ", 16);
	buf_finish(&b);
}

static void test_write_refused(void **state)
{
	const struct tensor_info same = info("a", "int8", NULL, 0);
	const struct tensor_info reserved = info("__metadata__", "int8", NULL, 0);
	const struct tensor_info text = info("s", "string", NULL, 0);
	struct tensor_info huge = same;
	struct safetensors_item items[2] = { { .info = &same }, { .info = &reserved } };
	struct buf b = buf_init(KIB);
	uint64_t max;

	(void)state;
	assert_int_equal(safetensors_header(items, 2, &b), -EINVAL);
	assert_false(safetensors_can_hold(&text));
	huge.name = "b";
	items[0].info = &same;
	items[1].info = &huge;
	huge.bytes = INT64_MAX / 2;
	assert_int_equal(safetensors_header(items, 2, &b), 0);
	max = INT64_MAX - b.len - same.bytes;
	for (int n = 0; n < 3; n++) {
		huge.bytes = n == 0 ? max : n == 1 ? max + 1 : UINT64_MAX;
		items[0].info = &same;
		items[1].info = &huge;
		b.len = 0;
		assert_int_equal(safetensors_header(items, 2, &b), n ? -EOVERFLOW : 0);
	}
	b.max = 20;
	assert_int_equal(safetensors_header(items, 1, &b), -EFBIG);
	assert_int_equal(b.len, 0);
	buf_finish(&b);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),	   cmocka_unit_test(test_every_prefix),
		cmocka_unit_test(test_read_fails), cmocka_unit_test(test_limits),
		cmocka_unit_test(test_write),	   cmocka_unit_test(test_write_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
