/* SPDX-License-Identifier: Apache-2.0 */
#include "mount/ops.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "common/control.h"
#include "mount/park.h"
#include "mount/passthrough.h"

/* Names and attributes never change, so the kernel may cache them for a year (seconds). */
#define TIMEOUT (365.0 * 24 * 3600)
#define BLOCK 4096
#define MAX_WAITING_READS 8192
#define MAX_LIST (1 << 20) /* bytes of one answer */
/* so many files were looked up: lists have the attributes of files from then on */
#define LISTED_FILES 32

/*
 * Fills `st`. Returns how long the kernel may cache it (seconds): 0 while the size is not certain.
 */
static double fill_stat(const struct mount *m, struct carton_node *node, bool generated,
			struct stat *st)
{
	struct carton_stat cs;

	carton_stat(node, &cs);
	memset(st, 0, sizeof(*st));
	st->st_ino = cs.ino;
	st->st_nlink = cs.nlink;
	st->st_uid = m->uid;
	st->st_gid = m->gid;
	st->st_size = (off_t)cs.size;
	/*
	 * The bytes of a generated file are those of others, and are counted there. One block
	 * stays: with none, `tar -S` takes it for a hole and does not read it.
	 */
	st->st_blocks = (blkcnt_t)((cs.size + 511) / 512);
	if (st->st_blocks > 1 && !carton_is_bare(m->carton) && generated)
		st->st_blocks = 1;
	st->st_blksize = BLOCK;
	st->st_mtime = st->st_ctime = st->st_atime = cs.mtime;
	switch (cs.kind) {
	case CARTON_DIR:
		/*
		 * with the write bit, so that the owner can remove a copy; the mount itself is
		 * read-only
		 */
		st->st_mode = S_IFDIR | (0755 & ~m->umask);
		break;
	case CARTON_FILE:
		st->st_mode = S_IFREG | ((cs.executable ? 0555 : 0444) & ~m->umask);
		break;
	case CARTON_SYMLINK:
		st->st_mode = S_IFLNK | 0777;
		break;
	}
	if (cs.size_certain)
		return TIMEOUT;
	mark_add(node, MARK_UNSURE);
	return 0;
}

/* ---- requests that never wait ---- */

static void fill_entry(const struct mount *m, struct carton_node *node, struct fuse_entry_param *e)
{
	bool generated;

	memset(e, 0, sizeof(*e));
	e->ino = mount_ino(m, node);
	generated = mount_ino_is_generated(e->ino);
	e->entry_timeout = TIMEOUT;
	e->attr_timeout = fill_stat(m, node, generated, &e->attr);
	if (generated)
		inode_notes_add(m->notes, node, e->ino);
}

static void op_init(void *userdata, struct fuse_conn_info *conn)
{
	struct mount *m = userdata;

	m->in_init = true;
	/* replies are in memory, and a write is faster than a splice */
	conn->want &= ~(unsigned)(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE |
				  FUSE_CAP_SPLICE_MOVE);
	conn->want |= conn->capable &
		      (FUSE_CAP_CACHE_SYMLINKS | FUSE_CAP_READDIRPLUS | FUSE_CAP_ASYNC_READ |
		       FUSE_CAP_PARALLEL_DIROPS | FUSE_CAP_EXPORT_SUPPORT);
	conn->want &= ~(unsigned)FUSE_CAP_READDIRPLUS_AUTO;
	conn->max_read = m->max_read;
	passthrough_negotiate(m->passthrough, conn);
	/* a read that waits for a server must not keep others in the kernel's queue */
	conn->max_background = MAX_WAITING_READS;
	conn->congestion_threshold = MAX_WAITING_READS;
	m->ready(m->ctx);
}

static void op_readlink(fuse_req_t req, fuse_ino_t ino)
{
	const char *target = carton_target(mount_node(mount_of(req), ino));

	if (target)
		fuse_reply_readlink(req, target);
	else
		fuse_reply_err(req, EINVAL);
}

static void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t n)
{
	(void)ino;
	(void)n;
	fuse_reply_none(req);
}

static void op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
	(void)count;
	(void)forgets;
	fuse_reply_none(req);
}

