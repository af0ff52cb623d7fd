/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Seals in the cache: whatever a disk, a user or another cache puts in their place does not open.
 */
#include "base/hasher.h"
#include "base/limits.h"
#include "cache_help.h"

#define SIZE (MIN_SEALED + 1)
#define N_TAGS (SIZE / TAG_BLOCK + 1)

typedef uint8_t tags_t[N_TAGS][TAG_SIZE];

static void make_tags(struct key k, tags_t tags)
{
	fill_bytes(k, (char *)tags, 5, sizeof(tags_t));
}

static int put(struct cache *c, struct key k)
{
	tags_t tags;

	make_tags(k, tags);
	return cache_seal_put(c, k.sha256, SIZE, tags);
}

static int check(struct cache *c, struct key k)
{
	char hex[HEX_SIZE];
	uint8_t name[32];

	assert_int_equal(cache_seal_name(c, k.sha256, hex), 0);
	assert_true(hex_decode(hex, 32, name));
	return cache_seal_check(c, name);
}

/* 0: those that were put; or why not. */
static int get(struct cache *c, struct key k, uint64_t size)
{
	uint8_t(*tags)[TAG_SIZE] = NULL;
	int r = cache_seal_get(c, k.sha256, size, &tags);
	tags_t want;

	make_tags(k, want);
	if (r == 0)
		assert_memory_equal(tags, want, sizeof(want));
	else
		assert_null(tags);
	free(tags);
	return r;
}

/* Reads the file of a seal, or writes `n` bytes in its place. */
static size_t load(const struct env *e, const struct cache *c, struct key k, uint8_t all[4096])
{
	char path[PATH_MAX];
	int fd = open(seal_of(e, c, k, path), O_RDONLY | O_CLOEXEC);
	ssize_t n = read(fd, all, 4096);

	assert_true(n > 0);
	close(fd);
	return (size_t)n;
}

