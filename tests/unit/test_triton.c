/* SPDX-License-Identifier: Apache-2.0 */
/* Texts made for others to read: Triton's JSON and headers, and index.json of the views. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "tensor/triton.h"
#include "views/json.h"

static struct triton_tensor tensor(const char *name, const char *dtype, const uint64_t *shape,
				   unsigned rank, uint64_t bytes, size_t position)
{
	return (struct triton_tensor){
		.info = { .name = name,
			  .name_len = (uint32_t)strlen(name),
			  .dtype = dtype_by_name(dtype, strlen(dtype)),
			  .shape = shape,
			  .bytes = bytes,
			  .rank = rank },
		.position = position,
	};
}

static const uint64_t two_three[] = { 2, 3, 1 };

static void test_request(void **state)
{
	struct triton_tensor in[] = {
		tensor("z", "string", two_three, 1, 17, SIZE_MAX),
		tensor("a\"", "uint8", two_three + 3, 0, 1, SIZE_MAX),
		tensor("second", "float32", two_three, 2, 24, 1),
		tensor("x", "int64", (const uint64_t[]){ 0 }, 1, 0, 0),
	};
	struct buf b = buf_init(KIB);
	uint64_t body;

	(void)state;
	triton_sort(in, ARRAY_SIZE(in));
	assert_null(triton_obstacle(in, ARRAY_SIZE(in)));
	assert_int_equal(triton_request(in, ARRAY_SIZE(in), &b, &body), 0);
	assert_string_equal(b.data, "{\"inputs\":["
				    "{\"name\":\"x\",\"shape\":[0],\"datatype\":\"INT64\","
				    "\"parameters\":{\"binary_data_size\":0}},"
				    "{\"name\":\"second\",\"shape\":[2,3],\"datatype\":\"FP32\","
				    "\"parameters\":{\"binary_data_size\":24}},"
				    "{\"name\":\"a\\\"\",\"shape\":[],\"datatype\":\"UINT8\","
				    "\"parameters\":{\"binary_data_size\":1}},"
				    "{\"name\":\"z\",\"shape\":[2],\"datatype\":\"BYTES\","
				    "\"parameters\":{\"binary_data_size\":17}}"
				    "],\"parameters\":{\"binary_data_output\":true}}");
	assert_int_equal(body, b.len + 42);
	b.len = 0;
	assert_int_equal(triton_response("m", in, 1, &b, &body), 0);
	assert_string_equal(b.data,
			    "{\"model_name\":\"m\",\"outputs\":["
			    "{\"name\":\"x\",\"shape\":[0],"
			    "\"datatype\":\"INT64\",\"parameters\":{\"binary_data_size\":0}}]}");
	b.len = 0;
	assert_int_equal(triton_response(NULL, in, 0, &b, &body), 0);
	assert_string_equal(b.data, "{\"outputs\":[]}");
	b.len = 0;
	assert_int_equal(triton_headers(123, &b), 0);
	assert_string_equal(b.data, "Content-Type: application/octet-stream\n"
				    "Inference-Header-Content-Length: 123\n");
	buf_finish(&b);
	triton_sort(NULL, 0);
}

static void test_obstacles(void **state)
{
	struct triton_tensor in[] = {
		tensor("a", "uint8", two_three, 1, 1, 0),
		tensor("b", "uint8", two_three, 1, 2 * GIB - 2, 1),
	};
	struct buf b = buf_init(KIB);
	uint64_t body = 77;

	(void)state;
	assert_null(triton_obstacle(in, 2));
	assert_int_equal(triton_request(in, 2, &b, &body), -EOVERFLOW); /* the JSON is too much */
	in[1].info.bytes++;
	assert_non_null(triton_obstacle(in, 2));
	in[1].info.bytes = UINT64_MAX;
	assert_non_null(triton_obstacle(in, 2));
	in[1].info.dtype = dtype_nested;
	assert_non_null(triton_obstacle(in, 2));
	assert_int_equal(triton_request(in, 2, &b, &body), -EINVAL);
	assert_int_equal(body, 77);
	buf_finish(&b);
}

static void test_raw(void **state)
{
	static const int64_t one[] = { 1 }, any[] = { -1 };
	static const int64_t batch[] = { -1, 3 }, free2[] = { -1, -1 };
	struct triton_tensor f = tensor("a", "float32", two_three, 2, 24, 0);
	struct triton_tensor s = tensor("s", "string", two_three + 2, 1, 5, 0);
	struct triton_declared d = {
		.n_inputs = 1,
		.name = "a",
		.dtype = f.info.dtype,
		.rank = 2,
		.dims = batch,
	};

	(void)state;
	assert_true(triton_raw_applies(&d, &f.info));
	d.n_inputs = 2;
	assert_false(triton_raw_applies(&d, &f.info));
	d.n_inputs = 1;
	d.any_shape = true;
	assert_false(triton_raw_applies(&d, &f.info));
	d.any_shape = false;
	d.dims = free2;
	assert_false(triton_raw_applies(&d, &f.info));
	d.dims = (const int64_t[]){ 2, 4 };
	assert_false(triton_raw_applies(&d, &f.info));
	f.info.rank = 0;
	d.rank = 0;
	assert_true(triton_raw_applies(&d, &f.info));
	d.name = NULL;
	assert_false(triton_raw_applies(&d, &f.info));
	d = (struct triton_declared){
		.n_inputs = 1,
		.name = "s",
		.dtype = dtype_string,
		.rank = 1,
		.dims = one,
	};
	assert_false(triton_raw_applies(&d, &f.info));
	assert_true(triton_raw_applies(&d, &s.info));
	d.dims = any;
	assert_false(triton_raw_applies(&d, &s.info));
}

