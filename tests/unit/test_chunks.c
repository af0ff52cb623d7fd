/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The chunk index: what the writer writes and the parser finds again, and what is refused and
 * where.
 */
#include "format/chunks.h"
#include "zip_help.h"

#define HEADER 40
#define RECORD 56

struct bytes_in {
	const uint8_t *data;
	size_t n;
};

static int read_bytes(void *ctx, void *ret_buf, size_t n, uint64_t off)
{
	const struct bytes_in *in = ctx;

	assert_true(off <= in->n && n <= in->n - off);
	memcpy(ret_buf, in->data + off, n);
	return 0;
}

static int parse(const uint8_t *data, size_t n, struct chunks **ret)
{
	struct bytes_in in = { data, n };

	return chunks_parse(n, read_bytes, &in, NULL, ret);
}

static void name_of(uint8_t ret[SHA256_SIZE], uint8_t first)
{
	memset(ret, 0x11, SHA256_SIZE);
	ret[0] = first;
}

/*
 * Adds a file of `size` bytes, each `value`, that are fed in odd steps; it is named by `value`,
 * too.
 */
static void add(struct chunks_writer *w, uint8_t value, size_t size, uint64_t chunk_size)
{
	struct chunks_hasher h = { .chunk_size = chunk_size };
	uint8_t name[SHA256_SIZE], *data = must(malloc(size + 1));

	memset(data, value, size);
	name_of(name, value);
	for (size_t at = 0; at < size; at += 100001)
		assert_int_equal(chunks_hasher_feed(&h, data + at, MIN(size - at, 100001)), 0);
	assert_int_equal(chunks_hasher_end(&h), 0);
	assert_int_equal(h.size, size);
	assert_int_equal(chunks_writer_add(w, name, &h), 0);
	chunks_hasher_finish(&h);
	free(data);
}

/* Files 1 (three chunks), 5 (one) and 9 (two whole ones): 6 chunks. */
static uint8_t *sample(size_t *ret_n)
{
	struct chunks_writer w = { 0 };
	uint8_t *data;

	add(&w, 9, 512 * KIB, 256 * KIB);
	add(&w, 1, 256 * KIB + 1, MIN_CHUNK);
	add(&w, 5, 1, MAX_CHUNK);
	add(&w, 9, 512 * KIB, 256 * KIB); /* again */
	add(&w, 7, 0, MIN_CHUNK);
	assert_int_equal(chunks_writer_end(&w, &data, ret_n), 0);
	chunks_writer_finish(&w);
	return data;
}

static void assert_chunk(const uint8_t *data, const struct chunks *c, uint8_t value, uint64_t i,
			 size_t len)
{
	uint8_t name[SHA256_SIZE], hash[SHA256_SIZE], *content = must(malloc(len));
	const struct chunks_file *f;

	name_of(name, value);
	f = chunks_find(c, name);
	assert_non_null(f);
	memset(content, value, len);
	sha256_of((const char *)content, len, hash);
	assert_memory_equal(data + chunks_hash_at(c, f, i), hash, SHA256_SIZE);
	free(content);
}

static void test_written_and_read(void **state)
{
	uint8_t name[SHA256_SIZE], *data;
	struct chunks *c;
	size_t n;

	(void)state;
	data = sample(&n);
	assert_int_equal(n, HEADER + 3 * RECORD + 6 * SHA256_SIZE);
	assert_int_equal(parse(data, n, &c), 0);
	assert_int_equal(c->n, 3);
	assert_int_equal(c->n_chunks, 6);
	assert_int_equal(c->files[0].size, 256 * KIB + 1);
	assert_int_equal(chunks_count(&c->files[0]), 3);
	assert_int_equal(chunks_count(&c->files[2]), 2);
	assert_chunk(data, c, 1, 0, MIN_CHUNK);
	assert_chunk(data, c, 1, 1, MIN_CHUNK);
	assert_chunk(data, c, 1, 2, 1);
	assert_chunk(data, c, 5, 0, 1);
	assert_chunk(data, c, 9, 1, 256 * KIB);
	name_of(name, 7);
	assert_null(chunks_find(c, name));
	chunks_free(c);
	chunks_free(NULL);
	free(data);
}

static void test_empty(void **state)
{
	uint8_t name[SHA256_SIZE] = { 0 }, *data;
	struct chunks_writer w = { 0 };
	struct chunks *c;
	size_t n;

	(void)state;
	assert_int_equal(chunks_writer_end(&w, &data, &n), 0);
	chunks_writer_finish(&w);
	assert_int_equal(n, HEADER);
	assert_int_equal(parse(data, n, &c), 0);
	assert_null(chunks_find(c, name));
	chunks_free(c);
	free(data);
}

static void test_size_for(void **state)
{
	(void)state;
	assert_int_equal(chunks_size_for(0), 256 * KIB);
	assert_int_equal(chunks_size_for(4 * GIB), 256 * KIB);
	assert_int_equal(chunks_size_for(4 * GIB + 1), 512 * KIB);
	assert_int_equal(chunks_size_for(64 * GIB), MIB);
	assert_int_equal(chunks_size_for(MAX_FILE_SIZE), MAX_CHUNK);
}

