/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing cartons: headers, which archive/ then reads; the choice of compression; frames; lists;
 * new files.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "archive/container.h"
#include "archive/encode.h"
#include "archive/zip.h"
#include "carton.h"
#include "writer/choose.h"
#include "writer/lists.h"
#include "writer/newfile.h"
#include "writer/zip_writer.h"
#include "zip_help.h"

/* ---- headers ---- */

static struct zip_writer new_zip(uint32_t align)
{
	struct zip_writer w = { memfd_create("zip", MFD_CLOEXEC), 0, align };

	assert_true(w.fd >= 0);
	return w;
}

/* A Stored entry of zeros. */
static void put_zeros(struct zip_writer *w, struct zip_entry *e, uint64_t size, uint32_t crc)
{
	e->size = size;
	e->crc = crc;
	zip_writer_place(w, e, size);
	assert_int_equal(w->at, e->data + size);
	assert_int_equal(ftruncate(w->fd, (off_t)w->at), 0);
	assert_int_equal(zip_writer_header(w, e), 0);
}

static struct container *reopen(const struct zip_writer *w)
{
	struct container *c = NULL;
	struct source *source;

	assert_int_equal(source_from_fd(fd_dup(w->fd), &source), 0);
	assert_int_equal(zip_open(source, NULL, &c), 0);
	source_unref(source);
	return c;
}

/* The reader has the entry as it was written, also its local header. */
static void expect_entry(struct container *c, const struct zip_entry *want)
{
	const struct entry *e = container_find(c, want->name);
	struct source *source;
	uint64_t off;

	assert_non_null(e);
	assert_int_equal(e->size, want->size);
	assert_int_equal(e->stored, want->stored);
	assert_int_equal(e->crc, want->crc);
	assert_int_equal(e->header, want->header);
	assert_int_equal(e->method, want->method);
	assert_int_equal(e->kind, want->symlink ? ENTRY_SYMLINK : ENTRY_FILE);
	assert_int_equal(e->executable, want->executable || want->symlink);
	assert_int_equal(container_locate(c, e, &source, &off), 0);
	assert_int_equal(off, want->data);
	source_unref(source);
}

static void test_alignment(void **state)
{
	static const uint32_t aligns[] = { 1, 2, 4, 8, 4096, 32768 };
	static const uint64_t sizes[] = { 0, 1, 3, 4095, 4096, 5000, 100000 };
	char names[64][80];

	(void)state;
	for (size_t a = 0; a < ARRAY_SIZE(aligns); a++) {
		struct zip_writer w = new_zip(aligns[a]);
		struct zip_entry entries[56] = { 0 };
		const struct zip_entry *list[56];
		struct container *c;

		/* names of many lengths: each padding is met, also those too short for a field */
		for (size_t i = 0; i < ARRAY_SIZE(entries); i++) {
			snprintf(names[i], sizeof(names[i]), "%03zu%.*s", i, (int)i,
				 "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn");
			entries[i].name = names[i];
			entries[i].executable = i & 1;
			put_zeros(&w, &entries[i], sizes[i % ARRAY_SIZE(sizes)], (uint32_t)i);
			if (entries[i].size >= aligns[a])
				assert_int_equal(entries[i].data % aligns[a], 0);
			else
				assert_int_equal(entries[i].data - entries[i].header,
						 30 + strlen(names[i]));
			list[i] = &entries[i];
		}
		assert_int_equal(zip_writer_end(&w, list, ARRAY_SIZE(list)), 0);
		c = reopen(&w);
		assert_int_equal(c->n_entries, ARRAY_SIZE(list));
		for (size_t i = 0; i < ARRAY_SIZE(entries); i++)
			expect_entry(c, &entries[i]);
		container_close(c);
		close(w.fd);
	}
}

