/* SPDX-License-Identifier: Apache-2.0 */
#include "tensor/dtype.h"

#include "base/util.h"

/*
 * First the dtypes of carton, then those that only safetensors has, then those without a fixed
 * size. `order` is the position in the reference serializer's enumeration, which is sorted by
 * alignment.
 */
static const struct dtype table[] = {
	{ "float32", "F32", "<f4", "FP32", 32, 19, NULL },
	{ "float64", "F64", "<f8", "FP64", 64, 21, NULL },
	{ "int8", "I8", "|i1", "INT8", 8, 6, NULL },
	{ "int16", "I16", "<i2", "INT16", 16, 13, NULL },
	{ "int32", "I32", "<i4", "INT32", 32, 17, NULL },
	{ "int64", "I64", "<i8", "INT64", 64, 22, NULL },
	{ "uint8", "U8", "|u1", "UINT8", 8, 5, NULL },
	{ "uint16", "U16", "<u2", "UINT16", 16, 14, NULL },
	{ "uint32", "U32", "<u4", "UINT32", 32, 18, NULL },
	{ "uint64", "U64", "<u8", "UINT64", 64, 23, NULL },
	{ NULL, "BOOL", "|b1", "BOOL", 8, 1, "bool" },
	{ NULL, "F4", NULL, NULL, 4, 2, "float4" },
	{ NULL, "F6_E2M3", NULL, NULL, 6, 3, "float6_e2m3" },
	{ NULL, "F6_E3M2", NULL, NULL, 6, 4, "float6_e3m2" },
	{ NULL, "F8_E5M2", NULL, NULL, 8, 7, "float8_e5m2" },
	{ NULL, "F8_E4M3", NULL, NULL, 8, 8, "float8_e4m3" },
	{ NULL, "F8_E8M0", NULL, NULL, 8, 9, "float8_e8m0" },
	{ NULL, "F8_E4M3FNUZ", NULL, NULL, 8, 10, "float8_e4m3fnuz" },
	{ NULL, "F8_E5M2FNUZ", NULL, NULL, 8, 11, "float8_e5m2fnuz" },
	{ NULL, "F16", "<f2", "FP16", 16, 15, "float16" },
	{ NULL, "BF16", NULL, "BF16", 16, 16, "bfloat16" },
	{ NULL, "C64", "<c8", NULL, 64, 20, "complex64" },
	{ "string", NULL, NULL, "BYTES", 0, 0, NULL },
	{ "nested", NULL, NULL, NULL, 0, 0, NULL },
};

const struct dtype *const dtype_string = &table[ARRAY_SIZE(table) - 2];
const struct dtype *const dtype_nested = &table[ARRAY_SIZE(table) - 1];

const struct dtype *dtype_at(size_t i)
{
	return i < ARRAY_SIZE(table) ? &table[i] : NULL;
}

static bool same(const char *a, const char *b, size_t n)
{
	return a && strlen(a) == n && !memcmp(a, b, n);
}

const struct dtype *dtype_by_name(const char *name, size_t n)
{
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		if (same(table[i].name, name, n))
			return &table[i];
	}
	return NULL;
}

const struct dtype *dtype_by_safetensors(const char *name, size_t n)
{
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		if (same(table[i].safetensors, name, n))
			return &table[i];
	}
	return NULL;
}

const char *dtype_label(const struct dtype *dtype)
{
	return dtype->name ? dtype->name : dtype->label;
}

int shape_count(const uint64_t *shape, unsigned rank, uint64_t *ret_count)
{
	uint64_t n = 1;
	bool empty = false;

	for (unsigned i = 0; i < rank; i++) {
		if (!shape[i])
			empty = true;
		else if (__builtin_mul_overflow(n, shape[i], &n))
			return -EOVERFLOW;
	}
	*ret_count = empty ? 0 : n;
	return 0;
}

int dtype_bytes(const struct dtype *dtype, const uint64_t *shape, unsigned rank,
		uint64_t *ret_bytes)
{
	unsigned unit = dtype->bits % 8 ? 1 : 8; /* bits to count in */
	uint64_t n;
	int r;

	if (!dtype->bits)
		return -EINVAL;
	r = shape_count(shape, rank, &n);
	if (r < 0)
		return r;
	if (__builtin_mul_overflow(n, dtype->bits / unit, &n))
		return -EOVERFLOW;
	if (unit == 1 && n % 8)
		return -EBADMSG;
	*ret_bytes = unit == 1 ? n / 8 : n;
	return 0;
}
