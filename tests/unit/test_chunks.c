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

/* Adds a file of `size` bytes, each `value`; it is named by `value`, too. */
static void add(struct chunks_writer *w, uint8_t value, size_t size, uint64_t chunk_size)
{
	uint8_t name[SHA256_SIZE], *data = must(malloc(size + 1));
	struct chunks_made made;

	memset(data, value, size);
	name_of(name, value);
	made = chunks_of(data, size, chunk_size, name);
	assert_int_equal(chunks_writer_add(w, &made), 0);
	assert_null(made.slots);
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

/* Slot `i` of that file is the state after its first `len` bytes; or the name, if that is all. */
static void assert_slot(const uint8_t *data, const struct chunks *c, uint8_t value, uint64_t i,
			size_t len)
{
	uint8_t name[SHA256_SIZE], want[SHA256_SIZE], *content = must(malloc(len));
	const struct chunks_file *f;
	struct sha256 *s;

	name_of(name, value);
	f = chunks_find(c, name);
	assert_non_null(f);
	memset(content, value, len);
	assert_int_equal(sha256_new(&s), 0);
	assert_int_equal(sha256_update(s, content, len), 0);
	if (len == f->size)
		memcpy(want, name, sizeof(want));
	else
		sha256_state(s, want);
	assert_memory_equal(data + chunks_slot_at(c, f, i), want, SHA256_SIZE);
	sha256_free(s);
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
	assert_slot(data, c, 1, 0, MIN_CHUNK);
	assert_slot(data, c, 1, 1, 2 * MIN_CHUNK);
	assert_slot(data, c, 1, 2, 2 * MIN_CHUNK + 1);
	assert_slot(data, c, 5, 0, 1);
	assert_slot(data, c, 9, 0, 256 * KIB);
	assert_slot(data, c, 9, 1, 512 * KIB);
	name_of(name, 7);
	assert_null(chunks_find(c, name));
	chunks_free(c);
	chunks_free(NULL);
	free(data);
}

/* 300,000 zeros: the state is what a plain SHA-256 has after 262,144 of them. */
static void test_golden(void **state)
{
	static const char golden[] =
		"636172746f6e66732d6368756e6b730a"
		"020000000000000001000000000000000200000000000000"
		"886715e4051e827f4fe215df3053af3f85ad0d352db2c829c7487af6d78efe30"
		"e09304000000000000000400000000000000000000000000"
		"496a28094ff4ea7f401b040689805ccc6a0a99810e253974395bf885bb37e1e6"
		"886715e4051e827f4fe215df3053af3f85ad0d352db2c829c7487af6d78efe30";
	char *zeros = must(calloc(1, 300000)), *hex;
	struct chunks_made made = chunks_of(zeros, 300000, 256 * KIB, NULL);
	struct chunks_writer w = { 0 };
	uint8_t *data;
	size_t n;

	(void)state;
	assert_int_equal(chunks_writer_add(&w, &made), 0);
	assert_int_equal(chunks_writer_end(&w, &data, &n), 0);
	chunks_writer_finish(&w);
	hex = must(malloc(2 * n + 1));
	hex_encode(data, n, hex);
	assert_string_equal(hex, golden);
	free(hex);
	free(data);
	free(zeros);
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
		{ 16, 0, "byte 16: version is 0; only 2" },
		{ 16, 3, "byte 16: version is 3" },
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
		{ 208 + 2 * 32, 0, "byte 272: the last slot of a file is not its sha256" },
		{ 208 + 3 * 32, 0, "byte 304: the last slot of a file is not its sha256" },
		{ 208 + 5 * 32 + 24, 0, "byte 368: the last slot of a file is not its sha256" },
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

/* The state between two chunks is not looked at here: it is compared with the chunk before it. */
static void test_states_are_not_checked(void **state)
{
	size_t n;
	uint8_t *data = sample(&n);
	struct chunks *c;

	(void)state;
	data[208 + 32] ^= 1;
	assert_int_equal(parse(data, n, &c), 0);
	chunks_free(c);
	free(data);
}

/* Of files enough for several reads of their last slots, near each other and far apart. */
static void test_last_slots(void **state)
{
	struct chunks_writer w = { 0 };
	struct chunks *c;
	uint8_t *data;
	size_t n;

	(void)state;
	for (int i = 0; i < 200; i++)
		add(&w, (uint8_t)i, i % 50 ? 1 : 150 * MIN_CHUNK, MIN_CHUNK);
	assert_int_equal(chunks_writer_end(&w, &data, &n), 0);
	chunks_writer_finish(&w);
	assert_int_equal(parse(data, n, &c), 0);
	log_watch();
	for (size_t i = 0; i < c->n; i++) {
		const struct chunks_file *f = &c->files[i];
		uint8_t *last = data + chunks_slot_at(c, f, chunks_count(f) - 1);
		struct chunks *none;

		last[i % SHA256_SIZE] ^= 1;
		assert_int_equal(parse(data, n, &none), -EBADMSG);
		last[i % SHA256_SIZE] ^= 1;
	}
	chunks_free(c);
	free(data);
	carton_log_set(NULL, NULL);
}

/* Version 1, of cartonfs 0.2.0, is as no index, which is said, whatever follows. */
static void test_first_version(void **state)
{
	size_t n;
	uint8_t *data = sample(&n);
	struct log_seen *seen = log_watch();
	struct chunks *c;

	(void)state;
	put_le64(data + 16, 1);
	for (int i = 0; i < 2; i++) {
		c = (struct chunks *)1;
		assert_int_equal(parse(data, i ? HEADER : n, &c), 0);
		assert_null(c);
	}
	assert_int_equal(seen->n, 2);
	assert_says(seen, "`cartonctl repack --chunk-index` writes it anew");
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
		cmocka_unit_test(test_written_and_read),
		cmocka_unit_test(test_golden),
		cmocka_unit_test(test_empty),
		cmocka_unit_test(test_size_for),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_states_are_not_checked),
		cmocka_unit_test(test_last_slots),
		cmocka_unit_test(test_first_version),
		cmocka_unit_test(test_length),
		cmocka_unit_test(test_budget),
		cmocka_unit_test(test_read_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
