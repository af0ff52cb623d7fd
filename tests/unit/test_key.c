/* SPDX-License-Identifier: Apache-2.0 */
/* The user's key: made once, whoever is first, and none that others could have read or made. */
#include "cache/key.h"
#include "cache_help.h"

#define TEXT_SIZE (2 * KEY_SIZE + 1)

static int read_at(const char *file, uint8_t ret[KEY_SIZE])
{
	char why[OWN_WHY] = "";
	struct key_file k;
	int r = key_file_find(file, &k, why);

	if (r == 0)
		r = key_file_read(&k, ret, why);
	key_file_finish(&k);
	assert_int_equal(r < 0, *why != '\0');
	return r;
}

static const char *file_of(const struct env *e, char path[PATH_MAX])
{
	snprintf(path, PATH_MAX, "%s/cache.key", e->dir);
	return path;
}

/* Only names of keys are left in the directory. */
static void expect_alone(const struct env *e)
{
	struct dirent *de;
	DIR *dir = opendir(e->dir);

	assert_non_null(dir);
	while ((de = readdir(dir)))
		assert_true(strcmp(de->d_name, ".") == 0 || strcmp(de->d_name, "..") == 0 ||
			    strcmp(de->d_name, "cache.key") == 0);
	closedir(dir);
}

/* Whatever the umask is, only the owner can read it, and it stays what it is. */
static void test_made(void **state)
{
	static const mode_t masks[] = { 0, 022, 0277, 0777 };
	struct env *e = *state;
	uint8_t key[KEY_SIZE], again[KEY_SIZE], last[KEY_SIZE] = { 0 };
	char path[PATH_MAX];
	struct stat st;

	file_of(e, path);
	for (size_t i = 0; i < ARRAY_SIZE(masks); i++) {
		mode_t old = umask(masks[i]);

		assert_int_equal(read_at(path, key), 0);
		umask(old);
		assert_int_equal(lstat(path, &st), 0);
		assert_int_equal(st.st_mode, S_IFREG | 0600);
		assert_int_equal(st.st_size, TEXT_SIZE);
		assert_int_equal(read_at(path, again), 0);
		assert_memory_equal(key, again, KEY_SIZE);
		assert_memory_not_equal(key, last, KEY_SIZE);
		memcpy(last, key, KEY_SIZE);
		expect_alone(e);
		assert_int_equal(unlink(path), 0);
	}
}

/* Others could have read it or made it, a part of it is lost, or it is something else: it stays. */
static void test_refused(void **state)
{
	enum { OWNER, OTHERS, GROUP, CUT, LONGER, NO_HEX, NO_LINE, FIFO, LINK, DIRECTORY, KINDS };
	struct env *e = *state;
	uint8_t key[KEY_SIZE];
	char path[PATH_MAX], other[PATH_MAX];
	struct stat st;

	file_of(e, path);
	snprintf(other, sizeof(other), "%s/other", e->dir);
	/* only root can give it to another user */
	for (int kind = geteuid() == 0 ? OWNER : OTHERS; kind < KINDS; kind++) {
		int fd;

		assert_int_equal(read_at(path, key), 0);
		fd = open(path, O_RDWR | O_CLOEXEC);
		assert_true(fd >= 0);
		if (kind == OWNER)
			assert_int_equal(fchown(fd, 4711, 4711), 0);
		else if (kind == OTHERS || kind == GROUP)
			assert_int_equal(fchmod(fd, kind == GROUP ? 0640 : 0604), 0);
		else if (kind == CUT || kind == LONGER)
			assert_int_equal(ftruncate(fd, TEXT_SIZE + (kind == CUT ? -1 : 1)), 0);
		else if (kind == NO_HEX || kind == NO_LINE)
			assert_int_equal(
				pwrite_full(fd, "g", 1, kind == NO_HEX ? 7 : TEXT_SIZE - 1), 0);
		close(fd);
		if (kind == FIFO)
			assert_true(unlink(path) == 0 && mkfifo(path, 0600) == 0);
		else if (kind == LINK)
			assert_true(rename(path, other) == 0 && symlink(other, path) == 0);
		else if (kind == DIRECTORY)
			assert_true(unlink(path) == 0 && mkdir(path, 0700) == 0);
		assert_int_equal(read_at(path, key), kind <= GROUP ? -EPERM :
						     kind == LINK  ? -ELOOP :
								     -EBADMSG);
		assert_int_equal(lstat(path, &st), 0);
		assert_int_equal(kind == DIRECTORY ? rmdir(path) : unlink(path), 0);
	}
	unlink(other);
	expect_alone(e);
}

