/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cache seen from one process: its directory, filling and resuming, dropping, listing. Space
 * and leftovers are in test_cache_space.c; what processes do to each other is in cache_crash.c and
 * cache_race.c.
 */
#include "cache_help.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

static char last_log[1024];

static void keep_log(void *ctx, enum carton_log_level level, const char *subject,
		     const char *message)
{
	(void)ctx;
	(void)level;
	snprintf(last_log, sizeof(last_log), "%s: %s", subject ? subject : "", message);
}

static unsigned mode_of(const char *path)
{
	struct stat st;

	assert_int_equal(lstat(path, &st), 0);
	return st.st_mode & 07777;
}

/* ---- the directory ---- */

static void test_layout(void **state)
{
	static const char *const dirs[] = { "", "/v1", "/v1/objects", "/v1/partials", "/v1/tmp" };
	struct env *e = *state;
	struct cache *c;
	char path[256], tag[44] = "";
	int fd;

	/* Missing parents are made too; a slash at the end changes nothing. */
	snprintf(e->cache, sizeof(e->cache), "%s/a/b", e->dir);
	snprintf(path, sizeof(path), "%s//", e->cache);
	assert_int_equal(cache_open(path, 0, &c), 0);
	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
		snprintf(path, sizeof(path), "%s%s", e->cache, dirs[i]);
		assert_int_equal(mode_of(path), 0700);
	}
	snprintf(path, sizeof(path), "%s/v1/CACHEDIR.TAG", e->cache);
	fd = open(path, O_RDONLY);
	assert_int_equal(pread_full(fd, tag, 43, 0), 0);
	assert_string_equal(tag, "Signature: 8a477f597d28d172789f06886806bc55");
	close(fd);
	cache_close(c);
	cache_close(NULL);
	/* A second time, over what is there. */
	c = open_cache(e, 0);
	assert_int_equal(entries(e, "tmp"), 0);
	cache_close(c);
}

/* Who only looks makes nothing: neither in a directory that is missing, nor in one of others. */
static void test_find_without_making(void **state)
{
	struct env *e = *state;
	struct cache *c;
	char path[512];

	snprintf(path, sizeof(path), "%s/typo", e->dir);
	assert_int_equal(cache_find(path, false, &c), -ENOENT);
	assert_int_equal(access(path, F_OK), -1);
	assert_int_equal(mkdir(path, 0700), 0);
	snprintf(path, sizeof(path), "%s/typo/v1", e->dir);
	assert_int_equal(mkdir(path, 0700), 0);
	snprintf(path, sizeof(path), "%s/typo", e->dir);
	assert_int_equal(cache_find(path, false, &c), -ENOENT);
	snprintf(path, sizeof(path), "%s/typo/v1", e->dir);
	assert_int_equal(rmdir(path), 0); /* nothing is in it */
	cache_close(open_cache(e, 0));
	assert_int_equal(cache_find(e->cache, false, &c), 0);
	assert_int_equal(cache_start(c, 0), 0);
	cache_close(c);
}

static void test_default_dir(void **state)
{
	struct env *e = *state;
	struct cache *c;
	char path[256];

	setenv("XDG_CACHE_HOME", e->dir, 1);
	assert_int_equal(cache_open(NULL, 0, &c), 0);
	cache_close(c);
	snprintf(path, sizeof(path), "%s/cartonfs/v1", e->dir);
	assert_int_equal(mode_of(path), 0700);

	/* A relative one does not count. */
	setenv("XDG_CACHE_HOME", "relative", 1);
	setenv("HOME", e->dir, 1);
	assert_int_equal(cache_open(NULL, 0, &c), 0);
	cache_close(c);
	snprintf(path, sizeof(path), "%s/.cache/cartonfs/v1", e->dir);
	assert_int_equal(mode_of(path), 0700);
	unsetenv("XDG_CACHE_HOME");
}

static int note_name(void *ctx, const struct cache_object *object)
{
	snprintf(ctx, 1024, "%s|%s", object->path ? object->path : "",
		 object->source ? object->source : "");
	return 0;
}

/* The only object is called so. */
static void assert_called(struct cache *c, const char *path, const char *source)
{
	char text[1024], want[1024];

	assert_int_equal(cache_list(c, note_name, text), 0);
	snprintf(want, sizeof(want), "%s|%s", path, source);
	assert_string_equal(text, want);
}

