/* SPDX-License-Identifier: Apache-2.0 */
/* dtypes and sizes; index.toml: what is good, and every way in which one tensor can be bad. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "tensor/index_toml.h"
#include "base/util.h"

/* ---- dtypes ---- */

static void test_dtype_names(void **state)
{
	const struct dtype *d, *other;

	(void)state;
	for (size_t i = 0; (d = dtype_at(i)); i++) {
		assert_non_null(dtype_label(d));
		if (d->name)
			assert_ptr_equal(dtype_by_name(d->name, strlen(d->name)), d);
		if (d->safetensors)
			assert_ptr_equal(
				d, dtype_by_safetensors(d->safetensors, strlen(d->safetensors)));
		for (size_t j = 0; d->bits && j < i; j++) {
			other = dtype_at(j);
			assert_int_not_equal(other->order, d->order);
			/* What the serializer puts first is never of smaller alignment. */
			if (other->order > d->order)
				assert_true(other->bits >= d->bits || d->bits <= 8);
		}
	}
	assert_null(dtype_by_name("float16", 7));
	assert_null(dtype_by_name("float32x", 8));
	assert_null(dtype_by_name("", 0));
	assert_null(dtype_by_safetensors("f32", 3));
	assert_ptr_equal(dtype_by_name("string", 6), dtype_string);
	assert_ptr_equal(dtype_by_name("nested", 6), dtype_nested);
}

static void test_dtype_bytes(void **state)
{
	static const struct {
		const char *dtype;
		unsigned rank;
		uint64_t shape[3];
		int r;
		uint64_t bytes;
	} cases[] = {
		{ "F32", 0, { 0 }, 0, 4 },
		{ "F32", 2, { 2, 3 }, 0, 24 },
		{ "F32", 2, { 2, 0 }, 0, 0 },
		{ "U8", 1, { UINT64_MAX }, 0, UINT64_MAX },
		{ "U16", 1, { UINT64_MAX }, -EOVERFLOW, 0 },
		{ "U16", 1, { UINT64_MAX / 2 }, 0, UINT64_MAX - 1 },
		{ "U64", 2, { 1ULL << 32, 1ULL << 32 }, -EOVERFLOW, 0 },
		{ "U8", 3, { 1ULL << 32, 1ULL << 32, 0 }, -EOVERFLOW, 0 },
		{ "U8", 3, { 0, 1ULL << 32, 1ULL << 32 }, -EOVERFLOW, 0 },
		{ "U8", 3, { 0, 1ULL << 63, 1 }, 0, 0 },
		{ "F4", 1, { 3 }, -EBADMSG, 0 },
		{ "F4", 2, { 3, 2 }, 0, 3 },
		{ "F6_E2M3", 1, { 4 }, 0, 3 },
		{ "F6_E3M2", 1, { 2 }, -EBADMSG, 0 },
		{ "F4", 1, { UINT64_MAX / 4 + 1 }, -EOVERFLOW, 0 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const struct dtype *d = dtype_by_safetensors(cases[i].dtype,
							     strlen(cases[i].dtype));
		uint64_t bytes = 77;

		assert_int_equal(dtype_bytes(d, cases[i].shape, cases[i].rank, &bytes), cases[i].r);
		assert_int_equal(bytes, cases[i].r ? 77 : cases[i].bytes);
	}
	assert_int_equal(dtype_bytes(dtype_string, NULL, 0, &(uint64_t){ 0 }), -EINVAL);
}

/* ---- index.toml ---- */

static int parse_text(const char *text, size_t n, struct index_toml **ret, struct reason *error)
{
	return index_toml_parse(mem_text_read, &(struct mem_text){ text, n }, NULL, ret, error);
}

static struct index_toml *parse(const char *text)
{
	struct index_toml *t = NULL;
	struct reason error = { 0 };
	int r = parse_text(text, strlen(text), &t, &error);

	if (r)
		print_error("%d, line %zu: %s\n", r, error.line, error.text);
	assert_int_equal(r, 0);
	return t;
}

/* The carton of these tests: what tensor_data holds. */
static int size_of(void *ctx, const char *path, uint64_t *ret)
{
	static const struct {
		const char *path;
		int r;
		uint64_t size;
	} files[] = {
		{ "tensor_data/24.bin", 0, 24 },     { "tensor_data/s.toml", 0, 99 },
		{ "tensor_data/sub/24.bin", 0, 24 }, { "tensor_data/later.bin", -EAGAIN, 0 },
		{ "tensor_data/dir", -EISDIR, 0 },
	};

	if (ctx)
		++*(int *)ctx;
	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		if (!strcmp(files[i].path, path)) {
			*ret = files[i].size;
			return files[i].r;
		}
	}
	return -ENOENT;
}

