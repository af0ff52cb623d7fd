/* SPDX-License-Identifier: Apache-2.0 */
#include "archive/dir.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "archive/decode.h"

struct dir {
	struct container container;
	int root;
	size_t cap; /* allocated elements of container.entries */
};

/* glibc has no wrapper */
static int open_beneath(int root, const char *path, int flags)
{
	struct open_how how = {
		.flags = (uint64_t)(flags | O_CLOEXEC),
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
	};
	int fd;

	do /* EAGAIN: concurrent rename */
		fd = (int)syscall(SYS_openat2, root, path, &how, sizeof(how));
	while (fd < 0 && (errno == EINTR || errno == EAGAIN));
	return fd < 0 ? -errno : fd;
}

/* ---- reading ---- */

static int dir_locate(struct container *c, const struct entry *e, struct source **ret_source,
		      uint64_t *ret_off)
{
	struct dir *d = container_of(c, struct dir, container);
	int fd = open_beneath(d->root, e->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
	struct source *source;
	struct stat st;
	int r;

	/*
	 * the entry was a regular file when it was listed: a failure here means that the directory
	 * has changed
	 */
	if (fd < 0)
		return log_error(fd == -ENOENT || fd == -ENOTDIR || fd == -ELOOP ? -EIO : fd,
				 e->name, "cannot open: %s", strerror(-fd));
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
		carton_log(CARTON_LOG_ERROR, e->name, "is no longer a regular file");
		fd_close(fd);
		return -EIO;
	}
	r = source_from_fd(fd, &source);
	if (r < 0)
		return r;
	if (source->size != e->size) {
		carton_log(CARTON_LOG_ERROR, e->name, "had %llu bytes when listed, has %llu now",
			   (unsigned long long)e->size, (unsigned long long)source->size);
		source_unref(source);
		return -EBADMSG;
	}
	*ret_source = source;
	*ret_off = 0;
	return 0;
}

static int dir_readlink(struct container *c, const struct entry *e, struct buf *ret)
{
	struct dir *d = container_of(c, struct dir, container);
	int fd = open_beneath(d->root, e->name, O_PATH | O_NOFOLLOW);
	char target[MAX_PATH_LEN + 1];
	ssize_t n;

	if (fd < 0)
		return fd;
	n = readlinkat(fd, "", target, sizeof(target));
	fd_close(fd);
	if (n < 0)
		return -errno;
	if ((size_t)n == sizeof(target))
		return -EFBIG;
	ret->max = sizeof(target);
	return buf_add(ret, target, (size_t)n);
}

/* ---- listing ---- */

static struct entry *add_entry(struct dir *d)
{
	struct container *c = &d->container;

	if (array_room(c->entries, &d->cap, c->n_entries + 1) < 0)
		return NULL;
	memset(&c->entries[c->n_entries], 0, sizeof(struct entry));
	return &c->entries[c->n_entries];
}

/* Adds the entry `name` of the directory `fd`, whose path is `prefix`. */
static int list_one(struct dir *d, int fd, const char *prefix, const char *name)
{
	size_t prefix_len = strlen(prefix), len = prefix_len + (prefix_len > 0) + strlen(name);
	struct entry *e = add_entry(d);
	const char *fault;
	char *path;
	struct stat st;
	int r;

	if (d->container.n_entries >= MAX_ENTRIES)
		return log_error(-EFBIG, prefix, "more than %d entries", MAX_ENTRIES);
	/* the array may be twice as large as needed */
	r = budget_take(d->container.budget, 2 * sizeof(*e) + len + sizeof(uint64_t));
	if (r < 0)
		return r;
	if (!e || !(path = arena_alloc(&d->container.names, len + 1)))
		return -ENOMEM;
	memcpy(path, prefix, prefix_len);
	path[prefix_len] = '/';
	strcpy(path + prefix_len + (prefix_len > 0), name);
	e->name = path;
	d->container.n_entries++;
	fault = path_fault(path, len);
	if (fault)
		return log_error(-EBADMSG, e->name, "%s", fault);
	if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	e->name_len = len & 0xfff;
	e->size = e->stored = S_ISDIR(st.st_mode) ? 0 : (uint64_t)st.st_size;
	e->mtime = MAX(MIN((int64_t)st.st_mtime, MAX_TIME), -MAX_TIME);
	e->method = METHOD_STORED;
	e->executable = S_ISREG(st.st_mode) && (st.st_mode & 0111);
	if (S_ISDIR(st.st_mode)) {
		e->kind = ENTRY_DIR;
	} else if (S_ISLNK(st.st_mode)) {
		e->kind = ENTRY_SYMLINK;
	} else if (S_ISREG(st.st_mode)) {
		e->kind = ENTRY_FILE;
	} else {
		return log_error(-EBADMSG, e->name,
				 "is a fifo, device or socket; a carton has files, directories and "
				 "symlinks");
	}
	return 0;
}

/*
 * Lists the directory `fd` (closed on return), whose path is `prefix`, but not its subdirectories.
 */
static int list_level(struct dir *d, int fd, const char *prefix)
{
	DIR *stream = fdopendir(fd);
	const struct dirent *entry;
	int r = 0;

	if (!stream) {
		r = -errno;
		fd_close(fd);
		return r;
	}
	while (r == 0) {
		errno = 0;
		entry = readdir(stream);
		if (!entry) {
			r = -errno;
			break;
		}
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			r = list_one(d, fd, prefix, entry->d_name);
	}
	closedir(stream);
	return r;
}

/* Lists everything. The entries found so far are the queue of directories to list. */
static int list_all(struct dir *d)
{
	int fd = open_beneath(d->root, ".", O_RDONLY | O_DIRECTORY);
	int r = fd < 0 ? fd : list_level(d, fd, "");

	for (size_t i = 0; r == 0 && i < d->container.n_entries; i++) {
		/* the array moves when it grows, the names do not */
		const char *name = d->container.entries[i].name;

		if (d->container.entries[i].kind != ENTRY_DIR)
			continue;
		fd = open_beneath(d->root, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
		r = fd < 0 ? fd : list_level(d, fd, name);
		if (r < 0 && r != -EBADMSG)
			carton_log(CARTON_LOG_ERROR, name, "cannot list: %s", strerror(-r));
	}
	return r;
}

static void dir_free(struct container *c)
{
	struct dir *d = container_of(c, struct dir, container);

	free(c->entries);
	arena_finish(&c->names);
	fd_close(d->root);
	free(d);
}

static const struct container_ops dir_ops = { dir_locate, NULL, NULL,	 dir_readlink,
					      NULL,	  NULL, dir_free };

int dir_open(int fd, struct budget *budget, struct container **ret)
{
	struct dir *d = calloc(1, sizeof(*d));
	struct stat st;
	int r;

	if (!d) {
		fd_close(fd);
		return -ENOMEM;
	}
	d->container.ops = &dir_ops;
	d->container.budget = budget;
	d->root = fd;
	r = fstat(fd, &st) < 0 ? -errno : list_all(d);
	if (r == 0) {
		d->container.mtime = st.st_mtime;
		r = container_index(&d->container);
	}
	if (r < 0)
		dir_free(&d->container);
	else
		*ret = &d->container;
	return r;
}
