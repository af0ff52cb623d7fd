/* SPDX-License-Identifier: Apache-2.0 */
/* Opening the cache: finding its directory, refusing an unsafe one, making what is missing. */
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/own.h"
#include "cache/internal.h"

#define DEFAULT_SHARE 10 /* a tenth of the file system */

static const char TAG[] = "Signature: 8a477f597d28d172789f06886806bc55\n"
			  "# This directory holds copies of files that cartonfs can fetch again.\n";

int cache_user_dir(const char *variable, const char *in_home, char **ret)
{
	const char *xdg = secure_getenv(variable), *home = secure_getenv("HOME");
	struct passwd pw, *found = NULL;
	char text[4096];
	int n;

	if (xdg && xdg[0] == '/') {
		n = asprintf(ret, "%s/cartonfs", xdg);
	} else {
		if (!home || home[0] != '/') {
			getpwuid_r(geteuid(), &pw, text, sizeof(text), &found);
			home = found ? found->pw_dir : NULL;
		}
		if (!home || home[0] != '/')
			return -ENOENT;
		n = asprintf(ret, "%s/%s/cartonfs", home, in_home);
	}
	return n < 0 ? -ENOMEM : 0;
}

int cache_make_dirs(char *path)
{
	int r = 0, last;

	for (char *p = path + 1; *p; p++) {
		if (*p != '/')
			continue;
		*p = '\0';
		/* the first directory that could not be made is why the last cannot be made */
		last = own_make_dir(AT_FDCWD, path, 0700);
		if (last != -EEXIST && r == 0)
			r = last;
		*p = '/';
	}
	last = own_make_dir(AT_FDCWD, path, 0700);
	if (last == -EEXIST)
		return 0;
	return last == -ENOENT && r < 0 ? r : last;
}

/*
 * Refuses a directory that another user could change: `name` in `dir`, or `dir` itself if `name` is
 * "". The message names that directory. `root`: it may belong to root as well.
 */
static int check_dir(int fd, const char *dir, const char *name, bool root)
{
	char path[MAX_PATH_LEN + 1], why[OWN_WHY];
	int r = own_check(fd, root, why);

	if (r == 0)
		return 0;
	snprintf(path, sizeof(path), "%s%s%s", dir, *name ? "/" : "", name);
	return log_error(r, path,
			 "this directory of the cache %s: make it yours, and writable for you "
			 "alone (chmod go-w), or name another one with cache_dir=",
			 why);
}

/* Opens the directory `name` beneath `parent`, made when missing. */
static int open_subdir(int parent, const char *name, const char *shown, int *ret_fd)
{
	int fd, r = own_make_dir(parent, name, 0700);

	if (r < 0 && r != -EEXIST)
		return log_error(r, shown, "cannot make %s in the cache: %s", name, strerror(-r));
	fd = openat(parent, name, O_RDONLY | O_DIRECTORY | OPEN_FLAGS);
	if (fd < 0)
		return log_error(-errno, shown, "cannot open %s in the cache: %s", name,
				 strerror(errno));
	*ret_fd = fd;
	return 0;
}

static int open_top(char *path, int *ret_fd)
{
	const int flags = O_RDONLY | O_DIRECTORY | OPEN_FLAGS;
	int fd, r;

	/* With a slash at the end, the kernel would follow a symlink. */
	for (size_t n = strlen(path); n > 1 && path[n - 1] == '/'; n--)
		path[n - 1] = '\0';
	if (!*path)
		return -ENOENT;
	fd = open(path, flags);
	r = fd < 0 ? -errno : 0;
	if (r == -ENOENT && (r = cache_make_dirs(path)) == 0) {
		fd = open(path, flags);
		r = fd < 0 ? -errno : 0;
	}
	if (r < 0)
		return log_error(r, path, "cannot open the cache directory: %s%s", strerror(-r),
				 r == -ELOOP || r == -ENOTDIR ?
					 " (it has to be a directory, not a link to one)" :
					 "");
	*ret_fd = fd;
	return 0;
}

/* Network file systems may lack flock, or refuse an exclusive one on a read-only descriptor. */
static int check_locks(struct cache *c)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	char name[HEX_SIZE];
	int fd, ro, r;

	r = cache_tmp_create(c, name, &fd);
	if (r == -ENOSPC)
		return 0; /* a full cache opens, to be used and gc'ed */
	if (r < 0)
		return log_error(r, c->path, "cannot make a file in tmp in the cache: %s",
				 strerror(-r));
	/*
	 * cache_tmp_create() has locked the file, so where locks work, this one is refused with
	 * this errno.
	 */
	ro = openat(c->tmp, name, O_RDONLY | OPEN_FLAGS);
	if (ro < 0) {
		r = -errno;
	} else if (flock(ro, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK ||
		   fcntl(fd, F_OFD_SETLK, &lock) < 0) {
		r = -EOPNOTSUPP;
		carton_log(CARTON_LOG_ERROR, c->path,
			   "the cache's file system has no file locks that work: name a directory "
			   "on a local disk with cache_dir=");
	}
	unlinkat(c->tmp, name, 0);
	fd_close(ro);
	fd_close(fd);
	return r;
}

