/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests of the cache share: a directory of their own, and objects whose bytes
 * follow from their name (the cache computes no hash, so any 32 bytes will do for one).
 */
#ifndef CACHE_HELP_H
#define CACHE_HELP_H

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <linux/limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
/* after those it needs */
#include <cmocka.h>

#include "cache/internal.h"
#include "keyed.h"
#include "../must.h"

struct key {
	uint8_t sha256[32];
};

/* The nth name; those with n < 256 lie in different buckets. */
static inline struct key key_of(unsigned n)
{
	struct key k;

	for (unsigned i = 0; i < 32; i++)
		k.sha256[i] = (uint8_t)(n + i * 37 + (n >> 8) * i);
	return k;
}

static inline uint8_t byte_of(struct key k, uint64_t at)
{
	return (uint8_t)(k.sha256[at % 32] + at / 32 * 7 + 1);
}

static inline void fill_bytes(struct key k, char *data, uint64_t at, size_t n)
{
	for (size_t i = 0; i < n; i++)
		data[i] = (char)byte_of(k, at + i);
}

/* Writes [at, at + n) of the object; 0 or -errno. */
static inline int put_bytes(int fd, struct key k, uint64_t at, size_t n)
{
	char *data = must(malloc(n + 1));
	int r;

	if (!data)
		return -ENOMEM;
	fill_bytes(k, data, at, n);
	r = pwrite_full(fd, data, n, at);
	free(data);
	return r;
}

static inline bool bytes_are_right(int fd, struct key k, size_t n)
{
	char *data = must(malloc(n + 1)), *want = must(malloc(n + 1));
	bool right;

	fill_bytes(k, want, 0, n);
	right = pread_full(fd, data, n, 0) == 0 && memcmp(data, want, n) == 0;
	free(data);
	free(want);
	return right;
}

/* Fills and publishes an object of n bytes; 0 or -errno. Closes it. */
static inline int publish(struct cache *c, struct key k, size_t n)
{
	struct cache_fill *f;
	int fd, r;

	r = cache_begin(c, k.sha256, &f);
	if (r < 0)
		return r;
	r = cache_fill_restart(f, NULL);
	if (r == 0)
		r = cache_fill_reserve(f, n);
	if (r == 0)
		r = put_bytes(cache_fill_fd(f), k, 0, n);
	if (r == 0)
		r = cache_fill_publish(f, NULL, n, &fd);
	if (r < 0)
		cache_fill_abort(f, false);
	else
		close(fd);
	return r;
}

static inline bool has(struct cache *c, struct key k)
{
	char path[PATH_MAX];

	return cache_path(c, k.sha256, path, sizeof(path)) == 0;
}

/* ---- a directory for each test ---- */

struct env {
	long pid;	 /* first, as gcc 12 takes an array at offset 0 for a null pointer */
	char dir[64];	 /* its own, removed afterwards */
	char cache[80];	 /* dir/c, where the cache goes; not there yet */
	struct cache *c; /* for a child that is to inherit them */
	int fd;
	int fds; /* open when the test began: as many as when it ends */
};

static inline int open_fds(void)
{
	int n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static inline int env_setup(void **state)
{
	struct env *e = must(calloc(1, sizeof(*e)));

	if (!e)
		return -1;
	snprintf(e->dir, sizeof(e->dir), "/tmp/cache-test-XXXXXX");
	if (!mkdtemp(e->dir)) {
		free(e);
		return -1;
	}
	e->pid = getpid();
	e->fds = open_fds();
	snprintf(e->cache, sizeof(e->cache), "%s/c", e->dir);
	*state = e;
	return 0;
}

/* Walks what is beneath a directory: removes it, or counts what is no directory; -1 on failure. */
static inline int walk(const char *dir, bool remove_it)
{
	char copy[PATH_MAX], *paths[] = { copy, NULL };
	FTSENT *ent;
	int n = 0;
	FTS *fts;

	snprintf(copy, sizeof(copy), "%s", dir);
	fts = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
	while (fts && n >= 0 && (ent = fts_read(fts))) {
		if (ent->fts_info == FTS_ERR || ent->fts_info == FTS_DNR || ent->fts_info == FTS_NS)
			n = -1;
		else if (remove_it && ent->fts_info != FTS_D)
			n = remove(ent->fts_accpath);
		else if (!remove_it && ent->fts_info != FTS_D && ent->fts_info != FTS_DP)
			n++;
	}
	return fts && fts_close(fts) == 0 ? n : -1;
}

static inline int env_teardown(void **state)
{
	struct env *e = *state;
	int r;

	if (e->pid != getpid()) /* a child that failed: the parent reports it */
		_exit(99);
	r = walk(e->dir, true);
	if (open_fds() != e->fds) {
		print_error("%d descriptors leaked\n", open_fds() - e->fds);
		r = -1;
	}
	free(e);
	return r;
}

static inline struct cache *open_cache(const struct env *e, uint64_t limit)
{
	struct cache *c = NULL;

	assert_int_equal(cache_open_keyed(e->cache, limit, &c), 0);
	return c;
}

/* The path of dir/<sub>/<hex><suffix> in the cache, in a static buffer of the caller's. */
static inline const char *inside(const struct env *e, const char *sub, struct key k,
				 const char *suffix, char buf[PATH_MAX])
{
	char hex[65];

	hex_encode(k.sha256, 32, hex);
	snprintf(buf, PATH_MAX, "%s/v1/%s/%s%s", e->cache, sub, hex, suffix);
	return buf;
}

/* The path of the seal of `k`. */
static inline const char *seal_of(const struct env *e, const struct cache *c, struct key k,
				  char buf[PATH_MAX])
{
	char name[HEX_SIZE];

	assert_int_equal(cache_seal_name(c, k.sha256, name), 0);
	snprintf(buf, PATH_MAX, "%s/v1/seals/%s", e->cache, name);
	return buf;
}

/* How many entries a directory of the cache has. */
static inline int entries(const struct env *e, const char *sub)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/v1/%s", e->cache, sub);
	return walk(path, false);
}

