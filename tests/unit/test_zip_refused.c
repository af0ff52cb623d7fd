/* SPDX-License-Identifier: Apache-2.0 */
/* Zips that must be refused: one field of a good one is overwritten, or bytes are added. */
#include <sys/mman.h>
#include <sys/stat.h>

#include "archive/zip.h"
#include "zip_help.h"

/* Opens the archive and reads all its entries: the first thing that fails. */
static int read_all(const char *data, size_t n)
{
	struct mem_source *m = mem_source(data, n);
	struct container *c = NULL;
	int r = zip_open(&m->source, NULL, &c);

	source_unref(&m->source);
	for (size_t i = 0; r == 0 && i < c->n_entries; i++) {
		struct buf got = { 0 };
		struct source *source;
		uint64_t off;

		if (c->entries[i].kind != ENTRY_DIR) {
			r = container_read(c, &c->entries[i], 100000, &got);
		} else {
			r = container_locate(c, &c->entries[i], &source, &off);
			if (r == 0)
				source_unref(source);
		}
		buf_finish(&got);
	}
	container_close(c);
	return r;
}

static const struct zip_file good_files[] = {
	{ .name = "first", .data = "some bytes", .n = 10 },
	{ .name = "packed",
	  .data = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
	  .n = 32,
	  .method = METHOD_ZSTD },
	{ .name = "late", .data = "1234567", .n = 7, .descriptor = 16 },
	{ .name = "wide", .data = "1234567", .n = 7, .zip64 = true, .descriptor = 24 },
	{ .name = "link", .data = "first", .n = 5, .mode = S_IFLNK | 0777 },
	{ .name = "dir/", .mode = S_IFDIR | 0755 },
};

enum place { LOCAL, DATA, CENTRAL, EOCD, RECORD, LOCATOR };