static int open_layout(struct cache *c)
{
	const struct {
		const char *name;
		int *ret_fd;
	} subdirs[] = { { "objects", &c->objects },
			{ "partials", &c->partial },
			{ "notes", &c->notes },
			{ "seals", &c->seals },
			{ "tmp", &c->tmp } };
	char top[MAX_PATH_LEN + 1];
	int r;

	/*
	 * the cache of root's daemon may be below a directory of root's, which the daemon cannot
	 * change
	 */
	snprintf(top, sizeof(top), "%.*s", (int)(strlen(c->path) - strlen("/v1")), c->path);
	r = check_dir(c->top, top, "", true);
	if (r == 0)
		r = check_dir(c->v1, c->path, "", false);
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(subdirs); i++) {
		r = open_subdir(c->v1, subdirs[i].name, c->path, subdirs[i].ret_fd);
		if (r == 0)
			r = check_dir(*subdirs[i].ret_fd, c->path, subdirs[i].name, false);
	}
	if (r == 0)
		r = check_locks(c);
	/*
	 * in v1/: the directory that a user names may hold more than a cache. The cache works
	 * without the tag.
	 */
	if (r == 0 && faccessat(c->v1, "CACHEDIR.TAG", F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		cache_put_file(c, c->v1, "CACHEDIR.TAG", TAG, sizeof(TAG) - 1);
	return r;
}

static int set_limit(struct cache *c, uint64_t size_limit)
{
	struct statvfs vfs;

	c->limit = size_limit;
	if (size_limit)
		return 0;
	if (fstatvfs(c->objects, &vfs) < 0)
		return log_error(-errno, c->path, "cannot examine the cache's file system: %s",
				 strerror(errno));
	if (__builtin_mul_overflow((uint64_t)vfs.f_blocks, vfs.f_frsize, &c->limit))
		c->limit = UINT64_MAX;
	c->limit /= DEFAULT_SHARE;
	return 0;
}

/* Is there a cache in `dir`? v1/ alone does not say so: others use that name, too. */
static bool is_cache(const char *dir)
{
	char path[MAX_PATH_LEN + 1];

	return (size_t)snprintf(path, sizeof(path), "%s/v1/objects", dir) >= sizeof(path) ||
	       faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0 || errno != ENOENT;
}

int cache_check_home(const char *path, char **ret_above, uid_t *ret_owner)
{
	struct stat st = { 0 };
	char *above, *slash;

	/* an existing directory is checked later, when it is known who uses it */
	if (geteuid() != 0 || stat(path, &st) == 0)
		return 0;
	above = strdup(path);
	if (!above)
		return -ENOMEM;
	while ((slash = strrchr(above, '/')) && slash > above) {
		*slash = '\0';
		if (stat(above, &st) == 0)
			break;
	}
	*ret_owner = st.st_uid;
	if (st.st_uid == 0)
		free(above);
	else
		*ret_above = above;
	return st.st_uid == 0 ? 0 : -EPERM;
}

static int check_home(const char *path)
{
	char *above = NULL;
	uid_t owner;
	int r = cache_check_home(path, &above, &owner);

	if (r == -EPERM)
		log_error(r, path,
			  "root makes no directory for a cache there, as %s belongs to uid %u; "
			  "run it with the HOME of root (sudo -H), or name a directory with "
			  "cache_dir=",
			  above, (unsigned)owner);
	free(above);
	return r;
}

int cache_find(const char *dir, bool make, struct cache **ret_cache)
{
	char *path = dir ? strdup(dir) : NULL, *found = NULL;
	struct cache *c;
	int r = dir ? 0 : cache_user_dir("XDG_CACHE_HOME", ".cache", &path);

	if (r < 0 || !path)
		return r < 0 ? r : -ENOMEM;
	c = calloc(1, sizeof(*c));
	r = !c ? -ENOMEM : make || is_cache(path) ? 0 : -ENOENT;
	if (r < 0) {
		free(c);
		free(path);
		return r;
	}
	c->objects = c->partial = c->notes = c->seals = c->tmp = -1;
	c->top = c->v1 = -1;
	pthread_mutex_init(&c->space_lock, NULL);
	r = dir ? 0 : check_home(path);
	if (r == 0)
		r = open_top(path, &c->top);
	/* root may become another user: cache_start() checks the owner then */
	if (r == 0 && geteuid() != 0)
		r = check_dir(c->top, path, "", false);
	if (r == 0)
		r = open_subdir(c->top, "v1", path, &c->v1);
	if (r == 0)
		found = realpath(path, NULL);
	if (r == 0 && (!found || asprintf(&c->path, "%s/v1", found) < 0)) {
		r = found ? -ENOMEM : -errno;
		c->path = NULL;
	}
	free(found);
	free(path);
	if (r < 0)
		cache_close(c);
	else
		*ret_cache = c;
	return r;
}

int cache_start(struct cache *c, uint64_t size_limit)
{
	int r = open_layout(c);

	if (r == 0)
		r = set_limit(c, size_limit);
	if (r < 0)
		return r;
	fd_close(c->top);
	c->top = -1;
	cache_sweep(c);
	return 0;
}

int cache_open(const char *dir, uint64_t size_limit, struct cache **ret_cache)
{
	struct cache *c;
	int r = cache_find(dir, true, &c);

	if (r < 0)
		return r;
	r = cache_start(c, size_limit);
	if (r < 0)
		cache_close(c);
	else
		*ret_cache = c;
	return r;
}

const char *cache_directory(const struct cache *c)
{
	return c->path;
}

void cache_close(struct cache *c)
{
	if (!c)
		return;
	fd_close(c->objects);
	fd_close(c->partial);
	fd_close(c->notes);
	fd_close(c->seals);
	fd_close(c->tmp);
	fd_close(c->v1);
	fd_close(c->top);
	pthread_mutex_destroy(&c->space_lock);
	cache_use_key(c, NULL);
	free(c->path);
	free(c);
}
