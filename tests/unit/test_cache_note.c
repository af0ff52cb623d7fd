/* SPDX-License-Identifier: Apache-2.0 */
/* Notes: whatever who lacks the key of the source puts in their place says nothing. Hints. */
#include "base/limits.h"
#include "cache_help.h"

#define LONGEST MAX_CACHE_VALIDATOR

static int get(struct cache *c, struct key k, const char *want)
{
	char text[LONGEST + 1];
	int r = cache_note_get(c, k.sha256, text, sizeof(text));

	if (r == 0)
		assert_string_equal(text, want);
	return r;
}

/* The path of the only note. */
static void find_note(const struct env *e, char path[PATH_MAX])
{
	struct dirent *de;
	DIR *dir;

	snprintf(path, PATH_MAX, "%s/v1/notes", e->cache);
	dir = opendir(path);
	assert_non_null(dir);
	while ((de = readdir(dir)))
		if (de->d_name[0] != '.')
			snprintf(path, PATH_MAX, "%s/v1/notes/%s", e->cache, de->d_name);
	closedir(dir);
}

static size_t load(const char *path, char *all, size_t n)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t got = read(fd, all, n);

	assert_true(fd >= 0 && got >= 0);
	close(fd);
	return (size_t)got;
}

static void store(const char *path, const char *all, size_t n)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(pwrite_full(fd, all, n, 0), 0);
	close(fd);
}

static void test_put_and_get(void **state)
{
	struct env *e = *state;
	struct cache *c = open_cache(e, 0);
	char longest[LONGEST + 2], text[8];
	struct key k = key_of(1);

	memset(longest, 'x', sizeof(longest) - 1);
	longest[LONGEST + 1] = '\0';
	assert_int_equal(get(c, k, ""), -ENOENT);
	assert_int_equal(cache_note_put(c, k.sha256, longest), -EFBIG);
	longest[LONGEST] = '\0';
	assert_int_equal(cache_note_put(c, k.sha256, longest), 0);
	assert_int_equal(get(c, k, longest), 0);
	assert_int_equal(cache_note_get(c, k.sha256, longest, LONGEST), -ERANGE);
	assert_int_equal(cache_note_put(c, k.sha256, ""), 0);
	assert_int_equal(get(c, k, ""), 0);
	assert_int_equal(cache_note_put(c, k.sha256, "seven77"), 0);
	assert_int_equal(cache_note_get(c, k.sha256, text, 8), 0);
	assert_int_equal(cache_note_get(c, k.sha256, text, 7), -ERANGE);
	assert_int_equal(entries(e, "notes"), 1);
	cache_note_drop(c, k.sha256);
	assert_int_equal(entries(e, "notes"), 0);
	assert_int_equal(get(c, k, ""), -ENOENT);
	cache_close(c);
}

/* Each bit of a note, and each length of it. */
static void test_flipped_and_cut(void **state)
{
	struct env *e = *state;
	struct cache *c = open_cache(e, 0);
	char path[PATH_MAX], good[256], bad[256];
	struct key k = key_of(1);
	size_t n;

	assert_int_equal(cache_note_put(c, k.sha256, "a text"), 0);
	find_note(e, path);
	n = load(path, good, sizeof(good));
	assert_int_equal(n, 64 + strlen("a text"));
	for (size_t bit = 0; bit < 8 * n; bit++) {
		memcpy(bad, good, n);
		bad[bit / 8] ^= (char)(1 << bit % 8);
		store(path, bad, n);
		assert_int_equal(get(c, k, ""), -ENOENT);
	}
	for (size_t i = 0; i < n; i++) {
		store(path, good, i);
		assert_int_equal(get(c, k, ""), -ENOENT);
	}
	good[n] = 'x';
	store(path, good, n + 1);
	assert_int_equal(get(c, k, ""), -ENOENT);
	memset(bad, 0, sizeof(bad));
	store(path, bad, n);
	assert_int_equal(get(c, k, ""), -ENOENT);
	store(path, good, n);
	assert_int_equal(get(c, k, "a text"), 0);
	cache_close(c);
}

/*
 * What a note said under its key in an older version, which anybody could write; a copy under
 * another key; and one of another source, under this one's name.
 */
static void test_forged(void **state)
{
	struct env *e = *state;
	struct cache *c = open_cache(e, 0), *d = open_cache(e, 0);
	struct key k = key_of(1), l = key_of(2);
	char path[PATH_MAX], theirs[PATH_MAX], all[256];
	size_t n;

	store(inside(e, "notes", k, "", path), "evil", 4);
	assert_int_equal(get(c, k, ""), -ENOENT);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(cache_note_put(c, l.sha256, "of l"), 0);
	find_note(e, theirs);
	n = load(theirs, all, sizeof(all));
	assert_int_equal(unlink(theirs), 0);
	assert_int_equal(cache_note_put(c, k.sha256, "of k"), 0);
	find_note(e, path);
	store(path, all, n);
	assert_int_equal(get(c, k, ""), -ENOENT);
	cache_note_drop(c, k.sha256);
	/* another source: its note of the same key is none of ours, and ours stays */
	use_key_of(d, 2);
	assert_int_equal(cache_note_put(d, k.sha256, "evil"), 0);
	assert_int_equal(get(c, k, ""), -ENOENT);
	find_note(e, theirs);
	n = load(theirs, all, sizeof(all));
	assert_int_equal(unlink(theirs), 0);
	assert_int_equal(cache_note_put(c, k.sha256, "good"), 0);
	find_note(e, path);
	store(path, all, n);
	assert_int_equal(get(c, k, ""), -ENOENT);
	assert_int_equal(cache_note_put(c, k.sha256, "good"), 0);
	cache_note_drop(d, k.sha256);
	assert_int_equal(get(c, k, "good"), 0);
	cache_close(d);
	cache_close(c);
}

/* A hint is of all sources, and needs no key. */
static void test_hint(void **state)
{
	struct env *e = *state;
	struct cache *c = open_cache(e, 0), *d;
	struct key k = key_of(1);
	char text[8];

	assert_int_equal(cache_hint_put(c, k.sha256, "hint"), 0);
	assert_int_equal(cache_open(e->cache, 0, &d), 0);
	assert_int_equal(cache_hint_get(d, k.sha256, text, sizeof(text)), 0);
	assert_string_equal(text, "hint");
	assert_int_equal(cache_hint_get(d, k.sha256, text, 4), -ERANGE);
	assert_int_equal(get(c, k, ""), -ENOENT);
	cache_hint_drop(d, k.sha256);
	assert_int_equal(cache_hint_get(c, k.sha256, text, sizeof(text)), -ENOENT);
	cache_close(d);
	cache_close(c);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, env_setup, env_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_put_and_get),
		TEST(test_flipped_and_cut),
		TEST(test_forged),
		TEST(test_hint),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