/* The last name counts; what is too long loses its start, and a line has no other line in it. */
static void test_names(void **state)
{
	struct env *e = *state;
	struct key k = key_of(1);
	struct cache *c = open_cache(e, 0);
	char name[MAX_CACHE_NAME + 10];

	assert_int_equal(publish(c, k, 100), 0);
	assert_called(c, "", "");
	cache_name_put(c, k.sha256, "model/x", "a.carton");
	cache_name_put(c, key_of(2).sha256, "model/other", "a.carton");
	assert_called(c, "model/x", "a.carton");
	cache_name_put(c, k.sha256, "model/y", "b.carton");
	assert_called(c, "model/y", "b.carton");
	cache_name_put(c, k.sha256, "a\n\tb\x1b[31m", "");
	assert_called(c, "a??b?[31m", "");
	memset(name, 'x', sizeof(name));
	name[sizeof(name) - 1] = '\0';
	cache_name_put(c, k.sha256, name, "c.carton");
	assert_called(c, name + sizeof(name) - 1 - MAX_CACHE_NAME, "c.carton");
	cache_name_put(NULL, k.sha256, "model/x", "a.carton");
	cache_close(c);
}

/* The limit of the size of files is none of this file: no name gives way to one that has no room. */
static void test_names_limited(void **state)
{
	struct env *e = *state;
	struct key k = key_of(1);
	struct cache *c = open_cache(e, 0);
	struct rlimit none, limit;

	assert_int_equal(publish(c, k, 100), 0);
	cache_name_put(c, k.sha256, "model/x", "a.carton");
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &none), 0);
	limit = (struct rlimit){ 100, none.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	for (int i = 0; i < 3; i++)
		cache_name_put(c, k.sha256, "model/another", "b.carton");
	assert_called(c, "model/x", "a.carton");
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
	cache_name_put(c, k.sha256, "model/y", "c.carton");
	assert_called(c, "model/y", "c.carton");
	cache_close(c);
}

/* A full file gives way to a new one, once; what is no line is passed over. */
static void test_names_full(void **state)
{
	static const char junk[] = "\n\t\nabc\tmodel/z\tz.carton\n";
	struct env *e = *state;
	struct key k = key_of(1);
	struct cache *c = open_cache(e, 0);
	char path[512], old[512];
	struct stat st;
	int fd;

	assert_int_equal(publish(c, k, 100), 0);
	cache_name_put(c, k.sha256, "model/x", "a.carton");
	snprintf(path, sizeof(path), "%s/v1/names", e->cache);
	snprintf(old, sizeof(old), "%s/v1/names.old", e->cache);
	fd = open(path, O_WRONLY | O_APPEND);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, junk, sizeof(junk) - 1), sizeof(junk) - 1);
	assert_int_equal(ftruncate(fd, MAX_CACHE_NAMES), 0); /* a line of NULs */
	close(fd);
	assert_called(c, "model/x", "a.carton");
	assert_int_equal(lstat(old, &st), -1);
	cache_name_put(c, key_of(2).sha256, "model/other", "a.carton");
	assert_int_equal(lstat(old, &st), 0);
	assert_true(st.st_size == MAX_CACHE_NAMES);
	assert_int_equal(lstat(path, &st), 0);
	assert_true(st.st_size < 100);
	assert_called(c, "model/x", "a.carton");
	cache_name_put(c, k.sha256, "model/y", "b.carton");
	assert_called(c, "model/y", "b.carton");
	/* in place of the file, what cannot be written to */
	assert_int_equal(unlink(path), 0);
	assert_int_equal(mkfifo(path, 0600), 0);
	cache_name_put(c, k.sha256, "model/z", "b.carton");
	assert_called(c, "model/x", "a.carton");
	assert_int_equal(cache_clean(c), 1);
	assert_int_equal(lstat(path, &st), -1);
	cache_close(c);
}

static void assert_refused(const char *dir, int err, const char *why)
{
	struct cache *c = (void *)1;

	last_log[0] = '\0';
	assert_int_equal(cache_open(dir, 0, &c), -err);
	assert_ptr_equal(c, (void *)1);
	if (!strstr(last_log, why))
		fail_msg("«%s» is not in the log: %s", why, last_log);
}