static void op_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct carton_totals totals;
	struct statvfs st = { .f_bsize = BLOCK, .f_frsize = BLOCK, .f_namemax = 255 };

	(void)ino;
	carton_totals(mount_of(req)->carton, &totals);
	st.f_blocks = (totals.bytes + BLOCK - 1) / BLOCK;
	st.f_files = totals.nodes;
	fuse_reply_statfs(req, &st);
}

/* ---- directories: may wait until they are generated ---- */

static int start_list(struct parked *p)
{
	return carton_list(mount_of(p->req)->carton, p->node, parked_done, p, &p->request);
}

/*
 * Answers once the children of a lazy directory are there. Also for READDIR: the OPENDIR may have
 * been in an earlier process.
 */
static void list_first(struct parked *q)
{
	int r = carton_list(mount_of(q->req)->carton, q->node, NULL, NULL, NULL);

	if (r == -EAGAIN)
		park(q, start_list);
	else
		q->finish(q, r);
}

static bool lists_files(const struct mount *m)
{
	return atomic_load(&m->files_looked_up) >= LISTED_FILES;
}

static void finish_opendir(struct parked *p, int r)
{
	if (r < 0) {
		fuse_reply_err(p->req, mount_errno(r));
		return;
	}
	p->fi.keep_cache = 1;
	p->fi.cache_readdir = lists_files(mount_of(p->req)); /* else the next one may have more */
	fuse_reply_open(p->req, &p->fi);
}

static void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct parked q = { .req = req,
			    .finish = finish_opendir,
			    .node = mount_node(mount_of(req), ino),
			    .fi = *fi };

	list_first(&q);
}

static void finish_lookup(struct parked *p, int r)
{
	struct mount *m = mount_of(p->req);
	struct carton_node *node;
	struct fuse_entry_param e;

	if (r == 0)
		r = carton_lookup(p->node, p->name, &node);
	if (r == -ENOENT) {
		/* inode 0: the kernel caches that the name does not exist */
		memset(&e, 0, sizeof(e));
		e.entry_timeout = TIMEOUT;
		fuse_reply_entry(p->req, &e);
	} else if (r < 0) {
		fuse_reply_err(p->req, mount_errno(r));
	} else {
		fill_entry(m, node, &e);
		atomic_fetch_add(&m->files_looked_up, S_ISREG(e.attr.st_mode) && !lists_files(m));
		fuse_reply_entry(p->req, &e);
	}
}

/*
 * Answers a lookup of "." or "..": a file handle, such as an NFS server keeps, leads to the node,
 * and the kernel has forgotten the inode of the node or of the directory above it. Returns false
 * for any other name.
 */
static bool answer_handle(fuse_req_t req, struct carton_node *node, const char *name)
{
	const struct mount *m = mount_of(req);
	struct fuse_entry_param e;

	if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0)
		return false;
	fill_entry(m, name[1] ? carton_parent(node) : node, &e);
	fuse_reply_entry(req, &e);
	return true;
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct parked q = { .req = req,
			    .finish = finish_lookup,
			    .node = mount_node(mount_of(req), parent) };

	if (answer_handle(req, q.node, name))
		return;
	if (strlen(name) >= sizeof(q.name)) {
		fuse_reply_err(req, ENAMETOOLONG);
		return;
	}
	strcpy(q.name, name);
	list_first(&q);
}

/* The entry at an offset: 0 is ".", 1 is "..", then the children. NULL after the last one. */
static struct carton_node *entry_at(struct carton_node *dir, off_t off, const char **ret_name)
{
	struct carton_node *node;

	if (off < 2) {
		*ret_name = off == 0 ? "." : "..";
		return off == 0 ? dir : carton_parent(dir);
	}
	node = carton_child(dir, (size_t)off - 2);
	if (node)
		*ret_name = carton_name(node);
	return node;
}

static bool is_hidden(const struct carton_node *node)
{
	struct carton_stat st;

	carton_stat(node, &st);
	return st.hidden;
}

/*
 * `plus`: the kernel makes an inode of each entry that has one here: a LOOKUP less if it is looked
 * at (ls -l), in vain where it is not (find). Directories are, files once some others were.
 */