/* root's key for a daemon that becomes another user is the one of that user's directory. */
static void test_owner_of_directory(void **state)
{
	struct env *e = *state;
	uint8_t key[KEY_SIZE];
	char path[PATH_MAX];
	struct stat st;

	if (geteuid() != 0)
		return;
	assert_int_equal(chown(e->dir, 4711, 4711), 0);
	assert_int_equal(read_at(file_of(e, path), key), 0);
	assert_int_equal(lstat(path, &st), 0);
	assert_int_equal(st.st_uid, 4711);
	assert_int_equal(st.st_mode, S_IFREG | 0600);
	assert_int_equal(read_at(path, key), 0);
	assert_int_equal(chown(path, 4712, 4711), 0);
	assert_int_equal(read_at(path, key), -EPERM);
}

static void test_where(void **state)
{
	struct env *e = *state;
	char path[PATH_MAX], dir[PATH_MAX], why[OWN_WHY];
	struct key_file k;

	setenv("XDG_STATE_HOME", e->dir, 1);
	assert_int_equal(key_file_find(NULL, &k, why), 0);
	snprintf(path, sizeof(path), "%s/cartonfs/cache.key", e->dir);
	assert_string_equal(k.path, path);
	snprintf(dir, sizeof(dir), "%.4000s/cartonfs", e->dir);
	assert_true(key_file_is_below(&k, dir) && key_file_is_below(&k, e->dir));
	assert_true(key_file_is_below(&k, "/"));
	snprintf(path, sizeof(path), "%.4000s/./../cartonfs/", dir);
	assert_true(key_file_is_below(&k, path));
	/* a link to a directory is that directory, and a name that begins so is another */
	snprintf(path, sizeof(path), "%s/cart", e->dir);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_false(key_file_is_below(&k, path));
	assert_int_equal(rmdir(path), 0);
	assert_int_equal(symlink(dir, path), 0);
	assert_true(key_file_is_below(&k, path));
	assert_false(key_file_is_below(&k, "/nothing"));
	key_file_finish(&k);
	/* the path says nothing of links in it */
	snprintf(path, sizeof(path), "%s/cart/x.key", e->dir);
	assert_int_equal(key_file_find(path, &k, why), 0);
	snprintf(path, sizeof(path), "%.4000s/x.key", dir);
	assert_string_equal(k.path, path);
	key_file_finish(&k);
	/* a directory that the user names is not made */
	snprintf(path, sizeof(path), "%s/none/x.key", e->dir);
	assert_int_equal(key_file_find(path, &k, why), -ENOENT);
	assert_string_equal(k.path, path);
	key_file_finish(&k);
	unsetenv("XDG_STATE_HOME");
}

/* Killed at any system call: there is a whole key, or none, and a later process goes on. */
static int read_once(const struct env *e)
{
	uint8_t key[KEY_SIZE];
	char path[PATH_MAX];

	return read_at(file_of(e, path), key) != 0;
}

static void test_killed(void **state)
{
	struct env *e = *state;
	uint8_t key[KEY_SIZE], again[KEY_SIZE];
	char path[PATH_MAX], command[PATH_MAX + 20];
	pid_t pid;
	int n = 0;

	file_of(e, path);
	for (;; n++) {
		bool made;

		unlink(path);
		if (child_stop_at(read_once, e, n, &pid) >= 0)
			break;
		kill(pid, SIGKILL);
		wait_child(pid);
		made = access(path, F_OK) == 0;
		assert_int_equal(read_at(path, key), 0);
		assert_int_equal(read_at(path, again), 0);
		assert_memory_equal(key, again, KEY_SIZE);
		assert_true(made || n < 60);
	}
	assert_true(n > 20);
	snprintf(command, sizeof(command), "rm -f '%s'/.key.*", e->dir);
	assert_int_equal(system(command), 0);
	expect_alone(e);
}

/* Many processes are the first at once: all have one key. */
static void test_race(void **state)
{
	struct env *e = *state;
	uint8_t key[KEY_SIZE], theirs[KEY_SIZE];
	char path[PATH_MAX];
	int fds[2];

	file_of(e, path);
	for (int round = 0; round < 20; round++) {
		pid_t pids[8];

		unlink(path);
		assert_int_equal(pipe(fds), 0);
		for (int i = 0; i < 8; i++) {
			pids[i] = fork();
			assert_true(pids[i] >= 0);
			if (pids[i] == 0) {
				if (read_at(path, theirs) < 0)
					_exit(1);
				_exit(write(fds[1], theirs, KEY_SIZE) != KEY_SIZE);
			}
		}
		for (int i = 0; i < 8; i++)
			assert_int_equal(wait_child(pids[i]), 0);
		assert_int_equal(read_at(path, key), 0);
		for (int i = 0; i < 8; i++) {
			assert_int_equal(read(fds[0], theirs, KEY_SIZE), KEY_SIZE);
			assert_memory_equal(key, theirs, KEY_SIZE);
		}
		close(fds[0]);
		close(fds[1]);
		expect_alone(e);
	}
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, env_setup, env_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_made),  TEST(test_refused), TEST(test_owner_of_directory),
		TEST(test_where), TEST(test_killed),  TEST(test_race),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