static void test_unsafe_dirs(void **state)
{
	struct env *e = *state;
	char path[256], why[512];

	assert_int_equal(mkdir(e->cache, 0700), 0);
	chmod(e->cache, 0770);
	/* the directory that has the fault is the one that is named, and not v1/ in it */
	snprintf(why, sizeof(why), "%s: this directory of the cache has mode 0770", e->cache);
	assert_refused(e->cache, EPERM, why);
	chmod(e->cache, 0702);
	assert_refused(e->cache, EPERM,
		       "mode 0702, so others may write to it: make it yours, and "
		       "writable for you alone (chmod go-w)");
	chmod(e->cache, 0755); /* readable by others is the owner's choice */
	cache_close(open_cache(e, 0));

	snprintf(path, sizeof(path), "%s/v1/objects", e->cache);
	chmod(path, 0720);
	snprintf(why, sizeof(why), "%s: this directory of the cache has mode 0720", path);
	assert_refused(e->cache, EPERM, why);
	chmod(path, 0700);
	snprintf(path, sizeof(path), "%s/v1", e->cache);
	chmod(path, 0722);
	snprintf(why, sizeof(why), "%s: this directory of the cache has mode 0722", path);
	assert_refused(e->cache, EPERM, why);
	chmod(path, 0700);
	snprintf(path, sizeof(path), "%s/v1/objects", e->cache);

	/* Root owns /usr; for root, a directory of someone else. */
	if (geteuid() == 0) {
		assert_int_equal(chown(path, 4711, 0), 0);
		snprintf(why, sizeof(why), "%s: this directory of the cache belongs to uid 4711",
			 path);
		assert_refused(e->cache, EPERM, why);
		assert_int_equal(chown(e->cache, 4711, 0), 0);
		snprintf(why, sizeof(why), "%s: this directory of the cache belongs to uid 4711",
			 e->cache);
		assert_refused(e->cache, EPERM, why);
	} else {
		assert_refused("/usr", EPERM, "belongs to uid 0");
	}

	snprintf(path, sizeof(path), "%s/link", e->dir);
	assert_int_equal(symlink("c", path), 0);
	assert_refused(path, ENOTDIR, "not a link");
	snprintf(path, sizeof(path), "%s/link/", e->dir);
	assert_refused(path, ENOTDIR, "not a link");
	snprintf(path, sizeof(path), "%s/file", e->dir);
	close(open(path, O_CREAT | O_WRONLY, 0600));
	assert_refused(path, ENOTDIR, "has to be a directory");
	assert_refused("", ENOENT, "");
}

static void test_no_symlink_inside(void **state)
{
	struct env *e = *state;
	struct key k = key_of(1);
	char away[128], path[PATH_MAX];
	struct cache *c = open_cache(e, 0);
	int fd;

	/* An object that is a symlink is none, and publishing replaces it. */
	assert_int_equal(publish(c, k, 100), 0);
	assert_int_equal(cache_path(c, k.sha256, path, sizeof(path)), 0);
	snprintf(away, sizeof(away), "%s/moved", e->dir);
	assert_int_equal(rename(path, away), 0);
	assert_int_equal(symlink(away, path), 0);
	assert_int_equal(cache_lookup(c, k.sha256, &fd, NULL), -ENOENT);
	assert_false(has(c, k));
	assert_int_equal(publish(c, k, 100), 0);
	assert_int_equal(cache_lookup(c, k.sha256, &fd, NULL), 0);
	close(fd);
	cache_close(c);

	snprintf(path, sizeof(path), "%s/v1/notes", e->cache);
	snprintf(away, sizeof(away), "%s/notes", e->dir);
	assert_int_equal(rename(path, away), 0);
	assert_int_equal(symlink(away, path), 0);
	assert_refused(e->cache, ENOTDIR, "cannot open notes");
}

/* ---- filling ---- */

