/* SPDX-License-Identifier: Apache-2.0 */
#include "archive/dir.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "archive/decode.h"
#include "archive/leave_out.h"

#define MODEL "model/"

struct dir {
	struct container container;
	int root;
	size_t cap; /* allocated elements of container.entries */
	enum dir_links links;
	char *below; /* of struct dir_rules, with a slash behind it; or NULL */
	bool flat;
	struct leave_out *out; /* while a directory is listed that is to be packed; else NULL */
	const char *const *signed_but; /* of struct dir_rules */
};

/* The path of an entry, in the directory that is listed. */
static const char *in_directory(const struct dir *d, const char *name)
{
	return name + (d->flat && strncmp(name, MODEL, strlen(MODEL)) == 0 ? strlen(MODEL) : 0);
}

/* Opens `path` of the directory that is listed; "": itself. `links`: how symlinks are followed. */
static int open_as(const struct dir *d, const char *path, int flags, enum dir_links links)
{
	struct open_how how = {
		.flags = (uint64_t)(flags | O_CLOEXEC | (links == DIR_LINKS_KEPT ? O_NOFOLLOW : 0)),
		.resolve = RESOLVE_NO_MAGICLINKS |
			   (links == DIR_LINKS_ANYWHERE ? 0 : RESOLVE_BENEATH) |
			   (links == DIR_LINKS_KEPT ? RESOLVE_NO_SYMLINKS : 0),
	};
	char all[2 * (MAX_PATH_LEN + 1)];
	int fd;

	snprintf(all, sizeof(all), "%s%s", d->below ? d->below : "", *path ? path : ".");
	do /* EAGAIN: concurrent rename; glibc has no wrapper */
		fd = (int)syscall(SYS_openat2, d->root, all, &how, sizeof(how));
	while (fd < 0 && (errno == EINTR || errno == EAGAIN));
	return fd < 0 ? -errno : fd;
}

static int open_entry(const struct dir *d, const char *name, int flags)
{
	return open_as(d, in_directory(d, name), flags, d->links);
}

/* ---- reading ---- */

