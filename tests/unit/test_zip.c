/* SPDX-License-Identifier: Apache-2.0 */
/* Zips that must be read: every method and form that is accepted, and its limits. */
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#include "archive/internal.h"
#include "archive/zip.h"
#include "zip_help.h"

static struct container *open_zip(const struct buf *out)
{
	struct mem_source *m = mem_source(out->data, out->len);
	struct container *c = NULL;
	int r = zip_open(&m->source, NULL, &c);

	source_unref(&m->source);
	assert_int_equal(r, 0);
	assert_false(c->dated);
	return c;
}

static void expect_content(struct container *c, const struct zip_file *f)
{
	const struct entry *e = container_find(c, f->name);
	struct buf got = { 0 };

	assert_non_null(e);
	assert_int_equal(e->size, f->n);
	assert_int_equal(e->method, f->method);
	assert_int_equal(container_read(c, e, f->n, &got), 0);
	assert_int_equal(got.len, f->n);
	assert_memory_equal(got.data, f->data ? f->data : "", f->n);
	assert_int_equal(got.data[got.len], 0);
	buf_finish(&got);
}

static void test_methods_and_forms(void **state)
{
	static const unsigned methods[] = { METHOD_STORED, METHOD_DEFLATE, METHOD_ZSTD },
			      descriptors[] = { 0, 12, 16, 20, 24 };
	struct zip_file files[32];
	char names[32][16], *data = make_bytes(70000, 1);
	size_t n = 0;

	(void)state;
	for (size_t m = 0; m < 3; m++)
		for (size_t d = 0; d < 5; d++)
			for (size_t wide = 0; wide < 2; wide++, n++) {
				snprintf(names[n], sizeof(names[n]), "d/%zu", n);
				files[n] = (struct zip_file){
					.name = names[n],
					.data = data,
					.n = n * 2000 + 1,
					.method = methods[m],
					.descriptor = descriptors[d],
					.zip64 = wide,
				};
			}
	for (size_t form = 0; form < 4; form++) {
		struct zip_made z = zip_make(
			files, n,
			(struct zip_end){ .zip64 = form & 1,
					  .comment = form & 2 ? "a comment, PK" : NULL });
		struct container *c = open_zip(&z.out);

		assert_int_equal(c->n_entries, n);
		for (size_t i = 0; i < n; i++)
			expect_content(c, &files[i]);
		assert_null(container_find(c, "d"));
		assert_null(container_find(c, "d/99"));
		container_close(c);
		buf_finish(&z.out);
	}
	free(data);
}

static void test_empty(void **state)
{
	struct zip_made z = zip_make(NULL, 0, (struct zip_end){ 0 });
	struct container *c = open_zip(&z.out);

	(void)state;
	assert_int_equal(c->n_entries, 0);
	assert_null(container_find(c, ""));
	container_close(c);
	container_close(NULL);
	buf_finish(&z.out);
}

static void test_kinds(void **state)
{
	static const struct zip_file files[] = {
		{ .name = "plain", .data = "x", .n = 1, .mode = S_IFREG | 0644 },
		{ .name = "run", .data = "x", .n = 1, .mode = S_IFREG | 06711 },
		{ .name = "link", .data = "plain", .n = 5, .mode = S_IFLNK | 0777 },
		{ .name = "packed-link",
		  .data = "../run",
		  .n = 6,
		  .mode = S_IFLNK | 0777,
		  .method = METHOD_ZSTD },
		{ .name = "dir/", .mode = S_IFDIR | 0755 },
		{ .name = "dos/" },
		{ .name = "packed-dir/", .method = METHOD_DEFLATE },
		{ .name = "no-mode", .mode = 0644 },
	};
	static const enum entry_kind kinds[] = {
		ENTRY_FILE, ENTRY_FILE, ENTRY_SYMLINK, ENTRY_SYMLINK,
		ENTRY_DIR,  ENTRY_DIR,	ENTRY_DIR,     ENTRY_FILE,
	};
	struct zip_made z = zip_make(files, ARRAY_SIZE(files), (struct zip_end){ 0 });
	struct container *c = open_zip(&z.out);
	struct buf target = { 0 };
	char name[32];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		const struct entry *e;

		snprintf(name, sizeof(name), "%.*s", (int)strcspn(files[i].name, "/"),
			 files[i].name);
		e = container_find(c, name);
		assert_non_null(e);
		assert_int_equal(e->kind, kinds[i]);
		assert_int_equal(e->name_len, strlen(name));
		if (e->kind == ENTRY_FILE)
			assert_int_equal(e->executable, strcmp(name, "run") == 0);
	}
	assert_int_equal(container_readlink(c, container_find(c, "packed-link"), &target), 0);
	assert_string_equal(target.data, "../run");
	buf_finish(&target);
	container_close(c);
	buf_finish(&z.out);
}