/* In a child: `mask` makes a cache, and a later run with another one uses it. 0: all is well. */
static int use_cache(const char *dir, mode_t mask)
{
	const mode_t masks[] = { mask, 022 };

	if (geteuid() == 0 &&
	    (setresgid(65534, 65534, 65534) < 0 || setresuid(65534, 65534, 65534)))
		return 10;
	for (unsigned i = 0; i < ARRAY_SIZE(masks); i++) {
		struct cache *c;
		int fd, r;

		umask(masks[i]);
		if (cache_open(dir, 0, &c) < 0)
			return 20 + (int)i;
		r = publish(c, key_of(1 + i), 100);
		if (r == 0)
			r = cache_lookup(c, key_of(1).sha256, &fd, NULL);
		if (r == 0)
			close(fd);
		cache_close(c);
		if (r < 0)
			return 30 + (int)i;
	}
	return 0;
}

/* A program that has a umask of its own can use the library. Root could enter anything. */
static void test_umask(void **state)
{
	struct env *e = *state;
	char dir[128];

	if (geteuid() == 0)
		assert_int_equal(chown(e->dir, 65534, 65534), 0);
	for (mode_t mask = 0; mask <= 0777; mask += 0100) {
		int status;
		pid_t pid = fork();

		snprintf(dir, sizeof(dir), "%s/a%o/b/c", e->dir, (unsigned)mask);
		if (pid == 0)
			_exit(use_cache(dir, mask | 077));
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
	}
}