/* `width` bytes of `value` at `at` behind the beginning of the entry's part. */
static const struct change {
	enum place place;
	size_t entry, at, width;
	uint64_t value;
	const char *says;
} changes[] = {
	{ CENTRAL, 0, 0, 4, 0x02014b51, "entry 1 of 6 has no central header" },
	{ CENTRAL, 1, 0, 4, 0, "entry 2 of 6 has no central header" },
	{ CENTRAL, 0, 8, 2, 1, "is encrypted" },
	{ CENTRAL, 0, 8, 2, 1 << 6, "is encrypted" },
	{ CENTRAL, 0, 8, 2, 1 << 13, "is encrypted" },
	{ CENTRAL, 0, 8, 2, 1 << 5, "patch data" },
	{ CENTRAL, 0, 8, 2, 1 << 4, "reserved flag" },
	{ CENTRAL, 0, 8, 2, 1 << 15, "reserved flag" },
	{ CENTRAL, 0, 46, 2, 0xa9c3, "not the UTF-8 flag" },
	{ CENTRAL, 4, 5, 1, 19, "symlink for some readers and a file for others" },
	{ CENTRAL, 0, 6, 1, 64, "later version" },
	{ CENTRAL, 4, 36, 2, 4, "symlink for some readers and a file for others" },
	{ CENTRAL, 4, 5, 1, 0, "symlink for some readers and a file for others" },
	{ CENTRAL, 4, 5, 1, 5, "symlink for some readers and a file for others" },
	{ CENTRAL, 0, 10, 2, 12, "unsupported compression method" },
	{ CENTRAL, 0, 10, 2, 9, "unsupported compression method" },
	{ CENTRAL, 0, 20, 4, 9, "is Stored, but its two sizes differ" },
	{ CENTRAL, 0, 24, 4, 11, "is Stored, but its two sizes differ" },
	{ CENTRAL, 0, 24, 4, UINT32_MAX, "is Stored, but its two sizes differ" },
	{ CENTRAL, 0, 42, 4, UINT32_MAX, "is outside of the archive" },
	{ CENTRAL, 0, 42, 4, 1, "data before the first entry" },
	{ CENTRAL, 0, 34, 2, 1, "is on another disk" },
	{ CENTRAL, 3, 34, 2, UINT16_MAX, "is on another disk" },
	{ CENTRAL, 0, 28, 2, 60000, "is cut off" },
	{ CENTRAL, 0, 30, 2, 60000, "is cut off" },
	{ CENTRAL, 5, 32, 2, 1, "is cut off" },
	{ CENTRAL, 0, 46, 1, '/', "is absolute" },
	{ CENTRAL, 0, 46, 1, '\\', "has a backslash" },
	{ CENTRAL, 0, 46, 1, 0, "has a control character" },
	{ CENTRAL, 0, 46, 2, 0x2e2e | 0x2f0000, "has another name" },
	{ CENTRAL, 0, 46, 3, 0x2f2e2e, "has a \"..\" component" },
	{ CENTRAL, 0, 46, 1, 0xff, "is not UTF-8" },
	{ CENTRAL, 0, 50, 1, '/', "is a directory that has data" },
	{ CENTRAL, 4, 38, 4, (uint32_t)(S_IFIFO | 0644) << 16, "is a fifo, device or socket" },
	{ CENTRAL, 4, 38, 4, (uint32_t)(S_IFCHR | 0644) << 16, "is a fifo, device or socket" },
	{ CENTRAL, 4, 38, 4, (uint32_t)(S_IFBLK | 0644) << 16, "is a fifo, device or socket" },
	{ CENTRAL, 4, 38, 4, (uint32_t)(S_IFSOCK | 0644) << 16, "is a fifo, device or socket" },
	{ CENTRAL, 4, 38, 4, (uint32_t)(S_IFDIR | 0755) << 16, "does not end in a slash" },
	{ CENTRAL, 0, 38, 4, 0x10, "does not end in a slash" },
	{ CENTRAL, 0, 38, 4, (uint32_t)(S_IFREG | 0644) << 16 | 0x10, "does not end in a slash" },
	{ CENTRAL, 0, 38, 4, (uint32_t)(S_IFLNK | 0777) << 16, "symlink for some readers" },
	{ CENTRAL, 5, 38, 4, (uint32_t)(S_IFREG | 0644) << 16, "its name ends in a slash" },
	{ CENTRAL, 5, 38, 4, (uint32_t)(S_IFLNK | 0777) << 16, "its name ends in a slash" },
	{ CENTRAL, 5, 20, 8, 1ULL << 32 | 1, "is a directory that has data" },
	{ CENTRAL, 3, 50 + 2, 2, 23, "has a" },
	{ CENTRAL, 3, 50 + 2, 2, 25, "has an extra field that is longer than its block" },
	{ CENTRAL, 3, 50 + 4, 8, 8, "its two sizes differ" },
	{ CENTRAL, 3, 50 + 20, 8, UINT64_MAX, "is outside" },
	{ CENTRAL, 3, 50 + 12, 8, UINT64_MAX, "its two sizes differ" },
	{ CENTRAL, 3, 20, 8, 7ULL << 32 | 7, "an unexpected value before an expected one" },
	{ CENTRAL, 1, 42, 4, 0, "overlaps what follows" },
	{ LOCAL, 0, 0, 4, 0, "has no local header" },
	{ LOCAL, 0, 6, 2, 2, "has other flags" },
	{ LOCAL, 1, 6, 2, 4, "has other flags" },
	{ LOCAL, 0, 6, 2, 1, "has other flags" },
	{ LOCAL, 0, 6, 2, 8, "has other flags" },
	{ LOCAL, 0, 6, 2, 1 << 15, "has other flags" },
	{ LOCAL, 0, 8, 2, 8, "has another compression method" },
	{ LOCAL, 0, 14, 4, 1, "has another crc" },
	{ LOCAL, 0, 14, 4, 0, "has another crc" },
	{ LOCAL, 0, 18, 4, 9, "has other sizes" },
	{ LOCAL, 0, 22, 4, 9, "has other sizes" },
	{ LOCAL, 0, 22, 4, UINT32_MAX, "has other sizes" },
	{ LOCAL, 0, 26, 2, 4, "has another name" },
	{ LOCAL, 0, 26, 2, 60000, "overlaps what follows" },
	{ LOCAL, 0, 28, 2, 1, "has a cut-off extra field" },
	{ LOCAL, 0, 30, 1, 'F', "has another name" },
	{ LOCAL, 2, 14, 4, 1, "has another crc" },
	{ LOCAL, 2, 18, 4, 6, "has other sizes" },
	{ LOCAL, 3, 34 + 4, 8, 6, "has other sizes" },
	{ DATA, 0, 0, 1, 'S', "crc mismatch" },
	{ DATA, 4, 0, 1, 'S', "crc mismatch" },
	{ DATA, 1, 0, 4, 0, "bad zstd data" },
	{ DATA, 2, 7, 4, 0x08074b51, "data descriptor that disagrees" },
	{ DATA, 2, 7 + 4, 4, 1, "data descriptor that disagrees" },
	{ DATA, 2, 7 + 8, 4, 8, "data descriptor that disagrees" },
	{ DATA, 2, 7 + 12, 4, 8, "data descriptor that disagrees" },
	{ DATA, 3, 7 + 16, 8, 1ULL << 32 | 7, "data descriptor that disagrees" },
	{ EOCD, 0, 0, 4, 0, "no end of central directory" },
	{ EOCD, 0, 4, 2, 1, "multi-disk" },
	{ EOCD, 0, 6, 2, 1, "multi-disk" },
	{ EOCD, 0, 4, 2, UINT16_MAX, "needs a zip64 record" },
	{ EOCD, 0, 8, 2, 5, "two entry counts differ" },
	{ EOCD, 0, 8, 4, 5 << 16 | 5, "belong to no entry" },
	{ EOCD, 0, 8, 4, 7 << 16 | 7, "entry 7 of 7 has no central header" },
	{ EOCD, 0, 8, 4, UINT32_MAX, "does not fit in the central directory" },
	{ EOCD, 0, 12, 4, UINT32_MAX, "needs a zip64 record" },
	{ EOCD, 0, 16, 4, UINT32_MAX, "needs a zip64 record" },
	{ EOCD, 0, 12, 4, 1, "does not end where its end record begins" },
	{ EOCD, 0, 16, 4, 1, "does not end where its end record begins" },
	{ EOCD, 0, 20, 2, 1, "comment length is wrong" },
}, changes64[] = {
	{ RECORD, 0, 0, 4, 0, "does not point to a zip64 end record" },
	{ RECORD, 0, 4, 8, 45, "record is not of 56 bytes" },
	{ RECORD, 0, 4, 8, 43, "record is not of 56 bytes" },
	{ RECORD, 0, 4, 8, UINT64_MAX, "record is not of 56 bytes" },
	{ RECORD, 0, 16, 4, 1, "multi-disk" },
	{ RECORD, 0, 20, 4, 1, "multi-disk" },
	{ RECORD, 0, 24, 8, 5, "two entry counts differ" },
	{ RECORD, 0, 32, 8, 7, "two entry counts differ" },
	{ RECORD, 0, 40, 8, 1, "does not end where" },
	{ RECORD, 0, 48, 8, UINT64_MAX, "does not end where" },
	{ LOCATOR, 0, 0, 4, 0, "needs a zip64 record" },
	{ LOCATOR, 0, 4, 4, 1, "multi-disk" },
	{ LOCATOR, 0, 16, 4, 2, "multi-disk" },
	{ LOCATOR, 0, 16, 4, UINT32_MAX, "multi-disk" },
	{ LOCATOR, 0, 8, 8, UINT64_MAX, "points outside" },
	{ LOCATOR, 0, 8, 8, 0, "does not point to a zip64 end record" },
	{ EOCD, 0, 8, 4, 5 << 16 | 5, "disagrees with the end record" },
	{ EOCD, 0, 12, 4, 1, "disagrees with the end record" },
	{ EOCD, 0, 16, 4, 1, "disagrees with the end record" },
};

