/* SPDX-License-Identifier: Apache-2.0 */
/* An unpacked directory: what it lists, what it refuses, and that nothing leads out of it. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "archive/dir.h"
#include "zip_help.h"

/* A directory of the test's own, and the container over it. */
struct env {
	char path[64];
	int fd;
	struct container *c;
};

static int setup(void **state)
{
	struct env *e = must(calloc(1, sizeof(*e)));

	snprintf(e->path, sizeof(e->path), "/tmp/dir-test-XXXXXX");
	if (!mkdtemp(e->path)) {
		free(e);
		return -1;
	}
	e->fd = open(e->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	*state = e;
	return e->fd < 0 ? -1 : 0;
}

static int teardown(void **state)
{
	struct env *e = *state;
	char command[100];
	int r;

	container_close(e->c);
	close(e->fd);
	snprintf(command, sizeof(command), "rm -rf '%s'", e->path);
	r = system(command);
	free(e);
	carton_log_set(NULL, NULL);
	return r;
}

static void put_file(struct env *e, const char *name, const char *text, mode_t mode)
{
	int fd = openat(e->fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(pwrite_full(fd, text, strlen(text), 0), 0);
	assert_int_equal(fchmod(fd, mode), 0);
	close(fd);
}

static int open_dir(struct env *e)
{
	return dir_open(dup(e->fd), NULL, NULL, &e->c);
}

static int read_entry(struct env *e, const char *name, struct buf *ret)
{
	const struct entry *found = container_find(e->c, name);

	assert_non_null(found);
	return container_read(e->c, found, 1000, ret);
}

static void test_lists(void **state)
{
	struct env *e = *state;
	const struct entry *found;
	struct buf got = { 0 };

	put_file(e, "z", "zed", 0644);
	put_file(e, "run", "", 06755);
	assert_int_equal(mkdirat(e->fd, "a", 0755), 0);
	assert_int_equal(mkdirat(e->fd, "a/b", 0755), 0);
	assert_int_equal(mkdirat(e->fd, "none", 0755), 0);
	put_file(e, "a/b/deep", "deep down", 0644);
	put_file(e, "a b", "space", 0644);
	assert_int_equal(symlinkat("../z", e->fd, "a/link"), 0);
	assert_int_equal(open_dir(e), 0);
	assert_int_equal(e->c->n_entries, 8);
	for (size_t i = 1; i < 8; i++)
		assert_true(path_compare(e->c->entries[i - 1].name, e->c->entries[i].name) < 0);
	found = container_find(e->c, "a/b/deep");
	assert_non_null(found);
	assert_int_equal(found->size, 9);
	assert_int_equal(found->kind, ENTRY_FILE);
	assert_false(found->executable || found->has_crc);
	assert_true(found->mtime > 1000000000);
	assert_true(container_find(e->c, "run")->executable);
	assert_int_equal(container_find(e->c, "none")->kind, ENTRY_DIR);
	assert_int_equal(read_entry(e, "a/b/deep", &got), 0);
	assert_string_equal(got.data, "deep down");
	buf_finish(&got);
	assert_int_equal(read_entry(e, "run", &got), 0);
	assert_int_equal(got.len, 0);
	buf_finish(&got);
	found = container_find(e->c, "a/link");
	assert_int_equal(found->kind, ENTRY_SYMLINK);
	assert_int_equal(container_readlink(e->c, found, &got), 0);
	assert_string_equal(got.data, "../z");
	buf_finish(&got);
}

static void test_empty(void **state)
{
	struct env *e = *state;

	assert_int_equal(open_dir(e), 0);
	assert_int_equal(e->c->n_entries, 0);
}

static void test_refused(void **state)
{
	static const char *const bad[] = { "back\\slash", "new\nline", "c:x", "\xff", "del\x7f" };
	struct env *e = *state;
	struct log_seen *seen = log_watch();

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		put_file(e, bad[i], "x", 0644);
		seen->n = 0;
		assert_int_equal(open_dir(e), -EBADMSG);
		assert_int_equal(seen->n, 1);
		assert_null(e->c);
		assert_int_equal(unlinkat(e->fd, bad[i], 0), 0);
	}
	assert_int_equal(mkfifoat(e->fd, "pipe", 0600), 0);
	assert_int_equal(open_dir(e), -EBADMSG);
	assert_string_equal(seen->subject, "pipe");
	assert_says(seen, "fifo");
	assert_int_equal(unlinkat(e->fd, "pipe", 0), 0);
	assert_int_equal(open_dir(e), 0);
}

static void test_not_a_directory(void **state)
{
	struct env *e = *state;

	put_file(e, "file", "x", 0644);
	assert_int_equal(dir_open(openat(e->fd, "file", O_RDONLY | O_CLOEXEC), NULL, NULL, &e->c),
			 -ENOTDIR);
	assert_int_equal(dir_open(-1, NULL, NULL, &e->c), -EBADF);
	assert_null(e->c);
}

/* A file removed or replaced by a link to the outside after the listing gives EIO. */
static void test_no_way_out(void **state)
{
	struct env *e = *state;
	struct log_seen *seen = log_watch();
	struct buf got = { 0 };

	put_file(e, "file", "12345", 0644);
	assert_int_equal(mkdirat(e->fd, "dir", 0755), 0);
	put_file(e, "dir/file", "12345", 0644);
	assert_int_equal(mkdirat(e->fd, "other", 0755), 0);
	put_file(e, "other/file", "wrong", 0644);
	assert_int_equal(open_dir(e), 0);

	assert_int_equal(unlinkat(e->fd, "file", 0), 0);
	assert_int_equal(read_entry(e, "file", &got), -EIO);
	assert_int_equal(symlinkat("other/file", e->fd, "file"), 0);
	assert_int_equal(read_entry(e, "file", &got), -EIO);
	assert_int_equal(renameat(e->fd, "dir", e->fd, "gone"), 0);
	assert_int_equal(symlinkat("other", e->fd, "dir"), 0);
	assert_int_equal(read_entry(e, "dir/file", &got), -EIO);
	assert_int_equal(seen->n, 3);
	assert_says(seen, "cannot open");
	buf_finish(&got);
}

/*
 * In place of a file, a fifo keeps nobody waiting, and neither it nor a directory passes for one.
 */
static void test_other_kind_later(void **state)
{
	struct env *e = *state;
	struct log_seen *seen = log_watch();
	struct buf got = { 0 };
	struct stat st;
	int fd;

	/* as many bytes as the directory and the fifo will have */
	assert_int_equal(mkdirat(e->fd, "dir", 0700), 0);
	assert_int_equal(fstatat(e->fd, "dir", &st, 0), 0);
	put_file(e, "file", "", 0644);
	fd = openat(e->fd, "file", O_WRONLY | O_CLOEXEC);
	assert_int_equal(ftruncate(fd, st.st_size), 0);
	close(fd);
	put_file(e, "empty", "", 0644);
	assert_int_equal(open_dir(e), 0);
	assert_int_equal(unlinkat(e->fd, "file", 0), 0);
	assert_int_equal(renameat(e->fd, "dir", e->fd, "file"), 0);
	assert_int_equal(container_read(e->c, container_find(e->c, "file"), MIB, &got), -EIO);
	assert_says(seen, "no longer a regular file");
	buf_finish(&got);
	assert_int_equal(unlinkat(e->fd, "empty", 0), 0);
	assert_int_equal(mkfifoat(e->fd, "empty", 0600), 0);
	assert_int_equal(read_entry(e, "empty", &got), -EIO);
	buf_finish(&got);
}

static void test_size_changes(void **state)
{
	struct env *e = *state;
	struct log_seen *seen = log_watch();
	struct buf got = { 0 };

	put_file(e, "file", "12345", 0644);
	assert_int_equal(open_dir(e), 0);
	put_file(e, "file", "123456", 0644);
	assert_int_equal(read_entry(e, "file", &got), -EBADMSG);
	assert_says(seen, "had 5 bytes when listed, has 6 now");
	put_file(e, "file", "1234", 0644);
	assert_int_equal(read_entry(e, "file", &got), -EBADMSG);
	put_file(e, "file", "abcde", 0644);
	assert_int_equal(read_entry(e, "file", &got), 0);
	buf_finish(&got);
}

/* Deeper than a path may be: refused, not listed for ever. */
static void test_deep(void **state)
{
	struct env *e = *state;
	char name[MAX_COMPONENT + 1];
	int fd = dup(e->fd), next;
	struct log_seen *seen = log_watch();

	memset(name, 'd', MAX_COMPONENT);
	name[MAX_COMPONENT] = '\0';
	for (size_t i = 0; i < 16; i++) {
		assert_int_equal(mkdirat(fd, name, 0700), 0);
		next = openat(fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		assert_true(next >= 0);
		close(fd);
		fd = next;
	}
	/* 16 * 255 + 15 slashes are MAX_PATH_LEN */
	assert_int_equal(open_dir(e), 0);
	assert_int_equal(e->c->n_entries, 16);
	assert_int_equal(e->c->entries[15].name_len, MAX_PATH_LEN);
	assert_int_equal(mkdirat(fd, "x", 0700), 0);
	container_close(e->c);
	e->c = NULL;
	assert_int_equal(open_dir(e), -EBADMSG);
	assert_says(seen, "longer than 4095 bytes");
	close(fd);
}

static void test_link_target(void **state)
{
	struct env *e = *state;
	struct buf got = { 0 };
	char target[MAX_PATH_LEN + 1];

	memset(target, 't', MAX_PATH_LEN);
	target[MAX_PATH_LEN] = '\0';
	assert_int_equal(symlinkat(target, e->fd, "link"), 0);
	put_file(e, "file", "x", 0644);
	assert_int_equal(open_dir(e), 0);
	assert_int_equal(container_readlink(e->c, container_find(e->c, "link"), &got), 0);
	assert_string_equal(got.data, target);
	buf_finish(&got);
	assert_true(container_readlink(e->c, container_find(e->c, "file"), &got) < 0);
	assert_int_equal(unlinkat(e->fd, "link", 0), 0);
	assert_int_equal(container_readlink(e->c, container_find(e->c, "link"), &got), -ENOENT);
	buf_finish(&got);
}

static int open_by(struct env *e, const struct dir_rules *rules)
{
	container_close(e->c);
	e->c = NULL;
	return dir_open(dup(e->fd), rules, NULL, &e->c);
}

/* Symlinks that are followed end at the root, at the listing and at each open. */
static void test_followed(void **state)
{
	const struct dir_rules beneath = { .links = DIR_LINKS_BENEATH, .below = "snapshot/1" };
	const struct dir_rules anywhere = { .links = DIR_LINKS_ANYWHERE };
	struct env *e = *state;
	struct log_seen *seen = log_watch();
	struct buf got = { 0 };

	assert_int_equal(mkdirat(e->fd, "blobs", 0755), 0);
	put_file(e, "blobs/a", "12345", 0644);
	assert_int_equal(mkdirat(e->fd, "snapshot", 0755), 0);
	assert_int_equal(mkdirat(e->fd, "snapshot/1", 0755), 0);
	assert_int_equal(symlinkat("../../blobs/a", e->fd, "snapshot/1/a"), 0);
	put_file(e, "snapshot/1/carton.toml", "", 0644);
	assert_int_equal(open_by(e, &beneath), 0);
	assert_int_equal(e->c->n_entries, 2);
	assert_non_null(container_find(e->c, "carton.toml"));
	assert_int_equal(container_find(e->c, "model/a")->size, 5);
	assert_int_equal(read_entry(e, "model/a", &got), 0);
	assert_string_equal(got.data, "12345");
	buf_finish(&got);
	/* it is made to lead out, to a file of the same size */
	assert_int_equal(unlinkat(e->fd, "snapshot/1/a", 0), 0);
	assert_int_equal(symlinkat("/proc/version", e->fd, "snapshot/1/a"), 0);
	assert_int_equal(read_entry(e, "model/a", &got), -EIO);
	assert_int_equal(open_by(e, &beneath), -EBADMSG);
	assert_says(seen, "--dereference");
	/* or to what never ends, or to another file */
	assert_int_equal(unlinkat(e->fd, "snapshot/1/a", 0), 0);
	assert_int_equal(symlinkat("../../blobs/a", e->fd, "snapshot/1/a"), 0);
	assert_int_equal(open_by(e, &anywhere), 0);
	assert_int_equal(unlinkat(e->fd, "snapshot/1/a", 0), 0);
	assert_int_equal(symlinkat("/dev/zero", e->fd, "snapshot/1/a"), 0);
	assert_int_equal(read_entry(e, "model/snapshot/1/a", &got), -EIO);
	put_file(e, "blobs/b", "123456", 0644);
	assert_int_equal(unlinkat(e->fd, "snapshot/1/a", 0), 0);
	assert_int_equal(symlinkat("../../blobs/b", e->fd, "snapshot/1/a"), 0);
	assert_int_equal(read_entry(e, "model/snapshot/1/a", &got), -EBADMSG);
	buf_finish(&got);
}

int main(void)
{
#define TEST(t) cmocka_unit_test_setup_teardown(t, setup, teardown)
	static const struct CMUnitTest tests[] = {
		TEST(test_lists),	    TEST(test_empty),	   TEST(test_refused),
		TEST(test_not_a_directory), TEST(test_no_way_out), TEST(test_other_kind_later),
		TEST(test_size_changes),    TEST(test_deep),	   TEST(test_followed),
		TEST(test_link_target),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