static void store(const struct env *e, const struct cache *c, struct key k, const uint8_t *all,
		  size_t n)
{
	char path[PATH_MAX];
	int fd = open(seal_of(e, c, k, path), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(pwrite_full(fd, all, n, 0), 0);
	close(fd);
}

static bool is_there(const struct env *e, const struct cache *c, struct key k)
{
	char path[PATH_MAX];
	struct stat st;

	return lstat(seal_of(e, c, k, path), &st) == 0;
}

static void test_put_and_get(void **state)
{
	struct env *e = *state;
	struct cache *c = open_cache(e, 0), *later;
	struct key k = key_of(1);
	uint8_t all[4096];
	struct stat st;
	char path[PATH_MAX];
	tags_t tags;

	assert_int_equal(get(c, k, SIZE), -ENOENT);
	assert_int_equal(put(c, k), 0);
	assert_int_equal(get(c, k, SIZE), 0);
	assert_int_equal(put(c, k), 0);
	assert_int_equal(check(c, k), 0);
	assert_int_equal(check(c, key_of(2)), -ENOENT);
	assert_int_equal(lstat(seal_of(e, c, k, path), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	/* tags stay secret on disk */
	make_tags(k, tags);
	assert_null(memmem(all, load(e, c, k, all), tags, TAG_SIZE));
	later = open_cache(e, 0);
	assert_int_equal(get(later, k, SIZE), 0);
	cache_close(later);
	/* of another size it is none of this object */
	assert_int_equal(get(c, k, SIZE + 1), -ENOENT);
	assert_false(is_there(e, c, k));
	assert_int_equal(put(c, k), 0);
	cache_seal_drop(c, k.sha256);
	assert_int_equal(get(c, k, SIZE), -ENOENT);
	assert_int_equal(cache_seal_put(c, k.sha256, MIN_SEALED - 1, tags), -EINVAL);
	assert_int_equal(cache_seal_put(c, k.sha256, MAX_SEALED + 1, tags), -EINVAL);
	assert_int_equal(get(c, k, MIN_SEALED - 1), -ENOENT);
	assert_int_equal(get(c, k, MAX_SEALED + 1), -ENOENT);
	assert_int_equal(entries(e, "tmp"), 0);
	cache_close(c);
}

static void test_flipped_and_cut(void **state)
{
	struct env *e = *state;
	struct cache *c = open_cache(e, 0);
	struct key k = key_of(1);
	uint8_t good[4096], bad[4096];
	size_t n;

	assert_int_equal(put(c, k), 0);
	n = load(e, c, k, good);
	for (size_t at = 0; at < n; at++) {
		memcpy(bad, good, n);
		bad[at] ^= (uint8_t)(1 << at % 8);
		store(e, c, k, bad, n);
		/* who has the key needs no sha256 of the file, which is at its end */
		if (at % 2 && at < n - SHA256_SIZE)
			assert_int_equal(get(c, k, SIZE), -ENOENT);
		else
			assert_int_equal(check(c, k), -EBADMSG);
		assert_false(is_there(e, c, k));
		store(e, c, k, good, at);
		assert_int_equal(get(c, k, SIZE), -ENOENT);
		assert_false(is_there(e, c, k));
	}
	memset(good + n, 0, 1);
	store(e, c, k, good, n + 1);
	assert_int_equal(get(c, k, SIZE), -ENOENT);
	store(e, c, k, good, n);
	assert_int_equal(get(c, k, SIZE), 0);
	cache_close(c);
}

/* A seal of another object, and one of another source. */
static void test_swapped(void **state)
{
	struct env *e = *state;
	struct cache *c = open_cache(e, 0), *d;
	struct key k = key_of(1), l = key_of(2);
	uint8_t all[4096];
	size_t n;

	assert_int_equal(put(c, k), 0);
	assert_int_equal(put(c, l), 0);
	n = load(e, c, k, all);
	store(e, c, l, all, n);
	assert_int_equal(get(c, l, SIZE), -ENOENT);
	/* also when its name in the head is changed */
	memcpy(all + 16, l.sha256, 32);
	store(e, c, l, all, n);
	assert_int_equal(get(c, l, SIZE), -ENOENT);
	assert_int_equal(get(c, k, SIZE), 0);
	d = open_cache(e, 0);
	use_key_of(d, 2);
	store(e, d, k, all, load(e, c, k, all));
	assert_int_equal(get(d, k, SIZE), -ENOENT);
	assert_int_equal(put(d, k), 0);
	assert_int_equal(get(d, k, SIZE), 0);
	cache_close(d);
	cache_close(c);
}

/* Two sources with the same file: neither finds, replaces nor drops the other's seal. */
static void test_two_sources(void **state)
{
	struct env *e = *state;
	struct cache *c = open_cache(e, 0), *d = open_cache(e, 0);
	uint8_t key[KEY_SIZE], other[KEY_SIZE];
	struct key k = key_of(1);

	use_key_of(d, 2);
	assert_int_equal(put(c, k), 0);
	assert_int_equal(get(d, k, SIZE), -ENOENT);
	cache_seal_drop(d, k.sha256);
	assert_int_equal(put(d, k), 0);
	assert_int_equal(entries(e, "seals"), 2);
	cache_seal_drop(d, k.sha256);
	assert_int_equal(get(c, k, SIZE), 0);
	/* nor does the key of one's tags say that of the other's */
	assert_int_equal(cache_tag_key(c, key), 0);
	assert_int_equal(cache_tag_key(d, other), 0);
	assert_memory_not_equal(key, other, KEY_SIZE);
	cache_close(d);
	cache_close(c);
}

#define PURPOSES 3

#define OF_SIZE (2 * SHA256_SIZE)

static void macs(const struct cache *c, const uint8_t of[2 * SHA256_SIZE],
		 uint8_t ret[PURPOSES][SHA256_SIZE])
{
	static const char *const purposes[PURPOSES] = { "seals of chunks", "notes", "tags" };

	for (size_t i = 0; i < PURPOSES; i++)
		assert_int_equal(cache_mac(c, purposes[i], of, OF_SIZE, ret[i]), 0);
}

/*
 * A MAC is of its purpose, of both hashes in their order, and of this source: a copy under any
 * other name says nothing.
 */
static void test_mac(void **state)
{
	struct env *e = *state;
	struct cache *c = open_cache(e, 0), *d;
	uint8_t of[2 * SHA256_SIZE], all[6][PURPOSES][SHA256_SIZE], again[PURPOSES][SHA256_SIZE];
	const uint8_t *flat = &all[0][0][0];

	memcpy(of, key_of(1).sha256, SHA256_SIZE);
	memcpy(of + SHA256_SIZE, key_of(2).sha256, SHA256_SIZE);
	macs(c, of, all[0]);
	for (size_t i = 1; i < 4; i++) {
		of[i * 21] ^= 1;
		macs(c, of, all[i]);
		of[i * 21] ^= 1;
	}
	memcpy(of, key_of(2).sha256, SHA256_SIZE);
	memcpy(of + SHA256_SIZE, key_of(1).sha256, SHA256_SIZE);
	macs(c, of, all[4]);
	d = open_cache(e, 0);
	use_key_of(d, 2);
	macs(d, of, all[5]);
	for (size_t i = 0; i < 6 * PURPOSES; i++)
		for (size_t k = 0; k < i; k++)
			assert_memory_not_equal(flat + i * SHA256_SIZE, flat + k * SHA256_SIZE,
						SHA256_SIZE);
	cache_close(d);
	cache_close(c);
	/* a later mount has the same */
	c = open_cache(e, 0);
	macs(c, of, again);
	assert_memory_equal(again, all[4], sizeof(again));
	cache_close(c);
}

/* Without a key there is no seal and no note, and none is found or dropped. */
static void test_no_key(void **state)
{
	struct env *e = *state;
	struct cache *c = open_cache(e, 0);
	struct key k = key_of(1);
	uint8_t key[KEY_SIZE], of[2 * SHA256_SIZE] = { 0 };
	char text[8];

	assert_int_equal(put(c, k), 0);
	assert_int_equal(cache_note_put(c, k.sha256, "text"), 0);
	for (int later = 0; later < 2; later++) {
		if (later) {
			cache_close(c);
			assert_int_equal(cache_open(e->cache, 0, &c), 0);
		} else {
			cache_use_key(c, NULL);
		}
		assert_int_equal(cache_tag_key(c, key), -ENOENT);
		assert_int_equal(cache_mac(c, "notes", of, sizeof(of), key), -ENOENT);
		assert_int_equal(put(c, k), -EINVAL);
		assert_int_equal(get(c, k, SIZE), -ENOENT);
		assert_int_equal(cache_note_put(c, k.sha256, "other"), -ENOENT);
		assert_int_equal(cache_note_get(c, k.sha256, text, sizeof(text)), -ENOENT);
		cache_seal_drop(c, k.sha256);
		cache_note_drop(c, k.sha256);
	}
	use_key_of(c, 1);
	assert_int_equal(get(c, k, SIZE), 0);
	assert_int_equal(cache_note_get(c, k.sha256, text, sizeof(text)), 0);
	assert_string_equal(text, "text");
	cache_close(c);
}

/* The key that older versions had in here goes when it is met, and so do their seals. */
static void test_old_secret(void **state)
{
	static const char *const contents[] = { "cartonfs seal 1, and more", "" };
	struct env *e = *state;
	struct cache *c = open_cache(e, 0);
	struct key k = key_of(1), old = key_of(2);
	char path[PATH_MAX];

	assert_int_equal(put(c, k), 0);
	cache_close(c);
	for (size_t i = 0; i < ARRAY_SIZE(contents); i++) {
		int fd = open(inside(e, "seals", old, "", path), O_WRONLY | O_CREAT | O_CLOEXEC,
			      0600);

		assert_true(fd >= 0);
		assert_int_equal(pwrite_full(fd, contents[i], strlen(contents[i]), 0), 0);
		close(fd);
		/* without that key, any file waits for gc */
		c = open_cache(e, 0);
		assert_int_equal(entries(e, "seals"), 2);
		cache_close(c);
		snprintf(path, sizeof(path), "%s/v1/seals/secret", e->cache);
		if (i)
			assert_int_equal(mkdir(path, 0700), 0);
		else
			close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
		c = open_cache(e, 0);
		assert_int_equal(entries(e, "seals"), 1);
		assert_int_equal(get(c, k, SIZE), 0);
		cache_close(c);
	}
}

/* Never waits for a FIFO, and follows nothing. */
static void test_other_kinds(void **state)
{
	struct env *e = *state;
	struct cache *c = open_cache(e, 0);
	struct key k = key_of(1), l = key_of(2);
	char path[PATH_MAX], from[PATH_MAX];

	assert_int_equal(put(c, l), 0);
	seal_of(e, c, k, path);
	for (int kind = 0; kind < 3; kind++) {
		if (kind == 0)
			assert_int_equal(mkfifo(path, 0600), 0);
		else if (kind == 1)
			assert_int_equal(symlink(seal_of(e, c, l, from), path), 0);
		else
			assert_int_equal(mkdir(path, 0700), 0);
		assert_int_equal(get(c, k, SIZE), -ENOENT);
		assert_int_equal(check(c, k), -ENOENT);
		/* which a new one replaces, if it is no directory */
		assert_int_equal(put(c, k), kind == 2 ? -EISDIR : 0);
		assert_int_equal(get(c, k, SIZE), kind == 2 ? -ENOENT : 0);
		assert_int_equal(cache_clean(c), kind == 2);
		unlink(path);
	}
	assert_int_equal(get(c, l, SIZE), 0);
	assert_int_equal(entries(e, "tmp"), 0);
	cache_close(c);
}

static int list_one(void *ctx, const struct cache_object *o)
{
	bool seal = o->kind == CACHE_SEAL;
	int *n = ctx;

	assert_int_not_equal(o->kind, CACHE_PARTIAL);
	n[seal]++;
	/* a seal is of that object, and its file has a name of its own */
	assert_int_equal(memcmp(o->sha256, o->name, 32) != 0, seal);
	assert_memory_equal(o->sha256, key_of(o->sha256[0]).sha256, 32);
	assert_int_equal(o->size, seal ? 92 + sizeof(tags_t) + SHA256_SIZE : 1000);
	return 0;
}

/* Seals are listed and counted, and go with what was used longest ago. */
static void test_space(void **state)
{
	struct env *e = *state;
	struct cache *c = open_cache(e, 0);
	uint64_t freed;
	int n[2] = { 0, 0 };
	char path[PATH_MAX];

	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(put(c, key_of(i)), 0);
	assert_int_equal(publish(c, key_of(9), 1000), 0);
	assert_int_equal(cache_list(c, list_one, n), 0);
	assert_true(n[0] == 1 && n[1] == 4);
	set_mtime(seal_of(e, c, key_of(2), path), 1000);
	used_at(c, key_of(9), 2000);
	set_mtime(seal_of(e, c, key_of(1), path), 3000);
	/* a get is a use, a check is none */
	assert_int_equal(get(c, key_of(2), SIZE), 0);
	assert_int_equal(check(c, key_of(1)), 0);
	assert_int_equal(cache_gc(c, 3 * 4096, &freed), 0);
	assert_true(freed >= 2 * 4096);
	assert_false(has(c, key_of(9)));
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(is_there(e, c, key_of(i)), i != 1);
	assert_int_equal(cache_gc(c, 0, &freed), 0);
	assert_int_equal(entries(e, "seals"), 0);
	cache_close(c);
	/* where nothing fits there are no seals */
	c = open_cache(e, 10);
	assert_int_equal(put(c, key_of(1)), -ENOSPC);
	cache_close(c);
}

/* ---- killed, and several at once ---- */

static int put_two(const struct env *e)
{
	struct cache *c;

	return cache_open_keyed(e->cache, 0, &c) < 0 || put(c, key_of(1)) < 0 ||
	       put(c, key_of(2)) < 0;
}

/* Killed at any system call: a later one has the whole seal or none, and nothing is left behind. */
static void test_killed(void **state)
{
	struct env *e = *state;
	struct cache *c;
	pid_t pid;
	int n = 0, r;

	for (;; n++) {
		walk(e->cache, true);
		if (child_stop_at(put_two, e, n, &pid) >= 0)
			break;
		kill(pid, SIGKILL);
		wait_child(pid);
		c = open_cache(e, 0);
		for (unsigned i = 1; i <= 2; i++) {
			r = get(c, key_of(i), SIZE);
			assert_true(r == 0 || r == -ENOENT);
		}
		assert_int_equal(put(c, key_of(1)), 0);
		assert_int_equal(get(c, key_of(1), SIZE), 0);
		assert_int_equal(entries(e, "tmp"), 0);
		cache_close(c);
	}
	assert_true(n > 20);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, env_setup, env_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_put_and_get), TEST(test_flipped_and_cut), TEST(test_swapped),
		TEST(test_two_sources), TEST(test_no_key),	    TEST(test_old_secret),
		TEST(test_other_kinds), TEST(test_space),	    TEST(test_killed),
		TEST(test_mac),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