static void try_changes(struct zip_end end, const struct change *list, size_t n)
{
	struct zip_made z = zip_make(good_files, ARRAY_SIZE(good_files), end);
	struct log_seen *seen = log_watch();
	uint8_t saved[8], le[8];

	assert_int_equal(read_all(z.out.data, z.out.len), 0);
	assert_int_equal(seen->n, 0);
	for (size_t i = 0; i < n; i++) {
		const struct change *ch = &list[i];
		const size_t begins[] = {
			[LOCAL] = z.local[ch->entry],
			[DATA] = z.data[ch->entry],
			[CENTRAL] = z.central[ch->entry],
			[EOCD] = z.eocd,
			[RECORD] = z.record,
			[LOCATOR] = z.locator,
		};
		char *at = z.out.data + begins[ch->place] + ch->at;

		put_le64(le, ch->value);
		memcpy(saved, at, ch->width);
		memcpy(at, le, ch->width);
		seen->n = 0;
		if (read_all(z.out.data, z.out.len) != -EBADMSG)
			fail_msg("change %zu (\"%s\") passed", i, ch->says);
		if (seen->n == 0 || (seen->n == 1 && !strstr(seen->message, ch->says)))
			fail_msg("change %zu: \"%s\", not \"%s\"", i, seen->message, ch->says);
		memcpy(at, saved, ch->width);
	}
	assert_int_equal(read_all(z.out.data, z.out.len), 0);
	carton_log_set(NULL, NULL);
	buf_finish(&z.out);
}

static void test_changes(void **state)
{
	(void)state;
	try_changes((struct zip_end){ 0 }, changes, ARRAY_SIZE(changes));
	try_changes((struct zip_end){ .zip64 = true }, changes64, ARRAY_SIZE(changes64));
}

/* ---- bytes too many, or too few ---- */

static void test_cut_off(void **state)
{
	for (int wide = 0; wide < 2; wide++) {
		struct zip_made z = zip_make(good_files, ARRAY_SIZE(good_files),
					     (struct zip_end){ .zip64 = wide, .comment = "end" });

		(void)state;
		for (size_t n = 0; n < z.out.len; n++) {
			assert_int_equal(read_all(z.out.data, n), -EBADMSG);
			if (n)
				assert_int_equal(read_all(z.out.data + n, z.out.len - n), -EBADMSG);
		}
		buf_finish(&z.out);
	}
}

/* One byte more, wherever it stands: in each structure and between them. */
static void test_inserted(void **state)
{
	for (int wide = 0; wide < 2; wide++) {
		struct zip_made z = zip_make(good_files, ARRAY_SIZE(good_files),
					     (struct zip_end){ .zip64 = wide });
		char *more = must(malloc(z.out.len + 1));
		bool padded;

		(void)state;
		for (size_t at = 0; at <= z.out.len; at++)
			for (int byte = 0; byte < 256; byte += 'P') {
				memcpy(more, z.out.data, at);
				more[at] = (char)byte;
				memcpy(more + at + 1, z.out.data + at, z.out.len - at);
				/* a zero behind it is padding, also where its last bytes are zeros */
				padded = byte == 0 && memcmp(more, z.out.data, z.out.len) == 0;
				assert_int_equal(read_all(more, z.out.len + 1),
						 padded ? 0 : -EBADMSG);
			}
		free(more);
		buf_finish(&z.out);
	}
}

/* The archive with `n` bytes more at `at`, which its offsets take into account. */
static struct buf insert(const struct zip_made *z, size_t n_files, size_t at, size_t n)
{
	struct buf b = buf_init(SIZE_MAX / 2);
	char *offset;

	assert_int_equal(buf_reserve(&b, z->out.len + n), 0);
	memcpy(b.data, z->out.data, at);
	memset(b.data + at, 0, n);
	memcpy(b.data + at + n, z->out.data + at, z->out.len - at);
	b.len = z->out.len + n;
	for (size_t i = 0; i < n_files; i++) {
		offset = b.data + z->central[i] + n + 42;
		if (z->local[i] >= at)
			put_le32(offset, (uint32_t)(z->local[i] + n));
	}
	put_le32(b.data + z->eocd + n + 16, (uint32_t)(z->directory + n));
	return b;
}