/* Each field with a wrong value, and the byte that the message names. */
static void test_refused(void **state)
{
	static const struct {
		size_t at;
		uint64_t value;
		const char *says;
	} list[] = {
		{ 8, 0, "byte 0: does not begin" },
		{ 16, 0, "byte 16: version is 0; only 1" },
		{ 16, 2, "byte 16: version is 2" },
		{ 24, 2, "byte 24: 2 files and 6 chunks do not make" },
		{ 24, MAX_ENTRIES + 1, "byte 24: lists 2000001 files" },
		{ 24, UINT64_MAX, "byte 24: lists" },
		{ 32, 7, "byte 24: 3 files and 7 chunks" },
		{ 32, 1ULL << 59, "byte 24: 3 files" }, /* times 32 is 0 */
		{ 40, 0xff, "byte 96: the files are not sorted" },
		{ 40 + 32, 0, "byte 72: a file of 0 bytes" },
		{ 40 + 32, MAX_FILE_SIZE + 1, "byte 72: a file of" },
		{ 40 + 32, MAX_FILE_SIZE, "byte 72: the file has 8589934592 chunks; only 6" },
		{ 40 + 32, MIN_CHUNK, "byte 144: the first chunk is 3; the files before end at 1" },
		{ 40 + 40, 0, "byte 80: chunks of 0 bytes" },
		{ 40 + 40, 1ULL << 63, "byte 80: chunks of 9223372036854775808 bytes" },
		{ 40 + 40, MIN_CHUNK / 2, "byte 80: chunks of" },
		{ 40 + 40, MAX_CHUNK * 2, "byte 80: chunks of" },
		{ 40 + 40, MIN_CHUNK + 1, "byte 80: chunks of" },
		{ 40 + 48, 1, "byte 88: the first chunk is 1" },
		{ 96 + 48, 2, "byte 144: the first chunk is 2; the files before end at 3" },
		{ 152 + 32, 1, "byte 32: 6 chunks; the files have 5" },
		{ 152 + 32, 513 * KIB, "byte 184: the file has 3 chunks; only 2" },
	};
	size_t n;
	uint8_t *data = sample(&n);
	struct log_seen *seen;
	struct chunks *c;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(list); i++) {
		uint8_t *copy = must(malloc(n));
		int r;

		memcpy(copy, data, n);
		put_le64(copy + list[i].at, list[i].value);
		seen = log_watch();
		r = parse(copy, n, &c);
		assert_int_equal(r, list[i].at == 16		  ? -EOPNOTSUPP :
				    strstr(list[i].says, "lists") ? -EFBIG :
								    -EBADMSG);
		assert_int_equal(seen->n, 1);
		assert_says(seen, list[i].says);
		free(copy);
	}
	/* the same file twice */
	memcpy(data + 96, data + 40, SHA256_SIZE);
	seen = log_watch();
	assert_int_equal(parse(data, n, &c), -EBADMSG);
	assert_says(seen, "byte 96: the same file for the second time");
	free(data);
	carton_log_set(NULL, NULL);
}

/* Cut off at, and longer by, any number of bytes. */
static void test_length(void **state)
{
	size_t n;
	uint8_t *data = sample(&n), *longer;
	struct chunks *c;

	(void)state;
	longer = must(calloc(1, n + 64));
	memcpy(longer, data, n);
	log_watch();
	for (size_t len = 0; len < n; len++)
		assert_int_equal(parse(data, len, &c), -EBADMSG);
	for (size_t more = 1; more <= 64; more++)
		assert_int_equal(parse(longer, n + more, &c), -EBADMSG);
	free(longer);
	free(data);
	carton_log_set(NULL, NULL);
}

/* Its table has to fit the budget, before it is allocated; what failed is given back. */
static void test_budget(void **state)
{
	struct budget b;
	struct bytes_in in;
	struct chunks *c;
	uint8_t *data;

	(void)state;
	in.data = data = sample(&in.n);
	budget_init(&b, MIN_MEMORY);
	b.limit = 100;
	log_watch();
	assert_int_equal(chunks_parse(in.n, read_bytes, &in, &b, &c), -EFBIG);
	b.limit = MIN_MEMORY;
	data[HEADER + 40] = 1;
	assert_int_equal(chunks_parse(in.n, read_bytes, &in, &b, &c), -EBADMSG);
	assert_int_equal(b.tables, 0);
	free(data);
	carton_log_set(NULL, NULL);
}

static int read_fails(void *ctx, void *ret_buf, size_t n, uint64_t off)
{
	(void)ret_buf;
	(void)n;
	return off >= *(uint64_t *)ctx ? -EIO : 0;
}

static void test_read_error(void **state)
{
	uint64_t from = 0;
	struct chunks *c;

	(void)state;
	assert_int_equal(chunks_parse(1000, read_fails, &from, NULL, &c), -EIO);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_written_and_read), cmocka_unit_test(test_empty),
		cmocka_unit_test(test_size_for),	 cmocka_unit_test(test_refused),
		cmocka_unit_test(test_length),		 cmocka_unit_test(test_budget),
		cmocka_unit_test(test_read_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