#define F32(name) "[[tensor]]\nname='" name "'\ndtype='float32'\nshape=[2,3]\nfile='24.bin'\n"

static void test_good(void **state)
{
	struct index_toml *t = parse("other = {x = [1]}\n" F32(
		"b") "inner = []\nunknown.deep = [{a = 1}]\n"
		     "[tensor.also]\nx = 1\n"
		     "[[tensor]]\nname = \"a\\u0000/\\u00e9\"\ndtype = 'string'\n"
		     "shape = [7, 0]\nfile = 's.toml'\n"
		     "[[tensor]]\nname = ''\ndtype = 'uint64'\nshape = [3]\nfile = 'sub/24.bin'\n"
		     "[[tensor]]\nname = 'n'\ninner = ['b', '', 'b']\ndtype = 'nested'\n"
		     "[[tensor]]\nname = 'none'\ndtype = 'nested'\ninner = []\n"
		     "[[tensor]]\nname = 'l'\ndtype = 'int8'\nshape = []\nfile = 'later.bin'\n");
	int calls = 0;

	(void)state;
	assert_int_equal(index_toml_check_files(t, size_of, &calls), 0);
	assert_int_equal(calls, 4);
	assert_null(t->problem);
	assert_int_equal(t->n, 6);
	for (size_t i = 0; i < t->n; i++)
		assert_null(t->list[i].problem);
	assert_int_equal(t->list[0].info.bytes, 24);
	assert_int_equal(t->list[0].info.shape[1], 3);
	assert_int_equal(t->list[0].line, 2);
	assert_int_equal(t->list[1].info.name_len, 5);
	assert_memory_equal(t->list[1].info.name, "a\0/\xc3\xa9", 6);
	assert_int_equal(tensor_count(&t->list[1].info), 0);
	assert_string_equal(t->list[2].file, "sub/24.bin");
	assert_int_equal(t->list[3].n_inner, 3);
	assert_ptr_equal(t->list[3].inner[0].tensor, &t->list[0]);
	assert_ptr_equal(t->list[3].inner[1].tensor, &t->list[2]);
	assert_int_equal(tensor_count(&t->list[5].info), 1);
	assert_ptr_equal(index_toml_find(t, "b", 1), &t->list[0]);
	assert_ptr_equal(index_toml_find(t, "", 0), &t->list[2]);
	assert_null(index_toml_find(t, "bb", 2));
	assert_null(index_toml_find(t, "a", 1));
	index_toml_free(t);
}

/* One bad tensor between two good ones: only it has a problem, and this text is in it. */
static void check_bad(const char *body, const char *says)
{
	char text[8192];
	struct index_toml *t;

	snprintf(text, sizeof(text), "%s[[tensor]]\n%s\n%s", F32("before"), body, F32("after"));
	t = parse(text);
	assert_int_equal(index_toml_check_files(t, size_of, NULL), 0);
	assert_int_equal(t->n, 3);
	assert_null(t->problem);
	assert_null(t->list[0].problem);
	assert_null(t->list[2].problem);
	if (!t->list[1].problem || !strstr(t->list[1].problem, says))
		fail_msg("%s\ngives: %s\nnot: %s", body,
			 t->list[1].problem ? t->list[1].problem : "no problem", says);
	index_toml_free(t);
}

#define X "name='x'\ndtype='float32'\n"
#define FILE24 "file='24.bin'\n"

