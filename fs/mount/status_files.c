/* SPDX-License-Identifier: Apache-2.0 */
#include "mount/status_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "mount/writes.h"

/*
 * The inode numbers of these files, both for the kernel and in st_ino. All others but that of the
 * root are larger: see INO_FIRST and `ino` of struct carton_stat.
 */
enum { INO_DIR = 2, INO_JSON, INO_METRICS, INO_END };

static const char *const names[] = {
	[INO_DIR] = ".cartonfs", [INO_JSON] = "status.json", [INO_METRICS] = "metrics"
};

static bool is_ours(fuse_ino_t ino)
{
	return ino >= INO_DIR && ino < INO_END;
}

/* Their size is not known before they are opened, as in /proc. */
static void fill_stat(const struct mount *m, fuse_ino_t ino, struct stat *ret)
{
	*ret = (struct stat){
		.st_ino = ino,
		.st_mode = ino == INO_DIR ? S_IFDIR | (0755 & ~m->umask) :
					    S_IFREG | (0444 & ~m->umask),
		.st_nlink = ino == INO_DIR ? 2 : 1,
		.st_uid = m->uid,
		.st_gid = m->gid,
		.st_mtim = { .tv_sec = m->status->started },
	};
}

static void fill_entry(const struct mount *m, fuse_ino_t ino, struct fuse_entry_param *ret)
{
	*ret = (struct fuse_entry_param){ .ino = ino, .entry_timeout = 3600, .attr_timeout = 0 };
	fill_stat(m, ino, &ret->attr);
}

/* The inode of a name, or 0. */
static fuse_ino_t find(const struct mount *m, fuse_ino_t parent, const char *name)
{
	struct carton_node *own;

	if (parent == FUSE_ROOT_ID)
		/* the root of a bare file is generated, perhaps now, and has no such name */
		return strcmp(name, names[INO_DIR]) == 0 && (carton_is_bare(m->carton) ||
							     carton_lookup(carton_root(m->carton),
									   name, &own) == -ENOENT) ?
			       INO_DIR :
			       0;
	/* a lookup by file handle: see answer_handle() in ops.c */
	if (strcmp(name, ".") == 0)
		return is_ours(parent) ? parent : 0;
	for (fuse_ino_t ino = INO_JSON; parent == INO_DIR && ino < INO_END; ino++)
		if (strcmp(name, names[ino]) == 0)
			return ino;
	return 0;
}

static bool answer_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	const struct mount *m = mount_of(req);
	fuse_ino_t ino = find(m, parent, name);
	struct fuse_entry_param e;

	if (ino) {
		fill_entry(m, ino, &e);
		fuse_reply_entry(req, &e);
	} else if (parent == INO_DIR) {
		fuse_reply_err(req, ENOENT);
	}
	return ino || parent == INO_DIR;
}

/*
 * The text that an open file shows. status->open lists them, because the kernel sends no RELEASE
 * once the mount has ended.
 */
struct open_text {
	struct status_text text;
	LIST_ENTRY(open_text) all; /* guarded by the lock of the status */
};

static int text_new(const struct mount *m, fuse_ino_t ino, struct open_text **ret)
{
	struct status *s = m->status;
	struct open_text *t = calloc(1, sizeof(*t));
	int r = -ENOMEM;

	if (t)
		r = (ino == INO_JSON ? status_json : status_metrics)(s, m->carton, &t->text);
	if (r < 0) {
		free(t);
		return r;
	}
	pthread_mutex_lock(&s->lock);
	LIST_INSERT_HEAD(&s->open, t, all);
	pthread_mutex_unlock(&s->lock);
	*ret = t;
	return 0;
}

static void text_free(struct status *s, struct open_text *t)
{
	pthread_mutex_lock(&s->lock);
	LIST_REMOVE(t, all);
	pthread_mutex_unlock(&s->lock);
	free(t->text.data);
	free(t);
}

void status_files_finish(struct status *s)
{
	while (!LIST_EMPTY(&s->open))
		text_free(s, LIST_FIRST(&s->open));
}

/* fi->fh of an open file is the mount_tag() of its struct open_text. */
static void answer_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	const struct mount *m = mount_of(req);
	struct open_text *t;
	int r = (fi->flags & O_ACCMODE) == O_RDONLY ? text_new(m, ino, &t) : -EROFS;

	if (r < 0) {
		fuse_reply_err(req, -r);
		return;
	}
	fi->fh = mount_tag(m, t);
	fi->noflush = 1;
	fi->direct_io = 1; /* so that a read ends at the end of the text, whatever the size says */
	if (fuse_reply_open(req, fi) == -ENOENT)
		text_free(m->status, t);
}