/*
 * Bytes behind an entry, however many: up to 64 KiB may be its local extra field, and multiples of
 * 128 KiB do not fit into what is kept of its length.
 */
static void test_gaps(void **state)
{
	static const size_t lengths[] = {
		1, 24, 1000, 64 * KIB - 1, 64 * KIB, 128 * KIB - 1, 128 * KIB, 256 * KIB, 1024 * KIB
	};
	static const struct zip_file files[] = { { .name = "a", .data = "x", .n = 1 },
						 { .name = "b", .data = "y", .n = 1 } };
	struct zip_made z = zip_make(files, 2, (struct zip_end){ 0 });
	struct log_seen *seen = log_watch();

	(void)state;
	for (size_t i = 0; i < 2 * ARRAY_SIZE(lengths); i++) {
		struct buf b = insert(&z, 2, i % 2 ? z.local[1] : z.directory, lengths[i / 2]);

		seen->n = 0;
		if (read_all(b.data, b.len) != -EBADMSG)
			fail_msg("a gap of %zu bytes passed", lengths[i / 2]);
		assert_says(seen, "is followed by bytes that belong to no entry");
		buf_finish(&b);
	}
	carton_log_set(NULL, NULL);
	buf_finish(&z.out);
}

/* A data descriptor is of 12, 16, 20 or 24 bytes, and says what it says as one of these. */
static void test_gaps_behind_descriptors(void **state)
{
	struct log_seen *seen = log_watch();

	(void)state;
	for (unsigned length = 12; length <= 24; length += 4) {
		struct zip_file file = { .name = "a", .data = "x", .n = 1, .descriptor = length };
		struct zip_made z = zip_make(&file, 1, (struct zip_end){ 0 });

		assert_int_equal(read_all(z.out.data, z.out.len), 0);
		for (size_t n = 1; n <= 24; n++) {
			struct buf b = insert(&z, 1, z.directory, n);

			seen->n = 0;
			if (read_all(b.data, b.len) != -EBADMSG)
				fail_msg("%zu bytes behind a descriptor of %u passed", n, length);
			if (n + length <= 24)
				assert_says(seen, "data descriptor that disagrees");
			buf_finish(&b);
		}
		buf_finish(&z.out);
	}
	carton_log_set(NULL, NULL);
}

/* A local extra field that goes on in what follows the entry, so that its data would lie there. */
static void test_extra_too_long(void **state)
{
	static const struct zip_file files[] = { { .name = "a", .data = "\x99\x99\x30\0", .n = 4 },
						 { .name = "b", .data = "y", .n = 1 } };
	struct zip_made z = zip_make(files, 2, (struct zip_end){ 0 });
	struct log_seen *seen = log_watch();

	(void)state;
	assert_int_equal(read_all(z.out.data, z.out.len), 0);
	put_le16(z.out.data + z.local[0] + 28, 4 + 0x30);
	assert_int_equal(read_all(z.out.data, z.out.len), -EBADMSG);
	assert_says(seen, "overlaps what follows it");
	carton_log_set(NULL, NULL);
	buf_finish(&z.out);
}

/* A file of this machine is refused before any entry is read. */
static void assert_not_opened(const struct zip_made *z, const char *says)
{
	int fd = memfd_create("zip", MFD_CLOEXEC);
	struct log_seen *seen = log_watch();
	struct source *source;
	struct container *c;

	assert_int_equal(pwrite_full(fd, z->out.data, z->out.len, 0), 0);
	assert_int_equal(source_from_fd(fd, &source), 0);
	assert_int_equal(zip_open(source, NULL, &c), -EBADMSG);
	assert_says(seen, says);
	source_unref(source);
	carton_log_set(NULL, NULL);
}

/* The directory has one entry more than is counted. */
static void test_hidden_entry(void **state)
{
	static const struct zip_file files[] = { { .name = "a", .data = "x", .n = 1 },
						 { .name = "b", .data = "y", .n = 1 } };
	struct zip_made z = zip_make(files, 2, (struct zip_end){ 0 });

	(void)state;
	put_le32(z.out.data + z.eocd + 8, 1 << 16 | 1);
	assert_not_opened(&z, "belong to no entry");
	buf_finish(&z.out);
}

/* So many stored bytes that header and data together are a small number again. */
static void test_wraps_around(void **state)
{
	static const struct zip_file file = {
		.name = "wide", .data = "x", .n = 1, .method = METHOD_ZSTD, .zip64 = true
	};
	struct zip_made z = zip_make(&file, 1, (struct zip_end){ 0 });

	(void)state;
	put_le64(z.out.data + z.central[0] + 46 + 4 + 4 + 8, UINT64_MAX - 20);
	assert_not_opened(&z, "is outside of the archive");
	buf_finish(&z.out);
}

/* Nobody opens a directory later, so its local header is compared at once. */
static void test_local_directory(void **state)
{
	static const struct zip_file files[] = { { .name = "a", .data = "x", .n = 1 },
						 { .name = "dir/" } };
	struct zip_made z = zip_make(files, 2, (struct zip_end){ 0 });

	(void)state;
	z.out.data[z.local[1] + 30] = 'x';
	assert_not_opened(&z, "has another name in its local header");
	buf_finish(&z.out);
}