/* Sizes and offsets about 4 GiB, in a file with holes. */
static void test_zip64(void **state)
{
	static const uint64_t sizes[] = { UINT32_MAX - 1, UINT32_MAX, UINT32_MAX + 1ULL,
					  9 * GIB,	  5,	      0 };
	struct zip_entry entries[7] = { { .name = "a" }, { .name = "b" }, { .name = "c" },
					{ .name = "d" }, { .name = "e" }, { .name = "f" },
					{ .name = "g" } };
	const struct zip_entry *list[7];
	struct zip_writer w = new_zip(4096);
	struct container *c;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
		put_zeros(&w, &entries[i], sizes[i], 7);
	/* may have become larger than 4 GiB when it was compressed, but did not */
	entries[6].method = METHOD_ZSTD;
	entries[6].size = 100;
	entries[6].crc = 9;
	zip_writer_place(&w, &entries[6], 5 * GIB);
	assert_true(entries[6].wide);
	entries[6].stored = 50;
	w.at = entries[6].data + 50;
	assert_int_equal(zip_writer_header(&w, &entries[6]), 0);
	for (size_t i = 0; i < ARRAY_SIZE(list); i++)
		list[i] = &entries[i];
	assert_int_equal(zip_writer_end(&w, list, ARRAY_SIZE(list)), 0);
	assert_false(entries[0].wide);
	assert_true(entries[1].wide);
	c = reopen(&w);
	for (size_t i = 0; i < ARRAY_SIZE(entries); i++)
		expect_entry(c, &entries[i]);
	container_close(c);
	close(w.fd);
}

/* Of an entry behind 4 GiB, the zip64 fields of both headers have its sizes, whatever they are. */
static void test_zip64_far(void **state)
{
	struct zip_entry first = { .name = "a" }, far = { .name = "b" };
	const struct zip_entry *list[] = { &first, &far };
	struct zip_writer w = new_zip(4096);
	uint8_t local[LOCAL_SIZE], central[CENTRAL_SIZE + 1 + 4 + 24];
	struct container *c;

	(void)state;
	put_zeros(&w, &first, 5 * GIB, 7);
	put_zeros(&w, &far, 5, 7);
	assert_int_equal(zip_writer_end(&w, list, ARRAY_SIZE(list)), 0);
	assert_int_equal(pread_full(w.fd, local, sizeof(local), far.header), 0);
	assert_int_equal(get_le32(local + 18), UINT32_MAX);
	c = reopen(&w);
	expect_entry(c, &far);
	/* its central header stands before both records of zip64 and the end record */
	assert_int_equal(
		pread_full(w.fd, central, sizeof(central),
			   w.at - EOCD_SIZE - LOCATOR_SIZE - RECORD_SIZE - sizeof(central)),
		0);
	assert_int_equal(get_le32(central), CENTRAL_SIG);
	assert_int_equal(get_le16(central + CENTRAL_SIZE + 1), 1);
	assert_int_equal(get_le16(central + CENTRAL_SIZE + 3), 24);
	container_close(c);
	close(w.fd);
}

static void test_names_and_kinds(void **state)
{
	struct zip_entry file = { .name = "\xc3\xa4/\xe5\x90\x8d", .executable = true },
			 link = { .name = "l", .symlink = true };
	const struct zip_entry *list[] = { &file, &link };
	struct zip_writer w = new_zip(4096);
	struct container *c;

	(void)state;
	put_zeros(&w, &file, 10, 0);
	put_zeros(&w, &link, 4, 0);
	assert_int_equal(zip_writer_end(&w, list, 2), 0);
	c = reopen(&w);
	expect_entry(c, &file);
	expect_entry(c, &link);
	assert_int_equal(container_find(c, file.name)->flags, 1 << 11);
	assert_int_equal(container_find(c, "l")->flags, 0);
	container_close(c);
	close(w.fd);
}