static void test_publish_and_lookup(void **state)
{
	struct env *e = *state;
	struct cache *c = open_cache(e, 0);
	struct key k = key_of(2);
	struct cache_fill *f, *g = NULL;
	char path[PATH_MAX], validator[8];
	uint64_t size = 99, len = 99;
	int fd = 77;

	assert_int_equal(cache_lookup(c, k.sha256, &fd, &size), -ENOENT);
	assert_int_equal(fd, 77);
	assert_int_equal(size, 99);
	assert_int_equal(cache_path(c, k.sha256, path, sizeof(path)), -ENOENT);

	assert_int_equal(cache_begin(c, k.sha256, &f), 0);
	assert_int_equal(cache_begin(c, k.sha256, &g), -EAGAIN);
	assert_null(g);
	assert_int_equal(cache_fill_partial(f, &len, validator, sizeof(validator)), 0);
	assert_int_equal(len, 0);
	assert_string_equal(validator, "");
	assert_int_equal(put_bytes(cache_fill_fd(f), k, 0, 12345 + 11), 0);
	assert_int_equal(cache_lookup(c, k.sha256, &fd, &size), -ENOENT);
	/* Shorter than said is refused and leaves the fill; longer is cut. */
	assert_int_equal(cache_fill_publish(f, NULL, 12345 + 12, &fd), -EINVAL);
	assert_int_equal(fd, 77);
	assert_int_equal(cache_fill_publish(f, NULL, 12345, &fd), 0);
	assert_int_equal(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
	assert_true(bytes_are_right(fd, k, 12345));
	close(fd);

	assert_int_equal(cache_begin(c, k.sha256, &g), -EEXIST);
	assert_int_equal(cache_lookup(c, k.sha256, &fd, &size), 0);
	assert_int_equal(size, 12345);
	assert_true(bytes_are_right(fd, k, 12345));
	close(fd);
	assert_int_equal(cache_path(c, k.sha256, path, sizeof(path)), 0);
	assert_int_equal(mode_of(path), 0400);
	assert_int_equal(cache_path(c, k.sha256, path, strlen(path)), -ENAMETOOLONG);
	assert_int_equal(entries(e, "partials") + held(e) + entries(e, "tmp"), 0);

	/* Empty is an object too. */
	k = key_of(3);
	assert_int_equal(publish(c, k, 0), 0);
	assert_int_equal(cache_lookup(c, k.sha256, &fd, &size), 0);
	assert_int_equal(size, 0);
	close(fd);
	cache_close(c);
}

/* Begins a fill and says what is there of an earlier one. */
static struct cache_fill *resume(struct cache *c, struct key k, uint64_t *ret_len,
				 char *ret_validator)
{
	struct cache_fill *f = NULL;
	struct stat st;

	assert_int_equal(cache_begin(c, k.sha256, &f), 0);
	assert_int_equal(cache_fill_partial(f, ret_len, ret_validator, MAX_CACHE_VALIDATOR + 1), 0);
	assert_int_equal(fstat(cache_fill_fd(f), &st), 0);
	assert_int_equal(st.st_size, *ret_len);
	assert_true(bytes_are_right(cache_fill_fd(f), k, *ret_len));
	return f;
}

static void test_resume(void **state)
{
	static char validator[MAX_CACHE_VALIDATOR + 1], longest[MAX_CACHE_VALIDATOR + 2];
	struct env *e = *state;
	struct cache *c = open_cache(e, 0);
	struct key k = key_of(4);
	struct cache_fill *f;
	char small[4], path[PATH_MAX];
	struct stat st;
	uint64_t len;
	int fd;

	leave_partial(c, k, "\"etag\" http://x/");
	assert_int_equal(held(e), 0);
	assert_int_equal(stat(inside(e, "partials", k, "", path), &st), 0);
	assert_true(st.st_blocks * 512 < 100000); /* what was reserved is given back */
	f = resume(c, k, &len, validator);
	assert_int_equal(len, 5000);
	assert_string_equal(validator, "\"etag\" http://x/");
	assert_int_equal(cache_fill_partial(f, &len, small, sizeof(small)), -ERANGE);
	assert_int_equal(put_bytes(cache_fill_fd(f), k, len, 4000), 0);
	assert_int_equal(cache_fill_publish(f, NULL, 9000, &fd), 0);
	assert_true(bytes_are_right(fd, k, 9000));
	close(fd);
	assert_int_equal(entries(e, "partials"), 0);

	/* A validator that changed: restart forgets both bytes and validator. */
	k = key_of(5);
	leave_partial(c, k, "old");
	f = resume(c, k, &len, validator);
	assert_int_equal(cache_fill_restart(f, "new"), 0);
	assert_int_equal(cache_fill_partial(f, &len, validator, sizeof(validator)), 0);
	assert_int_equal(len, 0);
	assert_int_equal(put_bytes(cache_fill_fd(f), k, 0, 10), 0);
	cache_fill_abort(f, true); /* without progress nothing counts */
	f = resume(c, k, &len, validator);
	assert_int_equal(len, 0);
	cache_fill_abort(f, false);

	/* The longest validator, and one byte more, which changes nothing. */
	memset(longest, 'v', MAX_CACHE_VALIDATOR);
	leave_partial(c, k, longest);
	longest[MAX_CACHE_VALIDATOR] = 'v';
	f = resume(c, k, &len, validator);
	assert_int_equal(strlen(validator), MAX_CACHE_VALIDATOR);
	assert_int_equal(cache_fill_restart(f, longest), -EFBIG);
	assert_int_equal(cache_fill_partial(f, &len, validator, sizeof(validator)), 0);
	assert_int_equal(len, 5000);
	cache_fill_abort(f, false);
	assert_int_equal(entries(e, "partials"), 0);

	/* Without a validator nobody can tell what it is a part of. */
	leave_partial(c, k, NULL);
	assert_int_equal(entries(e, "partials"), 0);
	cache_fill_abort(NULL, true);
	cache_close(c);
}

/* A sidecar cut at each length, or damaged: the partial counts for nothing, and never for more. */
static void test_bad_sidecar(void **state)
{
	static char validator[MAX_CACHE_VALIDATOR + 1];
	struct env *e = *state;
	struct cache *c = open_cache(e, 0);
	struct key k = key_of(6);
	struct cache_fill *f;
	char path[PATH_MAX];
	uint64_t len;
	int fd;

	for (int cut = 0; cut <= 28; cut++) {
		leave_partial(c, k, "12345678");
		assert_int_equal(truncate(inside(e, "partials", k, ".v", path), cut), 0);
		f = resume(c, k, &len, validator);
		assert_int_equal(len, cut == 28 ? 5000 : 0);
		cache_fill_abort(f, false);
	}
	for (int at = 0; at < 28; at++) {
		leave_partial(c, k, "12345678");
		fd = open(inside(e, "partials", k, ".v", path), O_RDWR);
		assert_int_equal(pwrite_full(fd, "\377", 1, (uint64_t)at), 0);
		close(fd);
		f = resume(c, k, &len, validator);
		/* Magic, or a wrong length of the validator; a wrong length ends at the file's. */
		if (at < 8 || (at >= 16 && at < 20))
			assert_int_equal(len, 0);
		else
			assert_int_equal(len, 5000);
		cache_fill_abort(f, false);
	}
	assert_int_equal(unlink(inside(e, "partials", k, ".v", path)), -1);
	leave_partial(c, k, "x");
	assert_int_equal(unlink(inside(e, "partials", k, ".v", path)), 0);
	f = resume(c, k, &len, validator);
	assert_int_equal(len, 0);
	cache_fill_abort(f, false);
	cache_close(c);
}

static void test_tmpfile(void **state)
{
	struct env *e = *state;
	struct cache *c = open_cache(e, 0);
	char link[64], to[PATH_MAX];
	int fd;

	assert_int_equal(cache_tmpfile(c, &fd), 0);
	assert_int_equal(put_bytes(fd, key_of(0), 0, 1000), 0);
	assert_true(bytes_are_right(fd, key_of(0), 1000));
	assert_int_equal(entries(e, "."), 1); /* the tag */
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	snprintf(to, sizeof(to), "%s/out", e->dir);
	assert_int_equal(linkat(AT_FDCWD, link, AT_FDCWD, to, AT_SYMLINK_FOLLOW), -1);
	close(fd);
	cache_close(c);
}

/* ---- damaged objects ---- */

static void test_drop(void **state)
{
	struct env *e = *state;
	struct cache *c = open_cache(e, 0), *other = open_cache(e, 0);
	struct key k = key_of(7);
	struct cache_fill *f;
	char away[128], path[PATH_MAX];
	int bad, again, fd;

	assert_int_equal(publish(c, k, 500), 0);
	assert_int_equal(cache_lookup(c, k.sha256, &bad, NULL), 0);
	assert_int_equal(cache_lookup(other, k.sha256, &again, NULL), 0);
	assert_int_equal(cache_drop(c, k.sha256, bad), 0);
	assert_non_null(strstr(last_log, "damaged"));
	assert_false(has(c, k));
	assert_int_equal(cache_lookup(other, k.sha256, &fd, NULL), -ENOENT);

	/* A newer one stays, whoever comes late with the old one. */
	assert_int_equal(publish(c, k, 600), 0);
	last_log[0] = '\0';
	assert_int_equal(cache_drop(other, k.sha256, again), 0);
	assert_string_equal(last_log, "");
	assert_int_equal(cache_lookup(c, k.sha256, &fd, NULL), 0);
	assert_true(bytes_are_right(again, k, 500));

	/* While another one holds the object's lock it is marked, and found by nobody. */
	assert_int_equal(cache_path(c, k.sha256, path, sizeof(path)), 0);
	snprintf(away, sizeof(away), "%s/away", e->dir);
	assert_int_equal(rename(path, away), 0);
	assert_int_equal(cache_begin(c, k.sha256, &f), 0);
	assert_int_equal(rename(away, path), 0);
	assert_int_equal(cache_drop(other, k.sha256, fd), 0);
	assert_int_equal(mode_of(path), 0);
	assert_false(has(other, k));
	close(bad);
	assert_int_equal(cache_lookup(other, k.sha256, &bad, NULL), -ENOENT);
	cache_fill_abort(f, false);
	assert_int_equal(cache_gc(c, UINT64_MAX, NULL), 0); /* clears it away, although open */
	assert_int_equal(entries(e, "objects"), 0);
	close(fd);
	close(again);
	cache_close(other);
	cache_close(c);
}

/* ---- listing ---- */

static int count_sizes(void *ctx, const struct cache_object *o)
{
	uint64_t *sum = ctx;

	*sum += o->size;
	return o->used == 4242 ? 42 : 0;
}

static int put_file(const char *path, const char *text)
{
	int fd = open(path, O_CREAT | O_WRONLY, 0600);
	int r = fd < 0 ? -errno : pwrite_full(fd, text, strlen(text), 0);

	fd_close(fd);
	return r;
}

static void test_list(void **state)
{
	struct env *e = *state;
	struct cache *c = open_cache(e, 0);
	uint64_t sum = 0;
	char path[PATH_MAX];
	int fd;

	for (unsigned i = 0; i < 300; i++)
		assert_int_equal(publish(c, key_of(i), i), 0);
	/* What is not ours is no object: another name, another bucket. */
	assert_int_equal(cache_path(c, key_of(1).sha256, path, sizeof(path) - 1), 0);
	strcat(path, "x");
	assert_int_equal(put_file(path, "12"), 0);
	snprintf(path, sizeof(path), "%s/v1/objects/00/README", e->cache);
	assert_int_equal(put_file(path, "123"), 0);
	snprintf(path, sizeof(path), "%s/v1/objects/README", e->cache);
	assert_int_equal(put_file(path, "1234"), 0);
	assert_int_equal(cache_list(c, count_sizes, &sum), 0);
	assert_int_equal(sum, 300 * 299 / 2);
	assert_int_equal(cache_lookup(c, key_of(299).sha256, &fd, NULL), 0);
	assert_int_equal(cache_drop(c, key_of(299).sha256, fd), 0);
	close(fd);
	sum = 0;
	assert_int_equal(cache_list(c, count_sizes, &sum), 0);
	assert_int_equal(sum, 299 * 298 / 2);
	used_at(c, key_of(298), 4242);
	assert_int_equal(cache_list(c, count_sizes, &sum), 42);
	cache_close(c);
}

/* ---- what does not belong there ---- */

enum thing {
	A_FIFO,
	A_DIR, /* with a file and a FIFO in it */
	A_LINK,
	A_SOCKET, /* which cannot be opened */
	A_DEAD_LINK,
	THINGS,
};

static void put_socket(const char *path)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0 && strlen(path) < sizeof(name.sun_path));
	strcpy(name.sun_path, path);
	assert_int_equal(bind(fd, (struct sockaddr *)&name, sizeof(name)), 0);
	close(fd);
}