/* Each bit of the archive is either without meaning, or its change is noticed. */
static void test_bit_flips(void **state)
{
	for (int wide = 0; wide < 2; wide++) {
		struct zip_made z = zip_make(good_files, ARRAY_SIZE(good_files),
					     (struct zip_end){ .zip64 = wide });
		size_t passed = 0;

		(void)state;
		for (size_t bit = 0; bit < 8 * z.out.len; bit++) {
			int r;

			z.out.data[bit / 8] ^= (char)(1 << bit % 8);
			r = read_all(z.out.data, z.out.len);
			assert_true(r == 0 || r == -EBADMSG || r == -EFBIG || r == -EOPNOTSUPP);
			passed += r == 0;
			z.out.data[bit / 8] ^= (char)(1 << bit % 8);
		}
		/* versions, times, attributes, directory crc: about 30 bytes for each entry */
		assert_in_range(passed, 1, ARRAY_SIZE(good_files) * 8 * 40);
		buf_finish(&z.out);
	}
}

static void test_second_end(void **state)
{
	struct zip_file file = { .name = "a", .data = "x", .n = 1 };
	struct log_seen *seen = log_watch();
	struct zip_made z;

	(void)state;
	/* a whole record inside of the comment, that ends where the file does or not */
	z = zip_make(&file, 1,
		     (struct zip_end){ .comment = "PK\x05\x06"
						  "444444444444444444"
						  "c" });
	assert_int_equal(read_all(z.out.data, z.out.len), -EBADMSG);
	assert_says(seen, "second end record");
	put_le16(z.out.data + z.eocd + 22 + 20, 1);
	assert_int_equal(read_all(z.out.data, z.out.len), -EBADMSG);
	assert_says(seen, "two end records");
	buf_finish(&z.out);
	/* and one that is cut off */
	z = zip_make(&file, 1, (struct zip_end){ .comment = "c PK\x05\x06" });
	assert_int_equal(read_all(z.out.data, z.out.len), -EBADMSG);
	assert_says(seen, "second end record");
	buf_finish(&z.out);
	carton_log_set(NULL, NULL);
}

/* Zeros behind the end record, as bsdtar writes them to a pipe. */
static void test_padding(void **state)
{
	static const struct {
		size_t n, last; /* bytes; the value of the last one */
		const char *comment, *says;
	} cases[] = {
		{ 1, 0, NULL, NULL },
		{ 10239, 0, NULL, NULL },
		{ 10239, 0, "c", NULL },
		{ 10240, 0, NULL, "data after the end record" },
		{ 1, 1, NULL, "data after the end record" },
		{ 5000, 1, "c", "data after the end record" },
		{ 30, 0,
		  "PK\x05\x06"
		  "4444444444444444\1",
		  "two end records" },
		{ 30, 0, "c PK\x05\x06", "two end records" },
		{ 17, 0, "c PK\x05\x06", "second end record" },
	};
	struct zip_file file = { .name = "a", .data = "x", .n = 1 };
	struct log_seen *seen = log_watch();

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct zip_made z = zip_make(&file, 1,
					     (struct zip_end){ .comment = cases[i].comment });
		uint8_t *padding = calloc(1, cases[i].n);

		assert_non_null(padding);
		padding[cases[i].n - 1] = (uint8_t)cases[i].last;
		assert_int_equal(buf_add(&z.out, padding, cases[i].n), 0);
		assert_int_equal(read_all(z.out.data, z.out.len), cases[i].says ? -EBADMSG : 0);
		if (cases[i].says)
			assert_says(seen, cases[i].says);
		free(padding);
		buf_finish(&z.out);
	}
	carton_log_set(NULL, NULL);
}

static void test_names_clash(void **state)
{
	static const struct {
		const char *a, *b, *says;
	} clashes[] = {
		{ "a", "a", "duplicate entry" },     { "a", "a/b", "is below" },
		{ "a/b/c", "a/b", "is below" },	     { "./a", "a", "duplicate entry" },
		{ "a", "a/", "duplicate entry" },    { "./a/", "a", "duplicate entry" },
		{ "./a", "./a", "duplicate entry" }, { "./a/b", "a", "is below" },
	};
	struct log_seen *seen = log_watch();

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(clashes); i++) {
		struct zip_file files[] = { { .name = clashes[i].a },
					    { .name = "x" },
					    { .name = clashes[i].b } };
		struct zip_made z = zip_make(files, 3, (struct zip_end){ 0 });

		assert_int_equal(read_all(z.out.data, z.out.len), -EBADMSG);
		assert_says(seen, clashes[i].says);
		buf_finish(&z.out);
	}
	carton_log_set(NULL, NULL);
}