/* Data that looks like the end of a zip file, at every place where a reader could meet it. */
static void test_end_record_in_data(void **state)
{
	static const char empty_zip[22] = { 'P', 'K', 5, 6 };

	(void)state;
	for (size_t behind = 0; behind < 70000; behind += 4999) {
		struct zip_entry a = { .name = "a" }, b = { .name = "b" },
				 last = { .name = "MANIFEST" };
		const struct zip_entry *list[] = { &a, &b, &last };
		struct zip_writer w = new_zip(4096);
		struct container *c;

		put_zeros(&w, &a, sizeof(empty_zip), 0);
		assert_int_equal(pwrite_full(w.fd, empty_zip, sizeof(empty_zip), a.data), 0);
		put_zeros(&w, &b, behind, 0);
		last.size = 3;
		assert_int_equal(zip_writer_place_last(&w, &last), 0);
		assert_int_equal(last.data - last.header > 1000, behind < 61000);
		assert_int_equal(pwrite_full(w.fd, "xyz", 3, last.data), 0);
		assert_int_equal(zip_writer_header(&w, &last), 0);
		assert_int_equal(zip_writer_end(&w, list, 3), 0);
		c = reopen(&w);
		expect_entry(c, &last);
		container_close(c);
		close(w.fd);
	}
}

/* The number of entries at which the end record has to be that of zip64. */
static void test_many(void **state)
{
	(void)state;
	for (size_t n = UINT16_MAX - 1; n <= UINT16_MAX + 1; n++) {
		struct zip_entry *entries = calloc(n, sizeof(*entries));
		const struct zip_entry **list = calloc(n, sizeof(*list));
		char(*names)[8] = calloc(n, sizeof(*names));
		struct zip_writer w = new_zip(4096);
		struct container *c;

		assert_true(entries && list && names);
		for (size_t i = 0; i < n; i++) {
			snprintf(names[i], sizeof(names[i]), "%zu", i);
			entries[i].name = names[i];
			put_zeros(&w, &entries[i], 0, 0);
			list[i] = &entries[i];
		}
		assert_int_equal(zip_writer_end(&w, list, n), 0);
		c = reopen(&w);
		assert_int_equal(c->n_entries, n);
		container_close(c);
		close(w.fd);
		free(names);
		free(list);
		free(entries);
	}
}

/* ---- compression ---- */

static void test_choose(void **state)
{
	struct entry stored = { .method = METHOD_STORED, .size = 5000, .stored = 5000 },
		     small = { .method = METHOD_ZSTD, .size = 5000, .stored = 4750 },
		     large = { .method = METHOD_ZSTD, .size = 5000, .stored = 4751 },
		     deflated = { .method = METHOD_DEFLATE, .size = 5000, .stored = 500 };

	(void)state;
	assert_true(choose_shrinks(20, 19) && !choose_shrinks(19, 19) && !choose_shrinks(0, 13));
	assert_true(choose_shrinks(1ULL << 50, 1ULL << 49));
	/* of a directory */
	assert_int_equal(choose(COMPRESS_AUTO, false, 4096, NULL), CHOOSE_SHRINK);
	assert_int_equal(choose(COMPRESS_KEEP, false, 4096, NULL), CHOOSE_SHRINK);
	assert_int_equal(choose(COMPRESS_STORE, false, 1000, NULL), CHOOSE_STORE);
	assert_int_equal(choose(COMPRESS_ZSTD, true, 1000, NULL), CHOOSE_ZSTD);
	assert_int_equal(choose(COMPRESS_ZSTD, true, 0, NULL), CHOOSE_STORE);
	assert_int_equal(choose(COMPRESS_KEEP, true, 0, NULL), CHOOSE_STORE);
	/* small and large ones are Stored */
	assert_int_equal(choose(COMPRESS_AUTO, false, 4095, NULL), CHOOSE_STORE);
	assert_int_equal(choose(COMPRESS_KEEP, false, 4095, NULL), CHOOSE_STORE);
	assert_int_equal(choose(COMPRESS_AUTO, false, 4095, &stored), CHOOSE_COPY);
	assert_int_equal(choose(COMPRESS_AUTO, false, 4095, &small), CHOOSE_STORE);
	assert_int_equal(choose(COMPRESS_AUTO, false, 4095, &deflated), CHOOSE_STORE);
	assert_int_equal(choose(COMPRESS_AUTO, false, 8 * MIB - 1, NULL), CHOOSE_SHRINK);
	assert_int_equal(choose(COMPRESS_AUTO, false, 8 * MIB, NULL), CHOOSE_STORE);
	assert_int_equal(choose(COMPRESS_KEEP, false, 8 * MIB, NULL), CHOOSE_STORE);
	assert_int_equal(choose(COMPRESS_ZSTD, false, 8 * MIB, NULL), CHOOSE_ZSTD);
	assert_int_equal(choose(COMPRESS_AUTO, false, 8 * MIB - 1, &small), CHOOSE_COPY);
	assert_int_equal(choose(COMPRESS_AUTO, false, 8 * MIB, &small), CHOOSE_STORE);
	assert_int_equal(choose(COMPRESS_AUTO, false, 8 * MIB, &stored), CHOOSE_COPY);
	assert_int_equal(choose(COMPRESS_KEEP, false, 8 * MIB, &small), CHOOSE_COPY);
	/* of a zip file */
	assert_int_equal(choose(COMPRESS_KEEP, false, 5000, &deflated), CHOOSE_COPY);
	assert_int_equal(choose(COMPRESS_AUTO, false, 5000, &stored), CHOOSE_SHRINK);
	assert_int_equal(choose(COMPRESS_AUTO, false, 5000, &small), CHOOSE_COPY);
	assert_int_equal(choose(COMPRESS_AUTO, false, 5000, &large), CHOOSE_STORE);
	assert_int_equal(choose(COMPRESS_AUTO, false, 5000, &deflated), CHOOSE_ZSTD);
	assert_int_equal(choose(COMPRESS_STORE, false, 5000, &stored), CHOOSE_COPY);
	assert_int_equal(choose(COMPRESS_STORE, false, 5000, &small), CHOOSE_STORE);
	assert_int_equal(choose(COMPRESS_ZSTD, false, 5000, &large), CHOOSE_COPY);
	assert_int_equal(choose(COMPRESS_ZSTD, true, 5000, &large), CHOOSE_ZSTD);
	assert_int_equal(choose(COMPRESS_ZSTD, false, 5000, &stored), CHOOSE_ZSTD);
}