static void put_thing(const struct env *e, const char *path, enum thing thing)
{
	char inner[PATH_MAX + 8];

	walk(path, true);
	switch (thing) {
	case A_FIFO:
		assert_int_equal(mkfifo(path, 0600), 0);
		break;
	case A_DIR:
		assert_int_equal(mkdir(path, 0700), 0);
		snprintf(inner, sizeof(inner), "%s/a", path);
		assert_int_equal(put_file(inner, "12"), 0);
		snprintf(inner, sizeof(inner), "%s/b", path);
		assert_int_equal(mkfifo(inner, 0600), 0);
		break;
	case A_LINK:
		assert_int_equal(symlink(e->dir, path), 0);
		break;
	case A_SOCKET:
		put_socket(path);
		break;
	default:
		assert_int_equal(symlink("nowhere", path), 0);
	}
}

static void no_fill(struct cache *c, struct key k)
{
	struct cache_fill *f;

	if (cache_begin(c, k.sha256, &f) == 0)
		cache_fill_abort(f, true);
}

/* In place of the lock file: nothing is filled, what is there is found, and gc removes it. */
static void test_things_in_place_of_the_lock_file(void **state)
{
	struct env *e = *state;
	struct cache *c = open_cache(e, 0);
	char name[PATH_MAX];
	struct cache_fill *f;
	uint64_t filled;
	int fd;

	snprintf(name, sizeof(name), "%s/v1/lock", e->cache);
	assert_int_equal(publish(c, key_of(8), 5000), 0);
	for (enum thing thing = 0; thing < THINGS; thing++) {
		alarm(60);
		put_thing(e, name, thing);
		assert_true(cache_begin(c, key_of(7).sha256, &f) < 0);
		assert_true(cache_join(c, key_of(7).sha256, 1000, &f) < 0);
		assert_true(cache_is_filling(c, key_of(7).sha256, &filled) <= 0);
		assert_int_equal(cache_lookup(c, key_of(8).sha256, &fd, NULL), 0);
		close(fd);
		cache_close(c);
		c = open_cache(e, 0);
		assert_true(cache_begin(c, key_of(7).sha256, &f) < 0);
		last_log[0] = '\0';
		assert_int_equal(cache_gc(c, UINT64_MAX, NULL), 0);
		assert_non_null(strstr(last_log, "does not belong into the cache: removed"));
		assert_int_equal(publish(c, key_of(10 + thing), 100), 0);
	}
	alarm(0);
	assert_true(has(c, key_of(8)));
	cache_close(c);
}