static void test_extra_fields(void **state)
{
	static const struct {
		const char *extra;
		size_t len;
		const char *says; /* NULL: it is good */
	} list[] = {
		{ "\x99\x99\0\0", 4, NULL },
		{ "\x99\x99\0\0\x99\x99\x02\0zz", 10, NULL },
		{ "\x99\x99\0", 3, "has a cut-off extra field" },
		{ "xl\x01\0\0", 5, "has an extra field 0x6c78" },
		{ "nu\x0e\0\0\0\0\0\xff\xa1\0\0\0\0\0\0\0\0", 18, "has an extra field 0x756e" },
		{ "\x99\x99\x01\0", 4, "has an extra field that is longer than its block" },
		{ "UT\x01\0\0UT\x01\0\0", 10, NULL }, /* dates are not read */
		{ "\x01\0\0\0", 4, NULL },
		{ "\x01\0\x04\0\0\0\0\0", 8, NULL },
		{ "\x01\0\x04\0\1\0\0\0", 8, "zip64 extra field of a wrong length" },
		{ "\x01\0\0\0\x01\0\0\0", 8, "duplicate zip64" },
		{ "\x01\0\x05\0\0\0\0\0\0", 9, "has a short zip64" },
		{ "\x01\0\x08\0\1\0\0\0\0\0\0\0", 12, NULL },
		{ "\x01\0\x08\0\2\0\0\0\0\0\0\0", 12, "disagrees with its header" },
		{ "\0", 1, NULL },
		{ "\0\0", 2, NULL },
		{ "UT\x01\0\0\0\0\0", 8, NULL },
		{ "\0\1", 2, "has a cut-off extra field" },
		{ "UT\x01\0\0\0\0\1", 8, "has a cut-off extra field" },
		/* with the crc of "a", and with another one */
		{ "up\x06\0\x01\x43\xbe\xb7\xe8"
		  "a",
		  10, NULL },
		{ "up\x06\0\x01\x43\xbe\xb7\xe8"
		  "b",
		  10, "has another name" },
		{ "up\x06\0\x01\0\0\0\0b", 10, NULL },
		{ "up\x06\0\x02\0\0\0\0b", 10, NULL },
		{ "up\x07\0\x02\x43\xbe\xb7\xe8\xc3\xa9", 11, "has another name" },
		{ "up\x08\0\x01\x43\xbe\xb7\xe8\xc3\xa9/", 12, "has another name" },
		{ "up\x0a\0\x01\x43\xbe\xb7\xe8\xc3\xa9/\xc3\xa9", 14, "has another name" },
		{ "up\x05\0\x01\x43\xbe\xb7\xe8", 9, "has another name" },
		{ "up\x04\0\x01\0\0\0", 8, "has a short Unicode path" },
		{ "up\x06\0\x01\0\0\0\0aup\x06\0\x01\0\0\0\0a", 20, "duplicate Unicode path" },
	};
	struct log_seen *seen = log_watch();

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(list); i++) {
		struct zip_file file = { .name = "a",
					 .data = "x",
					 .n = 1,
					 .extra = list[i].extra,
					 .extra_len = list[i].len };
		struct zip_made z = zip_make(&file, 1, (struct zip_end){ 0 });
		int r = read_all(z.out.data, z.out.len);

		if (r != (list[i].says ? -EBADMSG : 0))
			fail_msg("extra field %zu: %d, \"%s\"", i, r, seen->message);
		if (list[i].says)
			assert_says(seen, list[i].says);
		buf_finish(&z.out);
	}
	carton_log_set(NULL, NULL);
}

/* The field counts if it has the crc of the header's name, and both headers have it. */
static void test_unicode_paths(void **state)
{
	static const struct {
		const char *name, *unicode;
		bool local, central;
		const char *says; /* NULL: it is good */
	} list[] = {
		{ "d/\x94", "d/\xc3\xb6", true, true, NULL },
		{ "./d/\x94", "./d/\xc3\xb6", true, true, NULL },
		{ "\xc3\xb6", "\xc3\xb6", true, true, NULL },
		{ "a", "\xc3\xb6", false, false, NULL },
		{ "d/\x94", "d/\xc3\xb6", false, true, "another name in its local header" },
		{ "\xc3\xb6", "\xc3\xb6", false, true, "another name in its local header" },
		{ "d/\x94", "d/\xc3\xb6", true, false, "is not UTF-8" },
		{ "d/\x94", "d/\xc3\xb6", false, false, "is not UTF-8" },
		{ "\xc3\xb6", "\xc3\xb6", true, false, "not the UTF-8 flag" },
		{ "d/\x94", "\xc3\xb6", true, true, "that has another name" },
		{ "\x94\x01", "\xc3\xb6", true, true, "that has another name" },
		{ "\x94", "../\xc3\xb6", true, true, "that has another name" },
		{ "../\x94", "../\xc3\xb6", true, true, "has a \"..\" component" },
		{ "\x94", "\xff", true, true, "is not UTF-8" },
	};
	struct log_seen *seen = log_watch();

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(list); i++) {
		struct buf extra = buf_init(100);
		size_t len = strlen(list[i].name), at;
		struct zip_file file = { .name = list[i].name, .data = "x", .n = 1 };
		struct zip_made z;
		int r;

		zip_put(&extra, 0x7075, 2);
		zip_put(&extra, 5 + strlen(list[i].unicode), 2);
		zip_put(&extra, 1, 1);
		zip_put(&extra, crc32_update(0, list[i].name, len), 4);
		buf_adds(&extra, list[i].unicode);
		file.extra = extra.data;
		file.extra_len = extra.len;
		z = zip_make(&file, 1, (struct zip_end){ 0 });
		/* with a wrong crc, it is as if it was not there */
		at = 30 + len + 5;
		z.out.data[z.local[0] + at] ^= !list[i].local;
		z.out.data[z.central[0] + at + 16] ^= !list[i].central;
		r = read_all(z.out.data, z.out.len);
		if (r != (list[i].says ? -EBADMSG : 0))
			fail_msg("name %zu: %d, \"%s\"", i, r, seen->message);
		if (list[i].says)
			assert_says(seen, list[i].says);
		buf_finish(&z.out);
		buf_finish(&extra);
	}
	carton_log_set(NULL, NULL);
}