static void answer_read(fuse_req_t req, size_t size, off_t off, const struct fuse_file_info *fi)
{
	const struct open_text *t = mount_untag(fi->fh);
	size_t left;
	char *copy;

	if (!mount_mine(mount_of(req), fi->fh)) {
		fuse_reply_err(req, ESTALE); /* of a process that has ended: open it again */
		return;
	}
	left = off < 0 || (uint64_t)off >= t->text.len ? 0 : t->text.len - (size_t)off;
	left = size < left ? size : left;
	copy = malloc(left + 1);
	if (!copy) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	/*
	 * the text may be freed as soon as the kernel has the reply, before fuse_reply_buf()
	 * returns: so a copy is sent
	 */
	memcpy(copy, t->text.data + (left ? off : 0), left);
	fuse_reply_buf(req, copy, left);
	free(copy);
}

static void answer_release(fuse_req_t req, const struct fuse_file_info *fi)
{
	struct mount *m = mount_of(req);

	if (mount_mine(m, fi->fh))
		text_free(m->status, mount_untag(fi->fh));
	fuse_reply_err(req, 0);
}

static bool answer_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, bool plus)
{
	static const char *const entries[] = { ".", "..", "status.json", "metrics" };
	const fuse_ino_t inos[] = { 0, 0, INO_JSON, INO_METRICS };
	struct fuse_entry_param e;
	char buf[1024];
	size_t used = 0;

	if (ino != INO_DIR)
		return false;
	if (size > sizeof(buf))
		size = sizeof(buf);
	for (; off >= 0 && off < 4; off++) {
		size_t need;

		fill_entry(mount_of(req), inos[off] ? inos[off] : INO_DIR, &e);
		if (!inos[off])
			e.ino = 0; /* no lookup count for "." and ".." */
		if (plus)
			need = fuse_add_direntry_plus(req, buf + used, size - used, entries[off],
						      &e, off + 1);
		else
			need = fuse_add_direntry(req, buf + used, size - used, entries[off],
						 &e.attr, off + 1);
		if (need > size - used)
			break;
		used += need;
	}
	fuse_reply_buf(req, buf, used);
	return true;
}

/* ---- requests: each is answered here, or passed on ---- */

/*
 * Is it a generated node of an earlier process that cannot be found? On ESTALE the kernel looks its
 * path up anew.
 */
static bool is_stale(fuse_req_t req, fuse_ino_t ino)
{
	if (mount_node(mount_of(req), ino))
		return false;
	fuse_reply_err(req, ESTALE);
	return true;
}

static void on_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	if (!answer_lookup(req, parent, name) && !is_stale(req, parent))
		mount_ops.lookup(req, parent, name);
}

static void on_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct stat st;

	if (is_ours(ino)) {
		fill_stat(mount_of(req), ino, &st);
		fuse_reply_attr(req, &st, 0);
	} else if (!is_stale(req, ino)) {
		mount_ops.getattr(req, ino, fi);
	}
}

static void on_readlink(fuse_req_t req, fuse_ino_t ino)
{
	if (is_ours(ino))
		fuse_reply_err(req, EINVAL);
	else if (!is_stale(req, ino))
		mount_ops.readlink(req, ino);
}

static void on_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	if (is_ours(ino))
		answer_open(req, ino, fi);
	else if (!is_stale(req, ino))
		mount_ops.open(req, ino, fi);
}

static void on_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		    struct fuse_file_info *fi)
{
	if (is_ours(ino))
		answer_read(req, size, off, fi);
	else if (!is_stale(req, ino))
		mount_ops.read(req, ino, size, off, fi);
}

static void on_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	if (is_ours(ino))
		answer_release(req, fi);
	else
		mount_ops.release(req, ino, fi);
}

static void on_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	if (ino == INO_DIR)
		fuse_reply_open(req, fi);
	else if (!is_stale(req, ino))
		mount_ops.opendir(req, ino, fi);
}

static void on_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		       struct fuse_file_info *fi)
{
	if (!answer_readdir(req, ino, size, off, false) && !is_stale(req, ino))
		mount_ops.readdir(req, ino, size, off, fi);
}

static void on_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
			   struct fuse_file_info *fi)
{
	if (!answer_readdir(req, ino, size, off, true) && !is_stale(req, ino))
		mount_ops.readdirplus(req, ino, size, off, fi);
}

static void on_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	if (is_ours(ino))
		fuse_reply_err(req, strncmp(name, "user.", 5) == 0 ? ENODATA : EOPNOTSUPP);
	else if (!is_stale(req, ino))
		mount_ops.getxattr(req, ino, name, size);
}

const struct fuse_lowlevel_ops *status_ops(void)
{
	static struct fuse_lowlevel_ops ops;

	ops = mount_ops;
	writes_refuse(&ops);
	ops.lookup = on_lookup;
	ops.getattr = on_getattr;
	ops.readlink = on_readlink;
	ops.open = on_open;
	ops.read = on_read;
	ops.release = on_release;
	ops.opendir = on_opendir;
	ops.readdir = on_readdir;
	ops.readdirplus = on_readdirplus;
	ops.getxattr = on_getxattr;
	return &ops;
}