/* Does anyone hold bytes of the lock file? It stays empty. */
static inline int held(const struct env *e)
{
	struct flock fl = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	char path[PATH_MAX];
	struct stat st;
	int fd;

	snprintf(path, sizeof(path), "%s/v1/lock", e->cache);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0) {
		assert_int_equal(errno, ENOENT);
		return 0;
	}
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_size, 0);
	assert_int_equal(fcntl(fd, F_OFD_GETLK, &fl), 0);
	close(fd);
	return fl.l_type != F_UNLCK;
}

static inline void set_mtime(const char *path, int64_t seconds)
{
	struct timespec t[2] = { { .tv_sec = seconds }, { .tv_sec = seconds } };

	assert_int_equal(utimensat(AT_FDCWD, path, t, AT_SYMLINK_NOFOLLOW), 0);
}

/* The exit status of a child: its code, or 128 + its signal. */
static inline int wait_child(pid_t pid)
{
	int status = 0;

	while (waitpid(pid, &status, 0) < 0)
		assert_int_equal(errno, EINTR);
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static inline void used_at(struct cache *c, struct key k, int64_t seconds)
{
	char path[PATH_MAX];

	assert_int_equal(cache_path(c, k.sha256, path, sizeof(path)), 0);
	set_mtime(path, seconds);
}

/* Leaves a partial of 5000 bytes that count, with holes and other bytes behind them. */
static inline void leave_partial(struct cache *c, struct key k, const char *validator)
{
	struct cache_fill *f;

	assert_int_equal(cache_begin(c, k.sha256, &f), 0);
	assert_int_equal(cache_fill_restart(f, validator), 0);
	assert_int_equal(cache_fill_reserve(f, 200000), 0);
	assert_int_equal(put_bytes(cache_fill_fd(f), k, 100000, 500), 0);
	assert_int_equal(put_bytes(cache_fill_fd(f), k, 0, 6000), 0);
	assert_int_equal(cache_fill_progress(f, 3000), 0);
	assert_int_equal(cache_fill_progress(f, 5000), 0);
	cache_fill_abort(f, true);
}

/*
 * Runs `fn` in a child and stops it at the nth entry to, or return from, a system call. Returns -1,
 * with the child, or its exit status when it had ended before.
 */
static inline int child_stop_at(int (*fn)(const struct env *e), const struct env *e, int n,
				pid_t *ret_pid)
{
	int status = 0;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		/* or it would stay stopped for ever if the test is killed */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
			_exit(97);
		raise(SIGSTOP);
		_exit(fn(e));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSTOPPED(status));
	for (int i = 0; i < n; i++) {
		assert_int_equal(ptrace(PTRACE_SYSCALL, pid, NULL, NULL), 0);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		if (WIFEXITED(status))
			return WEXITSTATUS(status);
		assert_true(WIFSTOPPED(status));
	}
	*ret_pid = pid;
	return -1;
}

/* Lets it run on to its end: its status. */
static inline int child_finish(pid_t pid)
{
	assert_int_equal(ptrace(PTRACE_DETACH, pid, NULL, NULL), 0);
	return wait_child(pid);
}

/* The same with e->c open. */
static inline int open_setup(void **state)
{
	struct env *e;

	if (env_setup(state) < 0)
		return -1;
	e = *state;
	return cache_open_keyed(e->cache, 0, &e->c);
}

static inline int close_teardown(void **state)
{
	struct env *e = *state;

	if (e->pid == getpid())
		cache_close(e->c);
	return env_teardown(state);
}

#endif