/* The order in the directory, and of the data, may be any. */
static void test_order(void **state)
{
	static const struct zip_file files[] = {
		{ .name = "b", .data = "bb", .n = 2 },
		{ .name = "a/c", .data = "c", .n = 1 },
		{ .name = "a b", .data = "space", .n = 5 },
		{ .name = "a/" },
		{ .name = "a=b" },
	};
	static const char *const sorted[] = { "a", "a/c", "a b", "a=b", "b" };
	struct zip_made z = zip_make(files, 5, (struct zip_end){ 0 });
	struct container *c;
	size_t first = z.central[1] - z.central[0], rest = z.eocd - z.central[1];
	char *copy = must(malloc(z.eocd - z.directory));

	(void)state;
	/* the first one of the directory becomes the last one */
	memcpy(copy, z.out.data + z.central[1], rest);
	memcpy(copy + rest, z.out.data + z.central[0], first);
	memcpy(z.out.data + z.directory, copy, rest + first);
	c = open_zip(&z.out);
	for (size_t i = 0; i < 5; i++) {
		assert_string_equal(c->entries[i].name, sorted[i]);
		assert_ptr_equal(container_find(c, sorted[i]), &c->entries[i]);
	}
	for (size_t i = 0; i < 3; i++)
		expect_content(c, &files[i]);
	container_close(c);
	free(copy);
	buf_finish(&z.out);
}

/* As other programs write them: each is read alike by other readers, see fuzz/differential.py. */
static void test_names(void **state)
{
	/* in code page 437, with its crc and name in UTF-8; and with those of another one */
	static const char field[] = "up\x0b\0\x01\x41\x42\x43\x44gr\xc3\xb6\xc3\x9f", root[] = "./",
			  dropbox[] = "/";
	const struct zip_file files[] = {
		{ .name = root },
		{ .name = "./a/" },
		{ .name = "./a/b", .data = "x", .n = 1 },
		{ .name = "./c", .data = "y", .n = 1, .descriptor = 16 },
		{ .name = "a/" },
		{ .name = dropbox },
		{ .name = "gr\x94\xe1", .data = "z", .n = 1, .extra = field, .extra_len = 15 },
	};
	static const char *const names[] = { "a", "a/b", "c", "gr\xc3\xb6\xc3\x9f" };
	char copy[sizeof(field)];
	struct zip_file all[ARRAY_SIZE(files)];
	struct zip_made z;
	struct container *c;

	(void)state;
	memcpy(all, files, sizeof(all));
	memcpy(copy, field, sizeof(copy));
	put_le32(copy + 5, crc32_update(0, "gr\x94\xe1", 4));
	all[ARRAY_SIZE(all) - 1].extra = copy;
	z = zip_make(all, ARRAY_SIZE(all), (struct zip_end){ 0 });
	c = open_zip(&z.out);
	assert_int_equal(c->n_entries, ARRAY_SIZE(names));
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		assert_string_equal(c->entries[i].name, names[i]);
		assert_int_equal(c->entries[i].name_len, strlen(names[i]));
		if (i) {
			all[0] = (struct zip_file){ .name = names[i],
						    .data = "xyz" + i - 1,
						    .n = 1 };
			expect_content(c, &all[0]);
		}
	}
	container_close(c);
	buf_finish(&z.out);
}

/* A mark of a writer that could have split the archive, and a locator that counts no disks. */
static void test_begins_and_ends(void **state)
{
	static const struct zip_file file = { .name = "a", .data = "x", .n = 1 };

	(void)state;
	for (size_t i = 0; i < 4; i++) {
		struct zip_made z = zip_make(&file, 1, (struct zip_end){ .zip64 = i == 3 });
		struct buf b = buf_init(SIZE_MAX / 2);
		struct container *c;
		struct mem_source *m;
		int r;

		if (i < 3) {
			assert_int_equal(buf_add(&b, i ? i > 1 ? "PK01" : "PK\7\10" : "PK00", 4),
					 0);
			put_le32(z.out.data + z.central[0] + 42, 4);
			put_le32(z.out.data + z.eocd + 16, (uint32_t)z.directory + 4);
		} else {
			put_le32(z.out.data + z.locator + 16, 0);
		}
		assert_int_equal(buf_add(&b, z.out.data, z.out.len), 0);
		m = mem_source(b.data, b.len);
		r = zip_open(&m->source, NULL, &c);
		source_unref(&m->source);
		assert_int_equal(r, i == 2 ? -EBADMSG : 0);
		if (r == 0) {
			expect_content(c, &file);
			container_close(c);
		}
		buf_finish(&b);
		buf_finish(&z.out);
	}
}

