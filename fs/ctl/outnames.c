/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/outnames.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_REPORTED 20

/* bits of carton_mark() */
#define CHOSEN 1 /* the file is extracted; or a file in this directory is */
#define OLD 2	 /* a listing before the run had exactly this name */
#define LISTED 4 /* a listing at the end has exactly this name */

static bool has(struct carton_node *node, unsigned char bit)
{
	return atomic_load(carton_mark(node)) & bit;
}

/* Sets the bit. Returns whether it was set. */
static bool set(struct carton_node *node, unsigned char bit)
{
	return atomic_fetch_or(carton_mark(node), bit) & bit;
}

/* The directory of a node; NULL: the node is the root. */
static struct carton_node *parent_of(const struct carton_node *node)
{
	struct carton_node *parent = carton_parent(node);

	return parent == node ? NULL : parent;
}

bool outnames_choose(struct carton_node *file)
{
	return !set(file, CHOSEN);
}

bool outnames_was_there(struct carton_node *file)
{
	return has(file, OLD);
}

/* ---- listings ---- */

/* Sets the bit of each child of `node` whose name is in the directory `fd`. */
static int list(int fd, const struct carton_node *node, unsigned char bit)
{
	int own = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *stream = own < 0 ? NULL : fdopendir(own);
	struct carton_node *child;
	const struct dirent *e;
	int r;

	if (!stream) {
		r = -errno;
		if (own >= 0)
			close(own);
		return r;
	}
	while (errno = 0, e = readdir(stream))
		if (carton_lookup(node, e->d_name, &child) == 0)
			set(child, bit);
	r = -errno;
	closedir(stream);
	return r;
}

static int add_taken(struct outnames *n, struct carton_node *node)
{
	ctl_add_file(&n->taken, node);
	return n->taken.no_memory ? -ENOMEM : 0;
}

/* Makes the directory, and notes what was in it before. */
static int make_directory(struct outnames *n, struct carton_node *node)
{
	struct carton_node *parent = parent_of(node);
	bool made = n->out->fresh && !parent;
	char path[4096];
	int fd, r = 0;

	if (set(node, CHOSEN))
		return 0;
	if (parent)
		r = make_directory(n, parent);
	if (r < 0)
		return r;
	carton_path(node, path);
	fd = outdir_directory(n->out, path, &made);
	/* the files in it will report why there is none */
	if (fd < 0)
		return 0;
	ctl_add_file(&n->dirs, node);
	if (n->dirs.no_memory)
		r = -ENOMEM;
	else if (!made && parent && !has(node, OLD))
		r = add_taken(n, node);
	else if (!made)
		r = list(fd, node, OLD);
	close(fd);
	return r;
}

int outnames_begin(struct outnames *n, const struct ctl_files *files)
{
	int r = 0;

	for (size_t i = 0; i < files->n && r == 0; i++)
		if (parent_of(files->list[i]))
			r = make_directory(n, parent_of(files->list[i]));
	return r == 0 && n->taken.n ? -EEXIST : r;
}

void outnames_finish(struct outnames *n)
{
	free(n->dirs.list);
	free(n->taken.list);
}

/* Adds those of the files that no listing at the end has. */
static int add_unlisted(struct outnames *n, const struct ctl_files *files)
{
	int r = 0;

	for (size_t i = 0; i < files->n && r == 0; i++)
		if (parent_of(files->list[i]) && !has(files->list[i], LISTED))
			r = add_taken(n, files->list[i]);
	return r;
}

int outnames_check(struct outnames *n, const struct ctl_files *files)
{
	char path[4096];
	bool made;
	int r = 0;

	for (size_t i = 0; i < n->dirs.n && r == 0; i++) {
		int fd;

		carton_path(n->dirs.list[i], path);
		fd = outdir_directory(n->out, path, &made);
		r = fd < 0 ? fd : list(fd, n->dirs.list[i], LISTED);
		if (fd >= 0)
			close(fd);
	}
	if (r == 0)
		r = add_unlisted(n, &n->dirs);
	if (r == 0)
		r = add_unlisted(n, files);
	return r == 0 && n->taken.n ? -EEXIST : r;
}

/* ---- one name ---- */

int outnames_place(struct outnames *n, const char *temporary, int parent, struct carton_node *file)
{
	const char *name = carton_name(file);
	struct stat st;
	int r = 0;

	/* no other thread may rename a file between this look and the rename */
	pthread_mutex_lock(&n->lock);
	if (!has(file, OLD) && fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
		r = add_taken(n, file);
		r = r < 0 ? r : -EEXIST;
	} else if (renameat(n->out->tmp, temporary, parent, name) < 0) {
		r = -errno;
	}
	pthread_mutex_unlock(&n->lock);
	return r;
}

/*
 * The other name of the carton for which the file system takes this one; NULL: none. Tries it in
 * the temporary directory, which is empty now: makes a file, and looks for it by the other names.
 */
static struct carton_node *other_name(const struct outnames *n, const struct carton_node *node)
{
	const char *name = carton_name(node);
	struct carton_node *child, *found = NULL;
	struct stat st;
	int fd = openat(n->out->tmp, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	if (fd < 0)
		return NULL;
	for (size_t i = 0; !found && (child = carton_child(parent_of(node), i)); i++)
		if (child != node && has(child, CHOSEN) &&
		    fstatat(n->out->tmp, carton_name(child), &st, AT_SYMLINK_NOFOLLOW) == 0)
			found = child;
	close(fd);
	unlinkat(n->out->tmp, name, 0);
	return found;
}

void outnames_report(const struct outnames *n)
{
	char path[4096], other[4096];

	for (size_t i = 0; i < n->taken.n && i < MAX_REPORTED; i++) {
		const struct carton_node *node = n->taken.list[i], *twin = other_name(n, node);

		carton_path(node, path);
		if (twin)
			carton_path(twin, other);
		carton_log(CARTON_LOG_ERROR, path, "cannot be in %s beside %s: %s", n->out->path,
			   twin ? other : "what is there",
			   twin ? "they are one name to its file system; extract to another one" :
				  "its file system changes this name, or takes it for one that is "
				  "there; extract to another one");
	}
	if (n->taken.n > MAX_REPORTED)
		carton_log(CARTON_LOG_ERROR, n->out->path,
			   "cannot have %zu more names as they are in the carton",
			   n->taken.n - MAX_REPORTED);
}