static int add_bytes(void *ctx, const void *data, size_t n)
{
	return buf_add(ctx, data, n);
}

static void stream_with(unsigned threads, size_t step, const char *data, size_t n, struct buf *ret)
{
	struct encoder *e;

	*ret = buf_init(SIZE_MAX / 2);
	assert_int_equal(encoder_new(3, threads, &e), 0);
	assert_int_equal(encoder_begin(e, n, add_bytes, ret), 0);
	for (size_t at = 0; at < n; at += step)
		assert_int_equal(encoder_feed(e, data + at, MIN(step, n - at), false), 0);
	assert_int_equal(encoder_feed(e, NULL, 0, true), 0);
	encoder_free(e);
}

/* The same frame, whatever the number of threads and the pieces that come. */
static void test_stream(void **state)
{
	size_t n = 20 * MIB + 5;
	char *data = make_bytes(n, 2), *out = malloc(n);
	struct buf first, other;

	(void)state;
	assert_non_null(out);
	for (size_t i = 0; i < n; i++)
		data[i] &= 15;
	stream_with(1, 512 * KIB, data, n, &first);
	for (unsigned threads = 1; threads <= 5; threads += 2) {
		stream_with(threads, threads * 100003, data, n, &other);
		assert_int_equal(other.len, first.len);
		assert_memory_equal(other.data, first.data, first.len);
		buf_finish(&other);
	}
	assert_int_equal(ZSTD_findFrameCompressedSize(first.data, first.len), first.len);
	assert_int_equal(ZSTD_decompress(out, n, first.data, first.len), n);
	assert_memory_equal(out, data, n);
	buf_finish(&first);
	free(out);
	free(data);
}

static void test_stream_of_another_size(void **state)
{
	struct buf b = buf_init(MIB);
	struct encoder *e;

	(void)state;
	assert_int_equal(encoder_new(3, 2, &e), 0);
	assert_int_equal(encoder_begin(e, 1000, add_bytes, &b), 0);
	assert_int_equal(encoder_feed(e, "short", 5, false), 0);
	assert_int_equal(encoder_feed(e, NULL, 0, true), -EBADMSG);
	/* and it can be used again */
	assert_int_equal(encoder_begin(e, 5, add_bytes, &b), 0);
	assert_int_equal(encoder_feed(e, "short", 5, true), 0);
	encoder_free(e);
	buf_finish(&b);
}