/* The bits that say how well Deflate has compressed, and UTF-8 where the name is ASCII. */
static void test_flags_differ(void **state)
{
	static const struct zip_file file = {
		.name = "a", .data = "xxxxxxxxxxxxxxxx", .n = 16, .method = METHOD_DEFLATE
	};
	static const unsigned bits[] = { 1 << 1, 1 << 2, 1 << 1 | 1 << 2 | 1 << 11 };

	(void)state;
	for (size_t i = 0; i < 2 * ARRAY_SIZE(bits); i++) {
		struct zip_made z = zip_make(&file, 1, (struct zip_end){ 0 });
		struct container *c;

		put_le16(z.out.data + (i & 1 ? z.local[0] + 6 : z.central[0] + 8),
			 (uint16_t)bits[i / 2]);
		c = open_zip(&z.out);
		expect_content(c, &file);
		container_close(c);
		buf_finish(&z.out);
	}
}

/* All ones are the size itself where no zip64 field has another one. */
static void test_size_of_all_ones(void **state)
{
	static const struct zip_file file = {
		.name = "a", .data = "x", .n = 1, .method = METHOD_ZSTD
	};
	struct zip_made z = zip_make(&file, 1, (struct zip_end){ 0 });
	struct container *c;
	struct source *s;
	uint64_t off;

	(void)state;
	put_le32(z.out.data + z.central[0] + 24, UINT32_MAX);
	put_le32(z.out.data + z.local[0] + 22, UINT32_MAX);
	c = open_zip(&z.out);
	assert_true(c->entries[0].size == UINT32_MAX);
	assert_int_equal(container_locate(c, &c->entries[0], &s, &off), 0);
	assert_int_equal(off, z.data[0]);
	source_unref(s);
	container_close(c);
	buf_finish(&z.out);
}

/* An extra field that fills its 16 bits, in a header that no small read holds. */
static void test_long_header(void **state)
{
	char *extra = must(calloc(1, 65535));
	struct zip_file files[] = {
		{ .name = "a", .data = "x", .n = 1, .extra = extra, .extra_len = 65535 },
		{ .name = "b", .data = "y", .n = 1 },
	};
	struct zip_made z;
	struct container *c;

	(void)state;
	put_le16(extra, 0x9999);
	put_le16(extra + 2, 65531);
	z = zip_make(files, 2, (struct zip_end){ 0 });
	c = open_zip(&z.out);
	expect_content(c, &files[0]);
	expect_content(c, &files[1]);
	container_close(c);
	buf_finish(&z.out);
	free(extra);
}

/* A comment may be as long as its field can say; what it holds does not matter. */
static void test_long_comment(void **state)
{
	struct zip_file file = { .name = "a", .data = "x", .n = 1 };
	char *comment = must(malloc(65536));
	struct zip_made z;
	struct container *c;

	(void)state;
	memset(comment, 'P', 65535);
	comment[65535] = '\0';
	for (size_t wide = 0; wide < 2; wide++) {
		z = zip_make(&file, 1, (struct zip_end){ .comment = comment, .zip64 = wide });
		c = open_zip(&z.out);
		expect_content(c, &file);
		container_close(c);
		buf_finish(&z.out);
	}
	free(comment);
}

/* Only the end and the directory are read, and one entry's header when it is wanted. */
static void test_reads(void **state)
{
	struct zip_file files[ZIP_FILES];
	char names[ZIP_FILES][8];
	struct mem_source *m;
	struct container *c;
	struct zip_made z;

	(void)state;
	for (size_t i = 0; i < ZIP_FILES; i++) {
		snprintf(names[i], sizeof(names[i]), "%zu", i);
		files[i] = (struct zip_file){ .name = names[i], .data = "x", .n = 1 };
	}
	z = zip_make(files, ZIP_FILES, (struct zip_end){ 0 });
	m = mem_source(z.out.data, z.out.len);
	assert_int_equal(zip_open(&m->source, NULL, &c), 0);
	assert_int_equal(m->n_reads, 2);
	expect_content(c, &files[7]);
	assert_int_equal(m->n_reads, 4);
	container_close(c);
	source_unref(&m->source);
	buf_finish(&z.out);
}