/* A directory that is left out is checked as all are. */
static void test_directories_again(void **state)
{
	static const char *const names[] = { "d/", "./d/", "./", "/" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		struct zip_file files[] = { { .name = "d/" },
					    { .name = names[i], .data = "x", .n = 1 } };
		struct zip_made z = zip_make(files, 2, (struct zip_end){ 0 });

		/* the central header says that it has none */
		put_le64(z.out.data + z.central[1] + 16, 0);
		put_le32(z.out.data + z.central[1] + 24, 0);
		assert_not_opened(&z, "has another crc in its local header");
		buf_finish(&z.out);
	}
}

/* A zip64 locator of 0 disks, where the end record itself leads to a directory, too. */
static void test_no_disks(void **state)
{
	struct zip_made z = zip_make(good_files, ARRAY_SIZE(good_files),
				     (struct zip_end){ .zip64 = true });
	struct log_seen *seen = log_watch();

	(void)state;
	put_le32(z.out.data + z.locator + 16, 0);
	assert_int_equal(read_all(z.out.data, z.out.len), 0);
	for (size_t i = 1; i < 4; i++) {
		put_le32(z.out.data + z.eocd + 12,
			 i & 1 ? (uint32_t)(z.record - z.directory) : UINT32_MAX);
		put_le32(z.out.data + z.eocd + 16, i & 2 ? (uint32_t)z.directory : UINT32_MAX);
		assert_int_equal(read_all(z.out.data, z.out.len), -EBADMSG);
		assert_says(seen, "multi-disk");
	}
	buf_finish(&z.out);
	carton_log_set(NULL, NULL);
}

/* Of many faults the first MAX_REPORTED are logged. */
static void test_reported(void **state)
{
	struct zip_file files[ZIP_FILES];
	struct log_seen *seen = log_watch();
	struct zip_made z;

	(void)state;
	for (size_t i = 0; i < ZIP_FILES; i++)
		files[i] = (struct zip_file){ .name = "a/../b" };
	z = zip_make(files, ZIP_FILES, (struct zip_end){ 0 });
	assert_int_equal(read_all(z.out.data, z.out.len), -EBADMSG);
	assert_int_equal(seen->n, MAX_REPORTED);
	buf_finish(&z.out);
	for (size_t i = 0; i < ZIP_FILES; i++)
		files[i] = (struct zip_file){ .name = "a" };
	z = zip_make(files, ZIP_FILES, (struct zip_end){ 0 });
	seen->n = 0;
	assert_int_equal(read_all(z.out.data, z.out.len), -EBADMSG);
	assert_int_equal(seen->n, MAX_REPORTED);
	buf_finish(&z.out);
	carton_log_set(NULL, NULL);
}

/* A zip64 record with room for a second one, which readers find that start at the end. */
static void test_long_record(void **state)
{
	struct zip_made z = zip_make(good_files, ARRAY_SIZE(good_files),
				     (struct zip_end){ .zip64 = true });
	struct log_seen *seen = log_watch();

	(void)state;
	for (size_t more = 0; more <= 100; more += 1 + more / 2) {
		struct buf b = buf_init(SIZE_MAX / 2);

		buf_add(&b, z.out.data, z.locator);
		for (size_t i = 0; i < more; i++)
			buf_addc(&b, 0);
		buf_add(&b, z.out.data + z.locator, z.out.len - z.locator);
		put_le64(b.data + z.record + 4, 44 + more);
		assert_int_equal(read_all(b.data, b.len), more ? -EBADMSG : 0);
		if (more)
			assert_says(seen, "zip64 end record is not of 56 bytes");
		buf_finish(&b);
	}
	buf_finish(&z.out);
	carton_log_set(NULL, NULL);
}

/* An end record in the data of an entry, with so many entries in a directory there. */
static struct zip_made with_end_in_data(uint16_t count, uint32_t directory, bool zip64,
					uint64_t record)
{
	static uint8_t data[42];
	struct zip_file file = { .name = "a", .data = data, .n = sizeof(data) };

	memset(data, 0, sizeof(data));
	put_le32(data, zip64 ? 0x07064b50 : 0);
	put_le64(data + 8, record);
	put_le32(data + 20, 0x06054b50);
	put_le16(data + 28, count);
	put_le16(data + 30, count);
	put_le32(data + 36, directory);
	return zip_make(&file, 1, (struct zip_end){ .zip64 = zip64 });
}