static void test_blocks(void **state)
{
	size_t n = 100000, cap = encode_bound(n), got, again;
	char *data = make_bytes(n, 3), *out = malloc(cap), *out2 = malloc(cap);
	struct encoder *e;

	(void)state;
	assert_true(out && out2 && cap >= ZSTD_compressBound(n));
	assert_int_equal(encoder_new(19, 0, &e), 0);
	assert_int_equal(encoder_block(e, data, n, out, &got), 0);
	assert_int_equal(encoder_block(e, "x", 1, out2, &again), 0);
	assert_int_equal(encoder_block(e, data, n, out2, &again), 0);
	assert_int_equal(got, again);
	assert_memory_equal(out, out2, got);
	assert_true(encode_bound(5 * GIB) >= ZSTD_compressBound(5 * GIB));
	encoder_free(e);
	free(out2);
	free(out);
	free(data);
}

/* ---- lists ---- */

static void test_links(void **state)
{
	const char *const templates[] = { "https://a/{sha256}", "http://b/x?{sha256}={sha256}",
					  NULL };
	char same[100] = "https://a/", *urls[] = { same, "https://c/\xc3\xa4?\"" };
	struct link old = { .urls = urls, .n_urls = 2 };
	uint8_t hash[SHA256_SIZE] = { 0xab };
	char hex[65], want[1000];
	struct buf b = buf_init(MIB);

	(void)state;
	hex_encode(hash, SHA256_SIZE, hex);
	strcat(same, hex);
	assert_int_equal(lists_begin_links(&b), 0);
	assert_int_equal(lists_add_link(&b, hash, templates, &old), 0);
	snprintf(want, sizeof(want),
		 "version = 1\n\n[urls]\n%s = [\"https://a/%s\", \"http://b/x?%s=%s\", "
		 "\"https://c/\xc3\xa4?\\\"\"]\n",
		 hex, hex, hex, hex);
	assert_string_equal(b.data, want);
	buf_finish(&b);
}

static void test_templates(void **state)
{
	char *long_url = malloc(9000);

	(void)state;
	assert_non_null(long_url);
	memset(long_url, 'a', 8999);
	memcpy(long_url, "http://h/{sha256}", 17);
	long_url[8999] = '\0';
	assert_null(lists_template_fault("https://h/{sha256}"));
	assert_null(lists_template_fault("http://h:80/{sha256}/{sha256}?q"));
	assert_non_null(lists_template_fault("https://h/"));
	assert_non_null(lists_template_fault("{sha256}"));
	assert_non_null(lists_template_fault("file:///{sha256}"));
	assert_string_equal(lists_template_fault(long_url), "is too long");
	free(long_url);
}

/* ---- new files ---- */

static void in_new_directory(char path[64])
{
	strcpy(path, "/tmp/test-pack-XXXXXX");
	assert_non_null(mkdtemp(path));
	assert_int_equal(chdir(path), 0);
}

static void expect_content(const char *path, const char *want)
{
	char got[64] = { 0 };
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0 && read(fd, got, sizeof(got) - 1) >= 0);
	close(fd);
	assert_string_equal(got, want);
}

static void publish(const char *path, const char *text)
{
	struct newfile f;

	assert_int_equal(newfile_begin(path, &f), 0);
	assert_int_equal(pwrite_full(f.fd, text, strlen(text), 0), 0);
	assert_int_equal(newfile_publish(&f), 0);
	newfile_end(&f);
}

static void test_newfile(void **state)
{
	char dir[64], path[128];
	struct newfile f;

	(void)state;
	in_new_directory(dir);
	snprintf(path, sizeof(path), "%s/f", dir);
	assert_int_equal(newfile_begin(path, &f), 0);
	assert_int_equal(pwrite_full(f.fd, "one", 3, 0), 0);
	newfile_end(&f);
	newfile_end(&f);
	assert_int_equal(access("f", F_OK), -1);
	publish(path, "two");
	expect_content("f", "two");
	publish("f", "three");
	expect_content("f", "three");
	/* what a killed process has left */
	publish(".f.new", "left");
	publish("f", "four");
	expect_content("f", "four");
	assert_int_equal(access(".f.new", F_OK), -1);
	assert_int_equal(unlink("f"), 0);
	assert_int_equal(rmdir(dir), 0);
}