/* Whatever stands in place of a file of the cache: no call waits or fails, and gc removes it. */
static void test_things_in_place_of_files(void **state)
{
	static const char *const dirs[] = { "partials", "notes", "tmp", "objects/07" };
	struct env *e = *state;
	struct key k = key_of(7);
	char path[PATH_MAX], name[PATH_MAX], note[100];
	struct cache *c = open_cache(e, 0);
	uint64_t sum;
	int fd;

	assert_int_equal(k.sha256[0], 7);
	assert_int_equal(publish(c, key_of(8), 5000), 0);
	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++)
		for (enum thing thing = 0; thing < THINGS; thing++) {
			alarm(60);
			snprintf(path, sizeof(path), "%s/v1/objects/07", e->cache);
			assert_true(mkdir(path, 0700) == 0 || errno == EEXIST);
			put_thing(e, inside(e, dirs[i], k, "", name), thing);
			if (i == 0)
				put_thing(e, inside(e, dirs[i], k, ".v", path), thing);
			assert_int_equal(cache_lookup(c, k.sha256, &fd, NULL), -ENOENT);
			assert_int_equal(cache_path(c, k.sha256, path, sizeof(path)), -ENOENT);
			assert_true(cache_note_get(c, k.sha256, note, sizeof(note)) < 0);
			no_fill(c, k);
			cache_wait(c, k.sha256, 1, NULL);
			cache_close(c);
			c = open_cache(e, 0);
			sum = 0;
			assert_int_equal(cache_list(c, count_sizes, &sum), 0);
			assert_int_equal(sum, 5000);
			assert_int_equal(cache_reserve(c, 1000), 0);
			assert_int_equal(cache_lookup(c, key_of(8).sha256, &fd, NULL), 0);
			close(fd);
			put_thing(e, name, thing);
			last_log[0] = '\0';
			assert_int_equal(cache_gc(c, UINT64_MAX, NULL), 0);
			assert_non_null(
				strstr(last_log, "does not belong into the cache: removed"));
			assert_int_equal(access(name, F_OK), -1);
			assert_int_equal(readlink(name, path, sizeof(path)), -1);
			assert_int_equal(publish(c, k, 100), 0);
			assert_true(has(c, k));
			assert_int_equal(cache_lookup(c, k.sha256, &fd, NULL), 0);
			assert_int_equal(cache_drop(c, k.sha256, fd), 0);
			close(fd);
		}
	alarm(0);
	assert_true(has(c, key_of(8)));
	cache_close(c);
}

