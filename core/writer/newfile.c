/* SPDX-License-Identifier: Apache-2.0 */
#include "writer/newfile.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_size.h"
#include "base/util.h"
#include "cache/cache.h"

#define TRIES 16 /* if several processes publish the same name at once, one of them is first */

static int failed(const struct newfile *o, const char *what, int r)
{
	return log_error(r, o->path, "%s: %s", what, carton_write_error(r));
}

/* The directory of `path`, malloc'ed: "." for a bare name. NULL: no memory. */
static char *directory_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
}

/* Only a regular file may be replaced. */
static int check_old(const struct newfile *o)
{
	struct stat st;

	if (fstatat(o->dir, o->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : failed(o, "cannot be written", -errno);
	if (S_ISREG(st.st_mode))
		return 0;
	return log_error(S_ISDIR(st.st_mode) ? -EISDIR : -EEXIST, o->path,
			 "is there and is not a regular file");
}

/*
 * Removes the file `temporary` that a killed process of this user has left, unless a living one
 * writes it.
 */
static int remove_left(const struct newfile *o)
{
	int fd = openat(o->dir, o->temporary, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat st;
	int r = fd < 0 ? -errno : fstat(fd, &st) < 0 ? -errno : 0;

	if (r == 0 && st.st_uid != geteuid())
		r = log_error(-EPERM, o->path,
			      "cannot be written: %s is there and belongs to uid %u, not to %u",
			      o->temporary, (unsigned)st.st_uid, (unsigned)geteuid());
	else if (r == 0 && flock(fd, LOCK_EX | LOCK_NB) < 0)
		r = log_error(-EBUSY, o->path, "is being written by another process");
	else if (r == 0 && unlinkat(o->dir, o->temporary, 0) < 0)
		r = failed(o, "cannot be written", -errno);
	else if (r < 0)
		r = r == -ENOENT ? 0 : failed(o, "cannot be written", r);
	fd_close(fd);
	return r;
}

/* Makes the file `temporary`, locked. An older file is not used: others might have it open. */
static int open_named(struct newfile *o)
{
	const int flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
	struct stat st;
	int r = 0;

	for (unsigned i = 0; i < TRIES && r == 0; i++) {
		o->fd = openat(o->dir, o->temporary, flags, 0666);
		if (o->fd >= 0 || errno != EEXIST)
			break;
		r = remove_left(o);
	}
	if (r < 0)
		return r;
	if (o->fd < 0)
		return failed(o, "cannot be written", -errno);
	/* another process may have taken the file for a left one, and removed it */
	if (flock(o->fd, LOCK_EX | LOCK_NB) < 0 || fstat(o->fd, &st) < 0 || st.st_nlink != 1)
		return log_error(-EBUSY, o->path, "is being written by another process");
	o->named = true;
	return 0;
}

static int open_file(struct newfile *o)
{
	o->fd = openat(o->dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
	if (o->fd >= 0)
		return 0;
	if (errno == EOPNOTSUPP || errno == EISDIR || errno == ENOENT || errno == EINVAL)
		return open_named(o);
	return failed(o, "cannot be written", -errno);
}

/* ---- an open file ---- */

#define COPY_BLOCK MIB

/* Finds out where it lies, if it is a regular file: that must not become a part of itself. */
static int find_name(struct newfile *o)
{
	char self[32], name[MAX_PATH_LEN + 1];
	struct stat st;
	ssize_t n;

	if (fstat(o->to, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || st.st_nlink == 0)
		return 0;
	snprintf(self, sizeof(self), "/proc/self/fd/%d", o->to);
	n = readlink(self, name, sizeof(name) - 1);
	if (n < 0)
		return -errno;
	name[n] = '\0';
	o->directory = directory_of(name);
	o->temporary = strdup(strrchr(name, '/') ? strrchr(name, '/') + 1 : name);
	o->name = o->temporary;
	return o->directory && o->temporary ? 0 : -ENOMEM;
}

static int begin_open(struct newfile *o, int to)
{
	int flags = fcntl(to, F_GETFL), access = flags & O_ACCMODE, r;

	if (flags < 0 || flags & O_PATH || (access != O_WRONLY && access != O_RDWR))
		return log_error(-EBADF, o->path, "is not open for writing");
	if (isatty(to))
		return log_error(-ENOTTY, o->path, "is a terminal: name a file or a pipe");
	o->to = fd_dup(to);
	r = o->to < 0 ? o->to : find_name(o);
	if (r < 0)
		return failed(o, "cannot be written", r);
	return cache_tmpfile(NULL, &o->fd);
}

/* One write(2), which also waits where the file would not. */
static ssize_t write_some(int fd, const char *data, size_t n)
{
	ssize_t put;

	do
		put = fd_append(fd, data, n);
	while (put == -EAGAIN &&
	       (poll(&(struct pollfd){ fd, POLLOUT, 0 }, 1, -1) >= 0 || errno == EINTR));
	return put;
}

static int copy_out(const struct newfile *o, uint64_t size, uint64_t *ret_done)
{
	char *block = malloc(COPY_BLOCK);
	int r = block ? 0 : -ENOMEM;

	while (r == 0 && *ret_done < size) {
		size_t n = (size_t)MIN(COPY_BLOCK, size - *ret_done), at = 0;

		r = pread_full(o->fd, block, n, *ret_done);
		while (r == 0 && at < n) {
			ssize_t put = write_some(o->to, block + at, n - at);

			r = put < 0 ? (int)put : put == 0 ? -EIO : 0;
			at += put > 0 ? (size_t)put : 0;
		}
		*ret_done += r == 0 ? n : at;
	}
	free(block);
	/* a full disk may be found late; what is no file cannot do that */
	if (r == 0 && fsync(o->to) < 0 && errno != EINVAL && errno != ENOTSUP && errno != EROFS)
		r = -errno;
	return r;
}

static int publish_open(const struct newfile *o)
{
	uint64_t done = 0;
	struct stat st;
	int r = fstat(o->fd, &st) < 0 ? -errno : 0;

	if (r < 0)
		return failed(o, "cannot be written", r);
	r = copy_out(o, (uint64_t)st.st_size, &done);
	if (r == 0)
		return 0;
	return log_error(r, o->path, "cannot be written: %s; it has %llu of %llu bytes",
			 r == -EPIPE ? "its reader has ended" : carton_write_error(r),
			 (unsigned long long)done, (unsigned long long)st.st_size);
}

/* ---- a path ---- */

static int begin_path(struct newfile *o)
{
	int r = 0;

	o->directory = directory_of(o->path);
	o->name = strrchr(o->path, '/');
	o->name = o->name ? o->name + 1 : o->path;
	if (!*o->name || strcmp(o->name, ".") == 0 || strcmp(o->name, "..") == 0)
		return log_error(-EINVAL, o->path, "is not the name of a file");
	if (!o->directory || asprintf(&o->temporary, ".%s.new", o->name) < 0) {
		o->temporary = NULL;
		return -ENOMEM;
	}
	o->dir = open(o->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	r = o->dir < 0 ? failed(o, "cannot open its directory", -errno) : check_old(o);
	return r == 0 ? open_file(o) : r;
}

int newfile_begin(const char *path, struct newfile *ret)
{
	int to = fd_named(path);
	struct newfile o = {
		.path = strdup(to < 0 ? path : "the output"), .dir = -1, .fd = -1, .to = -1
	};
	int r = !o.path ? -ENOMEM : to < 0 ? begin_path(&o) : begin_open(&o, to);

	if (r < 0)
		newfile_end(&o);
	else
		*ret = o;
	return r;
}

static int link_as(const struct newfile *o, const char *name)
{
	char self[32];

	snprintf(self, sizeof(self), "/proc/self/fd/%d", o->fd);
	return linkat(AT_FDCWD, self, o->dir, name, AT_SYMLINK_FOLLOW) < 0 ? -errno : 0;
}

static int rename_temporary(const struct newfile *o)
{
	return renameat(o->dir, o->temporary, o->dir, o->name) < 0 ? -errno : 0;
}

/* Links the unnamed file at `name`, in place of an older file. */
static int replace(const struct newfile *o)
{
	int r = link_as(o, o->name);

	for (unsigned i = 0; i < TRIES && (r == -EEXIST || r == -ENOENT); i++) {
		r = link_as(o, o->temporary);
		/*
		 * a killed process has left it, or another process is publishing now and will try
		 * again
		 */
		if (r == -EEXIST)
			unlinkat(o->dir, o->temporary, 0);
		else if (r == 0)
			r = rename_temporary(o);
	}
	return r;
}

int newfile_publish(struct newfile *o)
{
	int r;

	if (o->to >= 0)
		return publish_open(o);
	r = fsync(o->fd) < 0 ? -errno : check_old(o);
	if (r == 0)
		r = o->named ? rename_temporary(o) : replace(o);
	if (r < 0)
		return failed(o, "cannot be written", r);
	o->named = false;
	/* some file systems cannot; the file has its name anyway */
	fsync(o->dir);
	return 0;
}

void newfile_end(struct newfile *o)
{
	if (o->named)
		unlinkat(o->dir, o->temporary, 0);
	fd_close(o->path ? o->fd : -1);
	fd_close(o->path ? o->dir : -1);
	fd_close(o->path ? o->to : -1);
	free(o->temporary);
	free(o->directory);
	free(o->path);
	*o = (struct newfile){ .dir = -1, .fd = -1, .to = -1 };
}