/* Refused only where it leads to a directory, which that of a nested zip does not. */
static void test_end_in_data(void **state)
{
	struct log_seen *seen = log_watch();
	struct zip_made z = with_end_in_data(1, 0, true, 0);
	const size_t directory = z.directory, record = z.record;
	const struct {
		uint16_t count;
		uint64_t directory;
		bool zip64;
		uint64_t record;
		bool refused;
	} list[] = {
		{ 1, 0, false, 0, false },
		{ 1, UINT32_MAX, false, 0, false },
		{ 0, 0, false, 0, true },
		{ 1, directory, false, 0, true },
		{ 1, directory - 1, false, record, false },
		{ 1, 0, true, 0, false },
		{ 1, 0, true, UINT64_MAX, false },
		{ 1, 0, true, record, true },
		{ 1, directory, true, 0, true },
	};

	(void)state;
	buf_finish(&z.out);
	for (size_t i = 0; i < ARRAY_SIZE(list); i++) {
		z = with_end_in_data(list[i].count, (uint32_t)list[i].directory, list[i].zip64,
				     list[i].record);
		assert_int_equal(z.directory, directory);
		if (read_all(z.out.data, z.out.len) != (list[i].refused ? -EBADMSG : 0))
			fail_msg("end record %zu: %s", i, seen->message);
		if (list[i].refused)
			assert_says(seen, "a second end record before the real one, at offset 51");
		buf_finish(&z.out);
	}
	carton_log_set(NULL, NULL);
}

/* As many as small nested zips find room for are followed, and no more: each may cost a request. */
static void test_ends_in_data(void **state)
{
	struct log_seen *seen = log_watch();
	struct buf data = buf_init(10000);

	(void)state;
	for (size_t n = 1; n < 260; n++) {
		struct zip_file file = { .name = "a" };
		struct zip_made z;

		zip_put(&data, 0x06054b50, 8);
		zip_put(&data, 1 << 16 | 1, 6);
		zip_put(&data, 0, 8);
		file.data = data.data;
		file.n = data.len;
		z = zip_make(&file, 1, (struct zip_end){ 0 });
		assert_int_equal(read_all(z.out.data, z.out.len), n > 256 ? -EBADMSG : 0);
		if (n > 256)
			assert_says(seen, "a second end record");
		buf_finish(&z.out);
	}
	buf_finish(&data);
	carton_log_set(NULL, NULL);
}

/* The data of a directory decodes to nothing, or it is refused. */
static void test_directory_data(void **state)
{
	static const char checked[] = "\x28\xb5\x2f\xfd\x24\x00\x01\x00\x00\x99\xe9\xd8\x51";
	const struct {
		unsigned method;
		const char *data;
		size_t n;
		const char *says; /* NULL: accepted */
	} list[] = {
		{ METHOD_ZSTD, checked, sizeof(checked) - 1, NULL },
		{ METHOD_ZSTD, checked, sizeof(checked) - 2, "ends too early" },
		{ METHOD_ZSTD, "\x28\xb5\x2f\xfd\x20\x00\x01\x00\x00", 9, NULL },
		{ METHOD_ZSTD, "\x28\xb5\x2f\xfd\x20\x01\x09\x00\x00x", 10,
		  "more than its declared size, 0 bytes" },
		{ METHOD_ZSTD, "not zstd", 8, "bad zstd data" },
		{ METHOD_DEFLATE, "\x03\x00", 2, NULL },
		{ METHOD_DEFLATE, "\x01\x00\x00\xff\xff", 5, NULL },
		{ METHOD_DEFLATE, "\x4b\x04\x00", 3, "deflate data" },
		{ METHOD_DEFLATE, "\x03\x00x", 3, "deflate data" },
		{ METHOD_DEFLATE, "\xff\xff", 2, "bad deflate data" },
		{ METHOD_STORED, "x", 1, "sizes differ" },
	};
	struct log_seen *seen = log_watch();

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(list); i++) {
		/* any other method number keeps the bytes as they are */
		struct zip_file file = { .name = "d/", .data = list[i].data, .n = list[i].n };
		struct zip_made z = zip_make(&file, 1, (struct zip_end){ 0 });
		int r;

		put_le16(z.out.data + z.local[0] + 8, (uint16_t)list[i].method);
		put_le16(z.out.data + z.central[0] + 10, (uint16_t)list[i].method);
		put_le32(z.out.data + z.local[0] + 22, 0);
		put_le32(z.out.data + z.central[0] + 24, 0);
		r = read_all(z.out.data, z.out.len);
		if (r != (list[i].says ? -EBADMSG : 0))
			fail_msg("directory %zu: %d, \"%s\"", i, r, seen->message);
		if (list[i].says)
			assert_says(seen, list[i].says);
		buf_finish(&z.out);
	}
	carton_log_set(NULL, NULL);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_changes),
		cmocka_unit_test(test_cut_off),
		cmocka_unit_test(test_inserted),
		cmocka_unit_test(test_gaps),
		cmocka_unit_test(test_gaps_behind_descriptors),
		cmocka_unit_test(test_extra_too_long),
		cmocka_unit_test(test_hidden_entry),
		cmocka_unit_test(test_wraps_around),
		cmocka_unit_test(test_local_directory),
		cmocka_unit_test(test_bit_flips),
		cmocka_unit_test(test_second_end),
		cmocka_unit_test(test_padding),
		cmocka_unit_test(test_names_clash),
		cmocka_unit_test(test_extra_fields),
		cmocka_unit_test(test_unicode_paths),
		cmocka_unit_test(test_directories_again),
		cmocka_unit_test(test_no_disks),
		cmocka_unit_test(test_reported),
		cmocka_unit_test(test_long_record),
		cmocka_unit_test(test_end_in_data),
		cmocka_unit_test(test_ends_in_data),
		cmocka_unit_test(test_directory_data),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