static void test_things_in_place_of_buckets(void **state)
{
	struct env *e = *state;
	struct key k = key_of(7);
	struct cache *c = open_cache(e, 0);
	char bucket[PATH_MAX];
	struct cache_fill *f;
	uint64_t sum;
	int fd;

	assert_int_equal(publish(c, key_of(8), 5000), 0);
	snprintf(bucket, sizeof(bucket), "%s/v1/objects/07", e->cache);
	for (enum thing thing = 0; thing <= THINGS; thing++) {
		alarm(60);
		if (thing == A_DIR)
			continue;
		if (thing == THINGS)
			assert_int_equal(put_file(bucket, "1234"), 0);
		else
			put_thing(e, bucket, thing);
		assert_int_equal(cache_lookup(c, k.sha256, &fd, NULL), -ENOENT);
		assert_int_equal(cache_begin(c, k.sha256, &f), -ENOTDIR);
		sum = 0;
		assert_int_equal(cache_list(c, count_sizes, &sum), 0);
		assert_int_equal(sum, 5000);
		assert_int_equal(cache_reserve(c, 1000), 0);
		assert_int_equal(cache_clean(c), 1);
		assert_int_equal(cache_clean(c), 0);
		assert_int_equal(publish(c, k, 100), 0);
		assert_int_equal(walk(bucket, true), 0);
	}
	alarm(0);
	cache_close(c);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, env_setup, env_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_layout),
		TEST(test_default_dir),
		TEST(test_find_without_making),
		TEST(test_names),
		TEST(test_names_limited),
		TEST(test_names_full),
		TEST(test_unsafe_dirs),
		TEST(test_no_symlink_inside),
		TEST(test_umask),
		TEST(test_publish_and_lookup),
		TEST(test_resume),
		TEST(test_bad_sidecar),
		TEST(test_tmpfile),
		TEST(test_drop),
		TEST(test_list),
		TEST(test_things_in_place_of_the_lock_file),
		TEST(test_things_in_place_of_files),
		TEST(test_things_in_place_of_buckets),
	};

	carton_log_set(keep_log, NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
