/* SPDX-License-Identifier: Apache-2.0 */
/* What all containers share: the order of names, finding, whole entries. */
#include "archive/container.h"
#include "zip_help.h"

/* ---- a container by hand ---- */

struct fake {
	struct container container;
	struct mem_source *source;
	int fail;
};

static int fake_locate(struct container *c, const struct entry *e, struct source **ret_source,
		       uint64_t *ret_off)
{
	struct fake *f = container_of(c, struct fake, container);

	if (f->fail)
		return f->fail;
	*ret_source = source_ref(&f->source->source);
	*ret_off = e->header;
	return 0;
}

static const struct container_ops fake_ops = { .locate = fake_locate };

static void fill(struct container *c, struct entry *entries, size_t n, char *const names[])
{
	memset(entries, 0, n * sizeof(*entries));
	for (size_t i = 0; i < n; i++) {
		size_t len = strlen(names[i]);

		entries[i].kind = names[i][len - 1] == '/' ? ENTRY_DIR : ENTRY_FILE;
		len -= entries[i].kind == ENTRY_DIR;
		entries[i].name = strndup(names[i], len);
		entries[i].name_len = len & 0xfff;
	}
	c->entries = entries;
	c->n_entries = n;
}

static void empty(struct container *c)
{
	for (size_t i = 0; i < c->n_entries; i++)
		free((char *)c->entries[i].name);
}

/* ---- names ---- */

static void test_path_compare(void **state)
{
	static const char *const sorted[] = {
		"",	 "a",	"a/",  "a//", "a/b", "a/b/c", "a/b c", "a/c",
		"a\x01", "a b", "a-b", "a.b", "a0",  "aa",    "b",     "\xc3\xa9",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(sorted); i++)
		for (size_t j = 0; j < ARRAY_SIZE(sorted); j++) {
			int order = path_compare(sorted[i], sorted[j]);

			assert_int_equal((order > 0) - (order < 0), (i > j) - (i < j));
		}
}

static void test_index(void **state)
{
	static char *const names[] = { "b", "a b", "a/x", "a/", "a/y/z", "a.b", "a/y/" };
	static const char *const sorted[] = { "a", "a/x", "a/y", "a/y/z", "a b", "a.b", "b" };
	struct container c = { 0 };
	struct entry entries[7];

	(void)state;
	assert_int_equal(container_index(&c), 0);
	assert_null(container_find(&c, "a"));
	fill(&c, entries, 7, names);
	assert_int_equal(container_index(&c), 0);
	for (size_t i = 0; i < 7; i++) {
		assert_string_equal(entries[i].name, sorted[i]);
		assert_ptr_equal(container_find(&c, sorted[i]), &entries[i]);
	}
	assert_null(container_find(&c, "a/"));
	assert_null(container_find(&c, "A"));
	assert_null(container_find(&c, ""));
	empty(&c);
}

/* Few entries at the end are out of order, or many. */
static void test_index_tail(void **state)
{
	enum { N = 40 };
	static char *const tails[] = { "00", "zz" };
	char *names[N], text[N][8];
	struct container c = { 0 };
	struct entry entries[N];

	(void)state;
	for (size_t tail = 0; tail < 20; tail++) {
		for (size_t i = 0; i < N; i++) {
			snprintf(text[i], sizeof(text[i]), "%02zu", i + 1);
			names[i] = text[i];
			if (i >= N - tail)
				snprintf(text[i], sizeof(text[i]), "%02zu.%zu", N - i, i);
		}
		for (size_t i = 0; i < tail && i < 2; i++)
			names[N - 1 - i] = tails[i];
		fill(&c, entries, N, names);
		assert_int_equal(container_index(&c), 0);
		for (size_t i = 1; i < N; i++)
			assert_true(path_compare(entries[i - 1].name, entries[i].name) < 0);
		for (size_t i = 0; i < N; i++)
			assert_non_null(container_find(&c, names[i]));
		empty(&c);
	}
}

static void test_index_refuses(void **state)
{
	static char *const lists[][3] = {
		{ "a", "b", "a" },   { "a/", "b", "a" },      { "a", "b", "a/" },
		{ "a", "a/b", "c" }, { "a", "a b", "a/b/c" }, { "x/a", "x/a.b", "x/a/b" },
	};
	struct container c = { 0 };
	struct entry entries[3];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
		struct log_seen *seen = log_watch();

		fill(&c, entries, 3, lists[i]);
		assert_int_equal(container_index(&c), -EBADMSG);
		assert_int_equal(seen->n, 1);
		assert_non_null(strstr(seen->message, i < 3 ? "duplicate" : "is below"));
		empty(&c);
	}
	carton_log_set(NULL, NULL);
}

