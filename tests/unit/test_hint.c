/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a container may have an entry, before it is opened: never false for one that it has. */
#include "zip_help.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "archive/container.h"

static bool may_have(const struct buf *data, const char *name)
{
	int fd = memfd_create("hint", MFD_CLOEXEC);
	struct stat st;
	bool r;

	assert_true(fd >= 0);
	assert_int_equal(pwrite_full(fd, data->data, data->len, 0), 0);
	assert_int_equal(fstat(fd, &st), 0);
	r = container_may_have(fd, &st, name);
	close(fd);
	return r;
}

static void test_names(void **state)
{
	const struct zip_file with[] = { { .name = "MANIFEST" }, { .name = "LINKS" } },
			      dots[] = { { .name = "./" }, { .name = "./LINKS" } },
			      without[] = { { .name = "LINKS2" },
					    { .name = "model/LINKS" },
					    { .name = "d/LINKS" } };
	struct zip_made z = zip_make(with, 2, (struct zip_end){ .comment = "a comment" });

	(void)state;
	assert_true(may_have(&z.out, "LINKS"));
	assert_true(may_have(&z.out, "MANIFEST"));
	buf_finish(&z.out);
	z = zip_make(dots, 2, (struct zip_end){ 0 });
	assert_true(may_have(&z.out, "LINKS"));
	buf_finish(&z.out);
	z = zip_make(without, 3, (struct zip_end){ .zip64 = true });
	assert_false(may_have(&z.out, "LINKS"));
	buf_finish(&z.out);
	z = zip_make(NULL, 0, (struct zip_end){ 0 });
	assert_false(may_have(&z.out, "LINKS"));
	buf_finish(&z.out);
}

/*
 * A directory of several blocks, before the longest comment: the header lies across the place where
 * a block begins.
 */
static void test_places(void **state)
{
	enum { FILES = 13, EXTRA = 60000, BLOCKS = 3 * 256 * 1024 };
	static char comment[UINT16_MAX + 1], extra[EXTRA + 300];
	struct zip_file files[FILES] = { { .name = "LINKS" } };
	char names[FILES][8];
	size_t before = 0, behind = 0;

	(void)state;
	memset(comment, 'c', sizeof(comment) - 1);
	for (size_t i = 1; i < FILES; i++) {
		snprintf(names[i], sizeof(names[i]), "f%02zu", i);
		files[i] = (struct zip_file){ .name = names[i],
					      .extra = extra,
					      .extra_len = EXTRA };
	}
	for (size_t n = 0; n < 300; n++) {
		struct zip_made z;

		files[FILES - 1].extra_len = EXTRA + 300 - n;
		z = zip_make(files, FILES, (struct zip_end){ .comment = comment });
		before += z.out.len - z.central[0] > BLOCKS;
		behind += z.out.len - z.central[0] < BLOCKS - 50;
		assert_true(may_have(&z.out, "LINKS"));
		assert_false(may_have(&z.out, "LINKZ"));
		buf_finish(&z.out);
	}
	assert_true(before > 0 && behind > 0);
}

static void test_directory(void **state)
{
	char path[] = "/tmp/hint-XXXXXX";
	struct stat st;
	int fd, file;

	(void)state;
	assert_non_null(mkdtemp(path));
	fd = open(path, O_RDONLY | O_DIRECTORY);
	assert_true(fd >= 0 && fstat(fd, &st) == 0);
	assert_false(container_may_have(fd, &st, "LINKS"));
	file = openat(fd, "LINKS", O_CREAT | O_WRONLY, 0600);
	assert_true(file >= 0);
	assert_true(container_may_have(fd, &st, "LINKS"));
	close(file);
	unlinkat(fd, "LINKS", 0);
	close(fd);
	rmdir(path);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_places),
		cmocka_unit_test(test_directory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