/* An entry and an archive of more than 4 GiB, of which only the ends are there. */
static void test_large(void **state)
{
	const uint64_t hole = 5 * GIB;
	struct zip_file files[] = { { .name = "big", .zip64 = true },
				    { .name = "b", .zip64 = true } };
	int fd = memfd_create("test", MFD_CLOEXEC);
	struct zip_made z = zip_make(files, 2, (struct zip_end){ .zip64 = true });
	struct container *c;
	struct source *s;
	uint64_t off;

	(void)state;
	put_le64(z.out.data + z.data[0] - 16, hole);
	put_le64(z.out.data + z.data[0] - 8, hole);
	put_le64(z.out.data + z.central[0] + 46 + 3 + 4, hole);
	put_le64(z.out.data + z.central[0] + 46 + 3 + 12, hole);
	put_le64(z.out.data + z.central[1] + 46 + 1 + 20, z.local[1] + hole);
	put_le64(z.out.data + z.record + 48, z.directory + hole);
	put_le64(z.out.data + z.locator + 8, z.record + hole);
	assert_int_equal(pwrite_full(fd, z.out.data, z.data[0], 0), 0);
	assert_int_equal(
		pwrite_full(fd, z.out.data + z.data[0], z.out.len - z.data[0], z.data[0] + hole),
		0);
	assert_int_equal(source_from_fd(fd, &s), 0);
	assert_int_equal(zip_open(s, NULL, &c), 0);
	source_unref(s);
	assert_true(container_find(c, "big")->size == hole);
	assert_int_equal(container_locate(c, container_find(c, "b"), &s, &off), 0);
	assert_true(off == z.data[1] + hole);
	source_unref(s);
	container_close(c);
	buf_finish(&z.out);
}

/* What the source gives passes through. */
static void test_source_fails(void **state)
{
	struct zip_file file = { .name = "a", .data = "x", .n = 1 };
	struct zip_made z = zip_make(&file, 1, (struct zip_end){ 0 });
	struct mem_source *m = mem_source(z.out.data, z.out.len);
	struct container *c = NULL;
	struct buf got = { 0 };

	(void)state;
	m->fail = -ETIMEDOUT;
	assert_int_equal(zip_open(&m->source, NULL, &c), -ETIMEDOUT);
	assert_null(c);
	m->fail = 0;
	assert_int_equal(zip_open(&m->source, NULL, &c), 0);
	m->fail = -ECONNRESET;
	assert_int_equal(container_read(c, container_find(c, "a"), 1, &got), -ECONNRESET);
	m->fail = 0;
	buf_finish(&got);
	assert_int_equal(container_read(c, container_find(c, "a"), 1, &got), 0);
	buf_finish(&got);
	container_close(c);
	source_unref(&m->source);
	buf_finish(&z.out);
}

/* ---- limits ---- */

/* An archive that says it has so many entries, and a directory of so many bytes, all zero. */
static int open_huge(uint64_t entries, uint64_t size)
{
	struct zip_made z = zip_make(NULL, 0, (struct zip_end){ .zip64 = true });
	struct container *c;
	size_t n = z.out.len;
	int fd = memfd_create("test", MFD_CLOEXEC), r;
	struct source *s;

	put_le64(z.out.data + z.record + 24, entries);
	put_le64(z.out.data + z.record + 32, entries);
	put_le64(z.out.data + z.record + 40, size);
	put_le64(z.out.data + z.locator + 8, size);
	assert_int_equal(pwrite_full(fd, z.out.data, n, size), 0);
	assert_int_equal(source_from_fd(fd, &s), 0);
	r = zip_open(s, NULL, &c);
	source_unref(s);
	buf_finish(&z.out);
	return r;
}

static void test_limits(void **state)
{
	struct log_seen *seen = log_watch();

	(void)state;
	/* at the bound it fails for what it holds: nothing */
	assert_int_equal(open_huge(MAX_ENTRIES, MAX_ENTRIES * 46ULL), -EBADMSG);
	assert_says(seen, "has no central header");
	assert_int_equal(open_huge(MAX_ENTRIES + 1, (MAX_ENTRIES + 1) * 46ULL), -EFBIG);
	assert_says(seen, "over the limit");
	assert_int_equal(open_huge(1, MAX_CENTRAL_DIRECTORY + 1), -EFBIG);
	assert_int_equal(open_huge(UINT64_MAX, 1000), -EFBIG);
	/* a count that cannot be true costs nothing */
	assert_int_equal(open_huge(2, 91), -EBADMSG);
	assert_says(seen, "does not fit");
	carton_log_set(NULL, NULL);
}