/* A directory that is there again has nothing more to say. */
static void test_index_drops(void **state)
{
	struct entry entries[] = {
		{ .name = "a", .name_len = 1, .kind = ENTRY_DIR },
		{ .name = "b", .name_len = 1 },
		{ .name = "a", .name_len = 1, .kind = ENTRY_DIR },
		{ .name = "", .kind = ENTRY_DIR },
		{ .name = "a/c", .name_len = 3 },
		{ .name = "a", .name_len = 1, .kind = ENTRY_DIR },
	};
	struct container c = { .entries = entries, .n_entries = ARRAY_SIZE(entries) };

	(void)state;
	assert_int_equal(container_index(&c), 0);
	assert_int_equal(c.n_entries, 3);
	assert_string_equal(entries[0].name, "a");
	assert_string_equal(entries[1].name, "a/c");
	assert_string_equal(entries[2].name, "b");
}

/* ---- whole entries ---- */

static void test_read(void **state)
{
	static const char data[] = "xxhello worldyy";
	struct fake f = { .container.ops = &fake_ops, .source = mem_source(data, 15) };
	struct entry e = { .name = "e", .header = 2, .size = 11, .stored = 11 };
	struct log_seen *seen = log_watch();
	struct buf got = { 0 };

	(void)state;
	assert_int_equal(container_read(&f.container, &e, 11, &got), 0);
	assert_string_equal(got.data, "hello world");
	buf_finish(&got);
	assert_int_equal(seen->n, 0);
	assert_int_equal(container_read(&f.container, &e, 10, &got), -EFBIG);
	assert_null(got.data);
	assert_says(seen, "has 11 bytes; the limit is 10");

	e.has_crc = true;
	e.crc = crc32_update(0, "hello world", 11);
	assert_int_equal(container_read(&f.container, &e, 11, &got), 0);
	buf_finish(&got);
	e.crc++;
	assert_int_equal(container_read(&f.container, &e, 11, &got), -EBADMSG);
	assert_says(seen, "crc mismatch");
	buf_finish(&got);

	e.crc--;
	e.method = METHOD_ZSTD;
	assert_int_equal(container_read(&f.container, &e, 11, &got), -EBADMSG);
	buf_finish(&got);
	e.method = 77;
	assert_int_equal(container_read(&f.container, &e, 11, &got), -EOPNOTSUPP);
	buf_finish(&got);
	e.method = METHOD_STORED;
	f.fail = -EHOSTUNREACH;
	assert_int_equal(container_read(&f.container, &e, 11, &got), -EHOSTUNREACH);
	buf_finish(&got);
	f.fail = 0;
	e.header = 10;
	assert_int_equal(container_read(&f.container, &e, 11, &got), -EIO);
	buf_finish(&got);

	/* empty, with the crc of nothing */
	e = (struct entry){ .name = "e", .has_crc = true };
	assert_int_equal(container_read(&f.container, &e, 0, &got), 0);
	assert_string_equal(got.data, "");
	buf_finish(&got);
	carton_log_set(NULL, NULL);
	source_unref(&f.source->source);
}

static void test_stream(void **state)
{
	char *data = make_bytes(500000, 1), *out = must(malloc(500001));
	struct buf packed = buf_init(SIZE_MAX / 2);
	struct fake f = { .container.ops = &fake_ops };
	struct entry e = { .name = "e", .size = 500000, .method = METHOD_ZSTD };
	struct stream *s;

	(void)state;
	pack(&packed, METHOD_ZSTD, data, 500000);
	e.stored = packed.len;
	f.source = mem_source(packed.data, packed.len);
	assert_int_equal(container_stream(&f.container, &e, &s), 0);
	source_unref(&f.source->source); /* the stream has its own */
	assert_int_equal(stream_read_full(s, out, 500001), 500000);
	assert_memory_equal(out, data, 500000);
	stream_close(s);
	buf_finish(&packed);
	free(data);
	free(out);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_path_compare), cmocka_unit_test(test_index),
		cmocka_unit_test(test_index_tail),   cmocka_unit_test(test_index_refuses),
		cmocka_unit_test(test_index_drops),  cmocka_unit_test(test_read),
		cmocka_unit_test(test_stream),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
