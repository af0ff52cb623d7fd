/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/outdir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "carton.h"

/* in the output directory, for files that are being written; removed at the end */
#define TMP_NAME ".cartonctl-extract"

/* ---- directories in it ---- */

bool outdir_trusts(const struct outdir *o, const struct stat *st)
{
	return st->st_uid == geteuid() || st->st_uid == 0 || st->st_uid == o->owner;
}

/*
 * Opens a directory beneath `at`, and makes it if it is missing; *ret_made says whether it was.
 * -EPERM: another user has made it.
 */
static int enter(const struct outdir *o, int at, const char *name, bool *ret_made)
{
	int fd = openat(at, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;

	*ret_made = fd < 0 && errno == ENOENT && mkdirat(at, name, 0777) == 0;
	if (*ret_made || (fd < 0 && errno == EEXIST))
		fd = openat(at, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) == 0 && outdir_trusts(o, &st))
		return fd;
	close(fd);
	return -EPERM;
}

/*
 * Opens the directory at the first bytes of `path`, beneath the output directory; missing
 * directories are made. *ret_made: whether the last one was; untouched if len is 0.
 */
static int open_directory(const struct outdir *o, const char *path, size_t len, bool *ret_made)
{
	int at = fcntl(o->root, F_DUPFD_CLOEXEC, 0), next = at < 0 ? -errno : at;
	const char *end = path + len;
	char name[256];

	while (next >= 0 && path < end) {
		size_t n = strcspn(path, "/");

		if (n < sizeof(name)) {
			memcpy(name, path, n);
			name[n] = '\0';
			next = enter(o, at, name, ret_made);
		} else {
			next = -ENAMETOOLONG;
		}
		close(at);
		at = next;
		path += n + 1;
	}
	return next;
}

int outdir_directory(const struct outdir *o, const char *path, bool *ret_made)
{
	return open_directory(o, path, strlen(path), ret_made);
}

int outdir_parent(const struct outdir *o, struct outdir_parent *p, const char *path,
		  const char **ret_name)
{
	const char *slash = strrchr(path, '/');
	size_t len = slash ? (size_t)(slash - path) : 0;
	bool made;

	*ret_name = slash ? slash + 1 : path;
	if (p->fd >= 0 && len == p->len && memcmp(path, p->path, len) == 0)
		return 0;
	if (p->fd >= 0)
		close(p->fd);
	p->fd = open_directory(o, path, len, &made);
	p->len = len;
	memcpy(p->path, path, len);
	return p->fd < 0 ? p->fd : 0;
}

/* ---- the temporary directory ---- */

/* Counts the names in a directory; `remove`: removes its files. */
static size_t count_names(int dir, bool remove)
{
	int own = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *stream = own < 0 ? NULL : fdopendir(own);
	const struct dirent *e;
	size_t n = 0;

	for (; stream && (e = readdir(stream)); n++)
		if (remove)
			unlinkat(dir, e->d_name, 0);
	if (stream)
		closedir(stream);
	return n;
}

/*
 * Does the directory belong to this user alone? Another user could put his bytes into our files. 0
 * or -EPERM, logged.
 */
static int check_tmp(const struct outdir *o, int fd)
{
	char why[CARTON_WHY];
	int r = carton_check_own(fd, why);

	if (r < 0)
		carton_log(CARTON_LOG_ERROR, o->path,
			   "cannot extract there: " TMP_NAME " %s; remove it", why);
	return r < 0 ? -EPERM : 0;
}

/*
 * Makes and locks the temporary directory. -EBUSY: another process extracts to the same output
 * directory. -EPERM, logged: another user has made the temporary one.
 */
static int open_tmp(struct outdir *o)
{
	for (;;) {
		struct stat st;
		int fd, r;

		if (mkdirat(o->root, TMP_NAME, 0700) < 0 && errno != EEXIST)
			return errno == EPERM ? -EACCES : -errno;
		fd = openat(o->root, TMP_NAME, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (fd < 0 && errno == ENOENT)
			continue;
		if (fd < 0)
			return -errno;
		r = check_tmp(o, fd);
		if (r == 0 && flock(fd, LOCK_EX | LOCK_NB) < 0)
			r = -EBUSY;
		if (r < 0) {
			close(fd);
			return r;
		}
		/* another process may have removed it after it was opened */
		if (fstat(fd, &st) == 0 && st.st_nlink > 0) {
			count_names(fd, true); /* leftovers */
			o->tmp = fd;
			return 0;
		}
		close(fd);
	}
}

/* ---- all ---- */

int outdir_open(const char *path, struct outdir *ret)
{
	struct outdir o = { .path = path, .root = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) };
	struct stat st;
	int r = o.root < 0 || fstat(o.root, &st) < 0 ? -errno : 0;

	if (r == 0) {
		o.fresh = count_names(o.root, false) == 2;
		o.owner = st.st_uid;
		r = open_tmp(&o);
	}
	if (r == 0)
		*ret = o;
	else if (o.root >= 0)
		close(o.root);
	return r;
}

void outdir_close(struct outdir *o)
{
	unlinkat(o->root, TMP_NAME, AT_REMOVEDIR);
	close(o->tmp);
	close(o->root);
}