static void test_bad(void **state)
{
	static const struct {
		const char *body, *says;
	} cases[] = {
		{ "", "no name" },
		{ "dtype='float32'\nshape=[2,3]\n" FILE24, "no name" },
		{ "name=5\ndtype='float32'\nshape=[2,3]\n" FILE24, "name is not a string" },
		{ "name=['x']\ndtype='float32'\nshape=[6]\n" FILE24, "name is not a string" },
		{ "name='x'\nshape=[2,3]\n" FILE24, "no dtype" },
		{ "name='x'\ndtype=1\nshape=[2,3]\n" FILE24, "dtype is not a string" },
		{ "name='x'\ndtype='F32'\nshape=[2,3]\n" FILE24, "dtype 'F32' is unknown" },
		{ "name='x'\ndtype='bool'\nshape=[2,3]\n" FILE24, "dtype 'bool' is unknown" },
		{ X FILE24, "no shape" },
		{ X "shape='*'\n" FILE24, "shape is not a list" },
		{ X "shape=6\n" FILE24, "shape is not a list" },
		{ X "shape={a=1}\n" FILE24, "shape is not a list" },
		{ X "shape.a=1\n" FILE24, "shape is of the wrong type" },
		{ X "shape=[2,'x']\n" FILE24, "shape is not a list" },
		{ X "shape=[6.0]\n" FILE24, "shape is not a list" },
		{ X "shape=[[2,3]]\n" FILE24, "shape is not a list" },
		{ X "shape=[-2,-3]\n" FILE24, "negative dimension, -2" },
		{ X "shape=[4,3]\n" FILE24, "24 bytes, but the shape and dtype need 48" },
		{ X "shape=[0]\n" FILE24, "24 bytes, but the shape and dtype need 0" },
		{ X "shape=[4294967296,4294967296]\n" FILE24, "does not fit 64 bits" },
		{ X "shape=[4611686018427387904]\n" FILE24, "does not fit 64 bits" },
		{ X "shape=[2,3]\n", "no file" },
		{ X "shape=[2,3]\nfile=1", "file is not a string" },
		{ X "shape=[2,3]\nfile=['24.bin']", "file is not a string" },
		{ X "shape=[2,3]\nfile=''", "not a path inside tensor_data" },
		{ X "shape=[2,3]\nfile='/24.bin'", "not a path inside tensor_data" },
		{ X "shape=[2,3]\nfile='../model/24.bin'", "not a path inside tensor_data" },
		{ X "shape=[2,3]\nfile='sub/../24.bin'", "not a path inside tensor_data" },
		{ X "shape=[2,3]\nfile='./24.bin'", "not a path inside tensor_data" },
		{ X "shape=[2,3]\nfile='sub//24.bin'", "not a path inside tensor_data" },
		{ X "shape=[2,3]\nfile='24.bin/'", "not a path inside tensor_data" },
		{ X "shape=[2,3]\nfile='sub\\24.bin'", "not a path inside tensor_data" },
		{ X "shape=[2,3]\nfile=\"24.bin\\u0000\"", "not a path inside tensor_data" },
		{ X "shape=[2,3]\nfile='absent.bin'", "not in the carton" },
		{ X "shape=[2,3]\nfile='dir'", "not a regular file" },
		{ X "shape=[2,3]\ninner=['before']\n" FILE24, "not nested" },
		{ X "shape=[2,3]\ninner=1\n" FILE24, "inner is not a list" },
		{ "name='x'\ndtype='string'\nshape=[2]\n" FILE24, "not a .toml file" },
		{ "name='x'\ndtype='string'\nshape=[2]\nfile='.toml'", "not a .toml file" },
		{ "name='x'\ndtype='string'\nshape=[2]\nfile='t.toml'", "not in the carton" },
		{ "name='x'\ndtype='nested'", "no inner" },
		{ "name='x'\ndtype='nested'\ninner='before'", "inner is not a list" },
		{ "name='x'\ndtype='nested'\ninner=[1]", "inner is not a list" },
		{ "name='x'\ndtype='nested'\ninner=['before']\n" FILE24, "but has a file" },
		{ "name='x'\ndtype='nested'\ninner=['before','absent']", "'absent' does not" },
		{ "name='x'\ndtype='nested'\ninner=['x']", "'x' is itself nested" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		check_bad(cases[i].body, cases[i].says);
}

static void test_several(void **state)
{
	struct index_toml *t = parse(F32("twice") F32("once") F32("twice") F32(
		"twice") "[[tensor]]\nname='n'\ndtype='nested'\ninner=['once','twice']\n"
			 "[[tensor]]\nname='small'\ndtype='int8'\nshape=[1]\nfile='24.bin'\n"
			 "[[tensor]]\nname='m'\ndtype='nested'\ninner=['small']\n");

	(void)state;
	assert_null(t->list[6].problem);
	assert_int_equal(index_toml_check_files(t, size_of, NULL), 0);
	assert_string_equal(t->list[0].problem, "3 tensors have this name");
	assert_null(t->list[1].problem);
	assert_string_equal(t->list[2].problem, "3 tensors have this name");
	assert_string_equal(t->list[3].problem, "3 tensors have this name");
	assert_string_equal(t->list[4].problem, "its inner tensor 'twice' has a problem");
	assert_non_null(t->list[5].problem);
	assert_string_equal(t->list[6].problem, "its inner tensor 'small' has a problem");
	assert_string_equal(index_toml_find(t, "twice", 5)->problem, "3 tensors have this name");
	assert_int_equal(index_toml_fault(t, &t->list[1], "found %d later", 1), 0);
	assert_int_equal(index_toml_fault(t, &t->list[1], "and again"), 0);
	assert_string_equal(t->list[1].problem, "found 1 later");
	index_toml_free(t);
}

static void test_no_array(void **state)
{
	static const char *const texts[] = {
		"tensor = 1",	     "tensor = {name = 'x'}", "[tensor]\nname = 'x'",
		"tensor.name = 'x'", "[tensor.x]\ny = 1",     "[[tensor.x]]\ny = 1",
		"tensor = [1]",	     "tensor = [[1]]",
	};
	struct index_toml *t;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		t = parse(texts[i]);
		assert_int_equal(t->n, 0);
		assert_non_null(t->problem);
		index_toml_free(t);
	}
	t = parse("tensor = [{name = 'a', dtype = 'int8', shape = [], file = 'later.bin'}]");
	assert_int_equal(t->n, 1);
	assert_null(t->list[0].problem);
	index_toml_free(t);
	t = parse("");
	assert_int_equal(t->n, 0);
	assert_null(t->problem);
	index_toml_free(t);
	index_toml_free(NULL);
}

static void test_limits(void **state)
{
	char text[1024];
	struct buf b = buf_init(GIB);
	struct index_toml *t = NULL;
	size_t n;

	(void)state;
	for (int rank = MAX_TENSOR_RANK; rank <= MAX_TENSOR_RANK + 1; rank++) {
		n = (size_t)snprintf(text, sizeof(text), X "file='24.bin'\nshape=[6");
		for (int d = 1; d < rank; d++)
			n += (size_t)snprintf(text + n, sizeof(text) - n, ",1");
		snprintf(text + n, sizeof(text) - n, "]\n");
		if (rank > MAX_TENSOR_RANK) {
			check_bad(text, "more than 64 dimensions");
			continue;
		}
		assert_int_equal(buf_addf(&b, "[[tensor]]\n%s", text), 0);
		t = parse(b.data);
		assert_null(t->list[0].problem);
		assert_int_equal(t->list[0].info.rank, MAX_TENSOR_RANK);
		index_toml_free(t);
		buf_finish(&b);
	}
	for (int over = 0; over <= 1; over++) {
		assert_int_equal(buf_adds(&b, F32("a") "[[tensor]]\nname='"), 0);
		for (size_t i = 0; i < MAX_TENSOR_NAME + (size_t)over; i++)
			assert_int_equal(buf_addc(&b, 'n'), 0);
		assert_int_equal(buf_adds(&b, "'\ndtype='int8'\nshape=[]\nfile='later.bin'\n"), 0);
		t = parse(b.data);
		assert_null(t->list[0].problem);
		assert_int_equal(t->list[1].problem != NULL, over);
		index_toml_free(t);
		buf_finish(&b);
	}
}

/* One past what a whole index may hold. */
static void test_limits_whole(void **state)
{
	struct buf b = buf_init(GIB);
	struct index_toml *t = NULL;
	struct reason error;

	(void)state;
	assert_int_equal(buf_adds(&b, "tensor = ["), 0);
	for (size_t i = 0; i < MAX_TENSORS; i++)
		assert_int_equal(buf_adds(&b, "{},"), 0);
	assert_int_equal(buf_adds(&b, "{}]"), 0);
	assert_int_equal(parse_text(b.data, b.len, &t, &error), -EFBIG);
	assert_string_equal(error.text, "there are more than 1000000 tensors");
	assert_int_equal(error.line, 1);
	b.data[b.len - 4] = ' '; /* the last comma and table */
	b.data[b.len - 3] = ' ';
	b.data[b.len - 2] = ' ';
	assert_int_equal(parse_text(b.data, b.len, &t, NULL), 0);
	assert_int_equal(t->n, MAX_TENSORS);
	index_toml_free(t);
	b.len = 0;
	assert_int_equal(buf_adds(&b, "[[tensor]]\nname='n'\ndtype='nested'\ninner=["), 0);
	for (size_t i = 0; i <= MAX_TENSOR_INNER; i++)
		assert_int_equal(buf_adds(&b, "'',"), 0);
	assert_int_equal(buf_adds(&b, "]"), 0);
	assert_int_equal(parse_text(b.data, b.len, &t, &error), -EFBIG);
	assert_string_equal(error.text, "there are more than 1000000 names in inner");
	assert_int_equal(error.line, 4);
	buf_finish(&b);
}

static void test_not_toml(void **state)
{
	struct index_toml *t = (struct index_toml *)&t;
	struct reason error;

	(void)state;
	assert_int_equal(parse_text("[[tensor]]\nname=", 16, &t, &error), -EBADMSG);
	assert_int_equal(error.line, 2);
	assert_ptr_equal(t, &t);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_dtype_names), cmocka_unit_test(test_dtype_bytes),
		cmocka_unit_test(test_good),	    cmocka_unit_test(test_bad),
		cmocka_unit_test(test_several),	    cmocka_unit_test(test_no_array),
		cmocka_unit_test(test_limits),	    cmocka_unit_test(test_limits_whole),
		cmocka_unit_test(test_not_toml),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