/* ---- index.json ---- */

#define TEXT(s) ((struct view_json_text){ s, sizeof(s) - 1 })

static int append(void *ctx, const void *data, size_t n)
{
	return buf_add(ctx, data, n);
}

static void test_view_json(void **state)
{
	const struct tensor_info x = { .name = "x\0",
				       .dtype = dtype_by_name("int8", 4),
				       .shape = two_three,
				       .bytes = 6,
				       .name_len = 2,
				       .rank = 2 };
	const struct tensor_info n = { .name = "n", .dtype = dtype_nested, .name_len = 1 };
	const struct view_json_text files[] = { TEXT("x%00.bin"), TEXT("x%00.npy") };
	const struct view_json_text inner[] = { TEXT("x\0") };
	struct buf b = buf_init(KIB);
	struct view_json j;

	(void)state;
	view_json_init(&j, append, &b);
	assert_int_equal(view_json_tensor(&j, &(struct view_json_tensor){ &x, "int8", 6, files, 2,
									  NULL, 0 }),
			 0);
	assert_int_equal(
		view_json_tensor(&j, &(struct view_json_tensor){ &n, "nested", VIEW_JSON_UNKNOWN,
								 NULL, 0, inner, 1 }),
		0);
	assert_int_equal(view_json_pair(&j, TEXT("k"), TEXT("\xff")), 0);
	assert_int_equal(view_json_problem(&j, TEXT("y"), 9, "bad \"y\""), 0);
	assert_int_equal(view_json_problem(&j, (struct view_json_text){ NULL, 0 }, 0, "z"), 0);
	assert_int_equal(view_json_end(&j), 0);
	assert_int_equal(view_json_pair(&j, TEXT("k"), TEXT("late")), -EINVAL);
	assert_int_equal(j.size, b.len);
	view_json_finish(&j);
	assert_string_equal(
		b.data,
		"{\n \"tensors\": [\n"
		"  {\"name\": \"x\\u0000\", \"dtype\": \"int8\", \"shape\": [2, 3], \"bytes\": 6, "
		"\"files\": [\"x%00.bin\", \"x%00.npy\"]},\n"
		"  {\"name\": \"n\", \"dtype\": \"nested\", \"inner\": [\"x\\u0000\"], "
		"\"bytes\": null, \"files\": []}\n ],\n"
		" \"metadata\": {\n  \"k\": \"\xef\xbf\xbd\"\n },\n"
		" \"problems\": [\n"
		"  {\"name\": \"y\", \"line\": 9, \"problem\": \"bad \\\"y\\\"\"},\n"
		"  {\"problem\": \"z\"}\n ]\n}\n");
	b.len = 0;
	view_json_init(&j, append, &b);
	assert_int_equal(view_json_end(&j), 0);
	view_json_finish(&j);
	assert_string_equal(b.data, "{\n \"tensors\": [],\n \"problems\": []\n}\n");
	buf_finish(&b);
}

/* A long text is written in parts, which do not cut a character; without a writer it is counted. */
static void test_long_json(void **state)
{
	static const char unit[] = "\u20ac\n\xff"; /* 5 bytes, that take 8 */
	const size_t n = 100000;
	char *long_text = malloc(5 * n);
	struct view_json_text key = TEXT("k"), value = { long_text, 5 * n };
	struct buf b = buf_init(MIB), want = buf_init(MIB);
	struct view_json j, counted;

	(void)state;
	assert_non_null(long_text);
	for (size_t i = 0; i < n; i++)
		memcpy(long_text + 5 * i, unit, 5);
	view_json_init(&j, append, &b);
	view_json_init(&counted, NULL, NULL);
	assert_int_equal(view_json_pair(&j, key, value), 0);
	assert_true(b.len > 10 * 64 * KIB);
	assert_true(j.text.cap < 256 * KIB);
	assert_int_equal(view_json_pair(&counted, key, value), 0);
	assert_int_equal(view_json_end(&j), 0);
	assert_int_equal(view_json_end(&counted), 0);
	assert_int_equal(buf_adds(&want, "{\n \"tensors\": [],\n \"metadata\": {\n  \"k\": "), 0);
	assert_int_equal(buf_add_json(&want, long_text, 5 * n), 0);
	assert_int_equal(buf_adds(&want, "\n },\n \"problems\": []\n}\n"), 0);
	assert_string_equal(b.data, want.data);
	assert_int_equal(counted.size, want.len);
	view_json_finish(&j);
	view_json_finish(&counted);
	buf_finish(&b);
	buf_finish(&want);
	free(long_text);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_request),	  cmocka_unit_test(test_obstacles),
		cmocka_unit_test(test_raw),	  cmocka_unit_test(test_view_json),
		cmocka_unit_test(test_long_json),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