static int dir_locate(struct container *c, const struct entry *e, struct source **ret_source,
		      uint64_t *ret_off)
{
	struct dir *d = container_of(c, struct dir, container);
	int fd = open_entry(d, e->name, O_RDONLY | O_NONBLOCK);
	struct source *source;
	struct stat st;
	int r;

	/*
	 * the entry was a regular file when it was listed: a failure here means that the directory
	 * has changed
	 */
	if (fd < 0)
		return log_error(
			fd == -ENOENT || fd == -ENOTDIR || fd == -ELOOP || fd == -EXDEV ? -EIO : fd,
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
	int fd = open_entry(d, e->name, O_PATH);
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

/* The metadata of what `path` is or, if that is followed, of what it leads to. 0 or -errno. */
static int stat_as(const struct dir *d, const char *path, enum dir_links links, struct stat *ret)
{
	int fd = open_as(d, path, O_PATH, links), r;

	if (fd < 0)
		return fd;
	r = fstat(fd, ret) < 0 ? -errno : 0;
	fd_close(fd);
	return r;
}

/* Is `st` a directory above the symlink `path`, or the one that is listed? */
static bool is_above(const struct dir *d, const char *path, const struct stat *st)
{
	char above[MAX_PATH_LEN + 1];
	struct stat at;
	char *slash;

	strcpy(above, path);
	do {
		slash = strrchr(above, '/');
		*(slash ? slash : above) = '\0';
		if (stat_as(d, above, d->links, &at) == 0 && at.st_dev == st->st_dev &&
		    at.st_ino == st->st_ino)
			return true;
	} while (slash);
	return false;
}

/* Replaces the metadata of the symlink `name` by those of what it leads to, if that is an entry. */
static int follow(const struct dir *d, const char *name, struct stat *st)
{
	const char *path = in_directory(d, name);
	enum dir_links links = d->links == DIR_LINKS_KEPT ? DIR_LINKS_BENEATH : d->links;
	struct stat target;
	int r = stat_as(d, path, links, &target);

	if (r == -EXDEV)
		return log_error(-EBADMSG, name,
				 "is a symlink that does not lead to a file of the directory; "
				 "--dereference packs what it leads to");
	/* of carton.toml and the like, others say it */
	if (d->links == DIR_LINKS_KEPT && strchr(name, '/') && (r == -ENOENT || r == -ELOOP))
		return log_error(-EBADMSG, name,
				 "is a symlink that does not lead to a file: remove it, or leave "
				 "it out with --exclude=GLOB");
	/* whether the carton has what it leads to is known when all is listed */
	if (d->links == DIR_LINKS_KEPT)
		return 0;
	if (r < 0)
		return log_error(-EBADMSG, name, "is a symlink that cannot be followed: %s",
				 strerror(-r));
	if (S_ISDIR(target.st_mode) && is_above(d, path, &target))
		return log_error(-EBADMSG, name, "is a symlink to a directory that it is in");
	*st = target;
	return 0;
}

/* Fills in what the metadata say. `e` has its name. */
static int set_kind(const struct dir *d, struct entry *e, struct stat *st)
{
	bool follows = d->out || d->links != DIR_LINKS_KEPT;
	int r = follows && S_ISLNK(st->st_mode) ? follow(d, e->name, st) : 0;

	if (r < 0)
		return r;
	e->size = e->stored = S_ISDIR(st->st_mode) ? 0 : (uint64_t)st->st_size;
	e->mtime = MAX(MIN((int64_t)st->st_mtime, MAX_TIME), -MAX_TIME);
	e->method = METHOD_STORED;
	e->executable = S_ISREG(st->st_mode) && (st->st_mode & 0111);
	if (S_ISDIR(st->st_mode))
		e->kind = ENTRY_DIR;
	else if (S_ISLNK(st->st_mode))
		e->kind = ENTRY_SYMLINK;
	else if (S_ISREG(st->st_mode))
		e->kind = ENTRY_FILE;
	else
		return log_error(-EBADMSG, e->name,
				 "is a fifo, device or socket; a carton has files, directories and "
				 "symlinks");
	return 0;
}

/* Is `name` of the directory `prefix` left out? As leave_out(). */
static int is_left_out(struct dir *d, const char *prefix, const char *name)
{
	char path[MAX_PATH_LEN + 1];
	int n;

	if (!d->out && !d->signed_but)
		return 0;
	prefix = in_directory(d, prefix);
	n = snprintf(path, sizeof(path), "%s%s%s", prefix, *prefix ? "/" : "", name);
	for (const char *const *p = d->signed_but; p && *p; p++)
		if (strcmp(path, *p) == 0)
			return 1;
	/* a longer one is refused */
	return d->out && n < (int)sizeof(path) ? leave_out(d->out, path) : 0;
}

/* Adds the entry `name` of the directory `fd`, whose path is `prefix`. */
static int list_one(struct dir *d, int fd, const char *prefix, const char *name)
{
	size_t prefix_len, len;
	struct entry *e;
	const char *fault;
	char *path;
	struct stat st;
	int r = is_left_out(d, prefix, name);

	if (r != 0)
		return MIN(r, 0);
	if (d->flat && !*prefix && strcmp(name, "carton.toml") != 0)
		prefix = "model";
	prefix_len = strlen(prefix);
	len = prefix_len + (prefix_len > 0) + strlen(name);
	e = add_entry(d);
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
	return set_kind(d, e, &st);
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
	int fd = open_entry(d, "", O_RDONLY | O_DIRECTORY);
	int r = fd < 0 ? fd : list_level(d, fd, "");

	for (size_t i = 0; r == 0 && i < d->container.n_entries; i++) {
		/* the array moves when it grows, the names do not */
		const char *name = d->container.entries[i].name;

		if (d->container.entries[i].kind != ENTRY_DIR)
			continue;
		fd = open_entry(d, name, O_RDONLY | O_DIRECTORY);
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
	free(d->below);
	free(d);
}

static const struct container_ops dir_ops = {
	.locate = dir_locate,
	.readlink = dir_readlink,
	.free = dir_free,
};

/* Has it a directory that only a carton, packed or not, has? */
static bool has_parts(const struct dir *d)
{
	static const char *const parts[] = { "model", "misc", "tensor_data" };
	struct stat st;

	for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
		if (stat_as(d, parts[i], d->links, &st) == 0 && S_ISDIR(st.st_mode))
			return true;
	return false;
}

static int list_by(struct dir *d, const struct dir_rules *rules)
{
	struct leave_out out = { .patterns = rules->exclude };
	int r;

	d->links = rules->links;
	if (rules->below && asprintf(&d->below, "%s/", rules->below) < 0) {
		d->below = NULL;
		return -ENOMEM;
	}
	d->signed_but = rules->signed_but;
	if (d->signed_but)
		return list_all(d);
	d->flat = rules->flat || !has_parts(d);
	d->out = &out;
	r = list_all(d);
	d->out = NULL;
	if (r == 0)
		leave_out_end(&out);
	return r;
}

int dir_open(int fd, const struct dir_rules *rules, struct budget *budget, struct container **ret)
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
	r = fstat(fd, &st) < 0 ? -errno : rules ? list_by(d, rules) : list_all(d);
	if (r == 0) {
		d->container.mtime = st.st_mtime;
		d->container.dated = true;
		r = container_index(&d->container);
	}
	if (r < 0)
		dir_free(&d->container);
	else
		*ret = &d->container;
	return r;
}