static void answer_list(const struct parked *q, int r, bool plus)
{
	const struct mount *m = mount_of(q->req);
	/* the kernel asks again after a short list: only an empty one is the end */
	const size_t size = q->size < MAX_LIST ? q->size : MAX_LIST;
	char *buf = r < 0 ? NULL : malloc(size);
	struct carton_node *node;
	off_t off = q->off;
	const char *name;
	size_t used = 0;

	if (!buf || off < 0) {
		fuse_reply_err(q->req, r < 0 ? mount_errno(r) : buf ? EINVAL : ENOMEM);
		free(buf);
		return;
	}
	for (; (node = entry_at(q->node, off, &name)); off++) {
		struct fuse_entry_param e;
		size_t need;

		if (off >= 2 && is_hidden(node))
			continue;
		fill_entry(m, node, &e);
		/* no lookup count for "." and "..", and what is perhaps not looked at */
		if (off < 2 || (!lists_files(m) && !S_ISDIR(e.attr.st_mode)))
			e.ino = 0;
		if (plus)
			need = fuse_add_direntry_plus(q->req, buf + used, size - used, name, &e,
						      off + 1);
		else
			need = fuse_add_direntry(q->req, buf + used, size - used, name, &e.attr,
						 off + 1);
		if (need > size - used)
			break;
		used += need;
	}
	fuse_reply_buf(q->req, buf, used);
	free(buf);
}

static void finish_readdir(struct parked *p, int result)
{
	answer_list(p, result, false);
}

static void finish_readdirplus(struct parked *p, int result)
{
	answer_list(p, result, true);
}

static void read_list(struct parked *q, fuse_ino_t ino, size_t size, off_t off)
{
	q->node = mount_node(mount_of(q->req), ino);
	q->size = size;
	q->off = off;
	list_first(q);
}

static void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		       struct fuse_file_info *fi)
{
	(void)fi;
	read_list(&(struct parked){ .req = req, .finish = finish_readdir }, ino, size, off);
}

static void op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
			   struct fuse_file_info *fi)
{
	(void)fi;
	read_list(&(struct parked){ .req = req, .finish = finish_readdirplus }, ino, size, off);
}

/* ---- attributes: may wait for a server ---- */

static void finish_getattr(struct parked *p, int r)
{
	const struct mount *m = mount_of(p->req);
	struct stat st;
	double timeout;

	if (r < 0) {
		fuse_reply_err(p->req, mount_errno(r));
		return;
	}
	timeout = fill_stat(m, p->node, mount_is_generated(m, p->node), &st);
	fuse_reply_attr(p->req, &st, timeout);
}

static int start_getattr(struct parked *p)
{
	return carton_size(mount_of(p->req)->carton, p->node, parked_done, p, &p->request);
}

static void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	const struct mount *m = mount_of(req);
	struct parked q = { .req = req, .finish = finish_getattr, .node = mount_node(m, ino) };

	(void)fi;
	if (carton_size(m->carton, q.node, NULL, NULL, NULL) == 0)
		finish_getattr(&q, 0);
	else
		park(&q, start_getattr);
}

/* ---- requests of cartonctl to a mount ---- */

static void control_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned cmd, void *arg,
			  struct fuse_file_info *fi, unsigned flags, const void *in, size_t in_size,
			  size_t out_size)
{
	const struct control_refresh *q = in;
	uid_t uid = fuse_req_ctx(req)->uid;
	int r;

	(void)ino;
	(void)arg;
	(void)fi;
	(void)flags;
	(void)out_size;
	if (cmd != CONTROL_REFRESH || in_size != sizeof(*q))
		r = -ENOTTY;
	else if (uid != 0 && uid != mount_of(req)->owner)
		r = -EPERM;
	else
		r = memchr(q->url, '\0', sizeof(q->url)) ?
			    carton_refresh(mount_of(req)->carton, q->url) :
			    -EINVAL;
	if (r < 0)
		fuse_reply_err(req, -r);
	else
		fuse_reply_ioctl(req, 0, NULL, 0);
}

const struct fuse_lowlevel_ops mount_ops = {
	.init = op_init,
	.lookup = op_lookup,
	.forget = op_forget,
	.forget_multi = op_forget_multi,
	.getattr = op_getattr,
	.readlink = op_readlink,
	.open = files_open,
	.read = files_read,
	.release = files_release,
	.ioctl = control_ioctl,
	.opendir = op_opendir,
	.readdir = op_readdir,
	.readdirplus = op_readdirplus,
	.statfs = op_statfs,
	.getxattr = xattr_get,
	.listxattr = xattr_list,
};