static void put_file(const char *name, const char *text)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_EXCL, 0600);

	assert_int_equal(pwrite_full(fd, text, strlen(text), 0), 0);
	close(fd);
}

/* A program whose SIGXFSZ would end it packs beyond the limit of the size of files. */
static void test_file_size(void **state)
{
	const struct carton_pack_options pack = { .compress = CARTON_COMPRESS_STORE };
	const struct carton_options open = { 0 };
	struct log_seen *seen = log_watch();
	struct rlimit none, limit;
	char dir[64], hash[65];
	struct stat st;

	(void)state;
	in_new_directory(dir);
	assert_int_equal(mkdir("d", 0700), 0);
	put_file("d/carton.toml", "spec_version = 1\nmodel_name = \"m\"\n[runner]\n"
				  "runner_name = \"noop\"\n"
				  "required_framework_version = \"*\"\n"
				  "runner_compat_version = 1\n");
	put_file("d/weights", "some bytes of a model\n");
	assert_true(signal(SIGXFSZ, SIG_DFL) != SIG_ERR);
	assert_int_equal(carton_pack("d", "m", &open, &pack, hash), 0);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &none), 0);
	/* in a header, in the data, in MANIFEST, in the directory: by workers, and by this thread */
	assert_int_equal(stat("m", &st), 0);
	for (rlim_t n = 0; n < (rlim_t)st.st_size; n += 251) {
		limit = (struct rlimit){ n, none.rlim_max };
		assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
		assert_int_equal(carton_pack("d", "n", &open, &pack, hash), -EFBIG);
		assert_says(seen, "ulimit -f");
		assert_int_equal(access("n", F_OK), -1);
	}
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
	assert_int_equal(carton_pack("d", "n", &open, &pack, hash), 0);
}

static void test_newfile_refused(void **state)
{
	char dir[64];
	struct log_seen *seen = log_watch();
	struct newfile f;

	(void)state;
	in_new_directory(dir);
	assert_int_equal(newfile_begin("", &f), -EINVAL);
	assert_int_equal(newfile_begin("x/..", &f), -EINVAL);
	assert_int_equal(newfile_begin("gone/f", &f), -ENOENT);
	assert_says(seen, "cannot open its directory");
	assert_int_equal(mkdir("d", 0700), 0);
	assert_int_equal(newfile_begin("d", &f), -EISDIR);
	assert_int_equal(symlink("d/f", "l"), 0);
	assert_int_equal(newfile_begin("l", &f), -EEXIST);
	/* that came while it was written */
	assert_int_equal(newfile_begin("d/f", &f), 0);
	assert_int_equal(mkdir("d/f", 0700), 0);
	assert_int_equal(newfile_publish(&f), -EISDIR);
	newfile_end(&f);
	assert_int_equal(rmdir("d/f"), 0);
	assert_int_equal(rmdir("d"), 0);
	assert_int_equal(unlink("l"), 0);
	assert_int_equal(rmdir(dir), 0);
	carton_log_set(NULL, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_alignment),
		cmocka_unit_test(test_zip64),
		cmocka_unit_test(test_zip64_far),
		cmocka_unit_test(test_names_and_kinds),
		cmocka_unit_test(test_end_record_in_data),
		cmocka_unit_test(test_many),
		cmocka_unit_test(test_choose),
		cmocka_unit_test(test_stream),
		cmocka_unit_test(test_stream_of_another_size),
		cmocka_unit_test(test_blocks),
		cmocka_unit_test(test_links),
		cmocka_unit_test(test_templates),
		cmocka_unit_test(test_newfile),
		cmocka_unit_test(test_newfile_refused),
		cmocka_unit_test(test_file_size),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
