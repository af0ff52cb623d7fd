/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any text as tensor_data/index.toml, and as the file of a string tensor. A tensor without a
 * problem must be usable: named once, with a size, a file inside tensor_data or inner tensors
 * that are as good.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tensor/filename.h"
#include "tensor/npy.h"
#include "tensor/strings.h"
#include "tensor/index_toml.h"
#include "base/util.h"

#include "fuzz.h"

/* Sizes that are right, wrong, unknown or missing, by the file's name. */
static int size_of(void *ctx, const char *path, uint64_t *ret)
{
	size_t n = strlen(path);

	(void)ctx;
	CHECK(n <= MAX_PATH_LEN && !path_fault(path, n) && !strncmp(path, "tensor_data/", 12));
	*ret = n;
	return n % 8 == 1 ? -ENOENT : n % 8 == 2 ? -EISDIR : n % 8 < 5 ? -EAGAIN : 0;
}

static void check_good(const struct index_toml *t, const struct tensor *good)
{
	const struct tensor_info *i = &good->info;
	char name[TENSOR_FILENAME_SIZE];
	struct buf b = buf_init(NPY_HEADER_MAX);
	uint64_t bytes;

	CHECK(i->name && i->dtype && index_toml_find(t, i->name, i->name_len) == good);
	CHECK(!tensor_filename(i->name, i->name_len, i->dtype == dtype_nested, name));
	/* a name for a file of ours: a backslash or what looks like a drive is fine in it */
	CHECK(*name && *name != '.' && !strchr(name, '/') && utf8_valid(name, strlen(name)));
	for (const char *c = name; *c; c++)
		CHECK((unsigned char)*c >= 0x20 && *c != 0x7f);
	if (i->dtype == dtype_nested) {
		for (size_t k = 0; k < good->n_inner; k++)
			CHECK(good->inner[k].tensor && !good->inner[k].tensor->problem);
		return;
	}
	CHECK(good->file && !good->n_inner);
	if (!i->dtype->bits)
		return;
	CHECK(!dtype_bytes(i->dtype, i->shape, i->rank, &bytes) && bytes == i->bytes);
	CHECK(!npy_header(i->dtype->npy, i->shape, i->rank, &b) && b.len % 64 == 0);
	buf_finish(&b);
}

static void as_index(const char *text, size_t n)
{
	struct mem_text reader = { text, n };
	struct index_toml *t = NULL;
	int r = index_toml_parse(mem_text_read, &reader, NULL, &t, NULL);

	CHECK(r == 0 || r == -EBADMSG || r == -EFBIG);
	if (r)
		return;
	CHECK(!index_toml_check_files(t, size_of, NULL));
	for (size_t i = 0; i < t->n; i++) {
		if (!t->list[i].problem)
			check_good(t, &t->list[i]);
	}
	index_toml_free(t);
}

/* ---- strings ---- */

static int count(void *ctx, const void *data, size_t n)
{
	CHECK(data && n);
	*(uint64_t *)ctx += n;
	return 0;
}

static void as_strings(const char *text, size_t n)
{
	struct reason error = { 0 };
	struct strings_size size;
	struct mem_text t = { text, n };
	uint64_t bytes = 0, ucs4 = 0;
	struct strings_output out = { .write = count, .ctx = &bytes };

	if (strings_measure(mem_text_read, &t, &size, &error)) {
		CHECK(*error.text);
		return;
	}
	t = (struct mem_text){ text, n };
	out.count = size.count;
	CHECK(!strings_emit(mem_text_read, &t, &out, NULL));
	CHECK(bytes == size.bytes);
	t = (struct mem_text){ text, n };
	out.count++;
	CHECK(strings_emit(mem_text_read, &t, &out, &error));
	out = (struct strings_output){ size.count, MAX(size.width, (uint64_t)1), count, &ucs4 };
	if (out.count * out.width > 4 * MIB)
		return;
	t = (struct mem_text){ text, n };
	CHECK(!strings_emit(mem_text_read, &t, &out, NULL));
	CHECK(ucs4 == 4 * out.count * out.width);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	as_index((const char *)data, n);
	as_strings((const char *)data, n);
	return 0;
}