static void test_file_size(void **state)
{
	struct zip_file file = { .name = "a", .zip64 = true, .method = METHOD_ZSTD };
	struct zip_made z = zip_make(&file, 1, (struct zip_end){ 0 });
	struct mem_source *m = mem_source(z.out.data, z.out.len);
	struct log_seen *seen = log_watch();
	struct container *c;

	(void)state;
	put_le64(z.out.data + z.central[0] + 46 + 1 + 4, MAX_FILE_SIZE);
	assert_int_equal(zip_open(&m->source, NULL, &c), 0);
	assert_true(c->entries[0].size == MAX_FILE_SIZE);
	container_close(c);
	put_le64(z.out.data + z.central[0] + 46 + 1 + 4, MAX_FILE_SIZE + 1);
	assert_int_equal(zip_open(&m->source, NULL, &c), -EBADMSG);
	assert_says(seen, "larger than the limit of 2^50 bytes");
	carton_log_set(NULL, NULL);
	source_unref(&m->source);
	buf_finish(&z.out);
}

/* libarchive, as a second reader, agrees with what is there, and not with anything else. */
static void test_compare(void **state)
{
	static const struct zip_file files[] = {
		{ .name = "a", .data = "some bytes", .n = 10 },
		{ .name = "b", .data = "aaaaaaaaaaaaaaaa", .n = 16, .method = METHOD_DEFLATE },
		{ .name = "d/", .mode = S_IFDIR | 0755 },
		{ .name = "d/l", .data = "a", .n = 1, .mode = S_IFLNK | 0777 },
		{ .name = "z", .data = "x", .n = 1, .method = METHOD_ZSTD, .descriptor = 16 },
	};
	struct log_seen *seen = log_watch();

	(void)state;
	for (size_t change = 0; change <= 4; change++) {
		struct zip_made z = zip_make(files, ARRAY_SIZE(files), (struct zip_end){ 0 });
		struct mem_source *m = mem_source(z.out.data, z.out.len);
		struct container *c;
		static const char *const says[] = { "", "another size", "another kind",
						    "does not have", "" };

		assert_int_equal(zip_open(&m->source, NULL, &c), 0);
		seen->n = 0;
		if (change == 1)
			c->entries[0].size++;
		else if (change == 2)
			c->entries[1].kind = ENTRY_SYMLINK;
		else if (change == 3)
			((char *)c->entries[0].name)[0] = '0';
		else if (change == 4)
			m->fail = -EIO;
		/* another name is there twice: one too many, and one that is missing */
		assert_int_equal(compare_with_libarchive(c, &m->source),
				 change == 3 ? 2 : says[change][0] != 0);
		assert_says(seen, says[change]);
		m->fail = 0;
		source_unref(&m->source);
		container_close(c);
		buf_finish(&z.out);
	}
	carton_log_set(NULL, NULL);
}

/* Two names that are one in NFC: libarchive gives both that one. Other sizes are still found. */
static void test_compare_normalized(void **state)
{
	static const struct zip_file files[] = {
		{ .name = "e\xcc\x81", .data = "bytes", .n = 5 },
		{ .name = "\xc3\xa9", .data = "some bytes", .n = 10 },
		{ .name = "z\xc3\xa9", .data = "x", .n = 1 },
	};
	struct log_seen *seen = log_watch();

	(void)state;
	for (size_t change = 0; change <= ARRAY_SIZE(files); change++) {
		struct zip_made z = zip_make(files, ARRAY_SIZE(files), (struct zip_end){ 0 });
		struct mem_source *m = mem_source(z.out.data, z.out.len);
		struct container *c;

		for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
			put_le16(z.out.data + z.central[i] + 8, 1 << 11); /* names in UTF-8 */
			put_le16(z.out.data + z.local[i] + 6, 1 << 11);
		}
		assert_int_equal(zip_open(&m->source, NULL, &c), 0);
		seen->n = 0;
		if (change)
			c->entries[change - 1].size++;
		assert_int_equal(compare_with_libarchive(c, &m->source), change > 0);
		assert_says(seen, change ? "libarchive has other entries" : "");
		source_unref(&m->source);
		container_close(c);
		buf_finish(&z.out);
	}
	carton_log_set(NULL, NULL);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_compare_normalized),
		cmocka_unit_test(test_methods_and_forms),
		cmocka_unit_test(test_empty),
		cmocka_unit_test(test_kinds),
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_begins_and_ends),
		cmocka_unit_test(test_flags_differ),
		cmocka_unit_test(test_size_of_all_ones),
		cmocka_unit_test(test_long_header),
		cmocka_unit_test(test_long_comment),
		cmocka_unit_test(test_reads),
		cmocka_unit_test(test_large),
		cmocka_unit_test(test_source_fails),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_file_size),
		cmocka_unit_test(test_compare),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
