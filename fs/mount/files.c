/* SPDX-License-Identifier: Apache-2.0 */
#include "mount/ops.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include "mount/ahead.h"
#include "mount/pages.h"
#include "mount/park.h"
#include "mount/passthrough.h"
#include "mount/push.h"

static void finish_open(struct parked *p, int r)
{
	struct mount *m = mount_of(p->req);
	struct carton_node *node = p->node;
	struct fuse_file_info *fi = &p->fi;
	unsigned char tainted;

	if (r < 0) {
		fuse_reply_err(p->req, mount_errno(r));
		return;
	}
	pages_first_open(m, node);
	/* the file was found damaged before, and this open has hashed all of it again */
	tainted = mark_remove(node, MARK_TAINTED | MARK_DAMAGED);
	fi->keep_cache = !(tainted & (MARK_TAINTED | MARK_DAMAGED));
	fi->noflush = 1;
	/* this may clear keep_cache */
	passthrough_open(m->passthrough, node, fi);
	fi->fh = m->epoch;
	/* before the reply, so that the order of opens is known */
	ahead_opened(m->ahead, node, fi->flags);
	/* the open was interrupted: no RELEASE will follow */
	if (fuse_reply_open(p->req, fi) == -ENOENT) {
		passthrough_close(m->passthrough, node);
		carton_unpin(node);
	}
}

static int start_open(struct parked *p)
{
	struct carton_observer *observer = push_new(mount_of(p->req), p->node, &p->fi);

	return carton_pin_observed(p->node, observer, parked_done, p, &p->request);
}

void files_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct mount *m = mount_of(req);
	struct parked q = {
		.req = req, .finish = finish_open, .node = mount_node(m, ino), .fi = *fi
	};
	int r;

	if ((fi->flags & O_ACCMODE) != O_RDONLY) {
		fuse_reply_err(req, EROFS);
		return;
	}
	if (!atomic_load(&m->is_used) && !atomic_exchange(&m->is_used, true))
		m->used(m->ctx);
	r = carton_pin(m->carton, q.node, NULL, NULL, NULL);
	if (r != -EAGAIN) {
		finish_open(&q, r);
		return;
	}
	ahead_give_way(m->ahead, q.node);
	park(&q, start_open);
}

void files_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct mount *m = mount_of(req);
	struct carton_node *node = mount_node(m, ino);

	/* an earlier process had pinned the file, so there is no pin of this one */
	if (fi->fh == m->epoch) {
		push_saw_release(m, node);
		passthrough_close(m->passthrough, node);
		carton_unpin(node);
	}
	fuse_reply_err(req, 0);
}

static void finish_read(struct parked *p, int result)
{
	if (result < 0)
		fuse_reply_err(p->req, mount_errno(result));
	else
		fuse_reply_buf(p->req, carton_request_data(p->request), (size_t)result);
}

static int start_read(struct parked *p)
{
	const struct carton_range range = { p->node, (uint64_t)p->off, p->size };

	return carton_read_later(mount_of(p->req)->carton, &range, parked_done, p, &p->request);
}

static void read_pinned(struct parked *q)
{
	struct carton_stat st;
	char *buf;
	ssize_t n;

	/* the buffer is not larger than the rest of the file */
	carton_stat(q->node, &st);
	if ((uint64_t)q->off >= st.size)
		q->size = 0;
	else if (q->size > st.size - (uint64_t)q->off)
		q->size = st.size - (uint64_t)q->off;
	buf = malloc(q->size + 1);
	n = buf ? carton_read(q->node, buf, q->size, (uint64_t)q->off, true) : -ENOMEM;
	if (n >= 0)
		fuse_reply_buf(q->req, buf, (size_t)n);
	else if (n != -EAGAIN)
		fuse_reply_err(q->req, mount_errno((int)n));
	free(buf);
	if (n != -EAGAIN)
		return;
	q->finish = finish_read;
	park(q, start_read);
}

/*
 * Reads a file that an earlier process has opened: it is verified, and pinned for this read only.
 */
static void finish_pin(struct parked *p, int result)
{
	if (result < 0) {
		fuse_reply_err(p->req, mount_errno(result));
		return;
	}
	read_pinned(p);
	carton_unpin(p->node);
}

static int start_pin(struct parked *p)
{
	return carton_pin(mount_of(p->req)->carton, p->node, parked_done, p, &p->request);
}

void files_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct mount *m = mount_of(req);
	struct parked q = { .req = req,
			    .finish = finish_pin,
			    .node = mount_node(m, ino),
			    .size = size,
			    .off = off,
			    .reads = true };

	push_saw_read(m, q.node, (uint64_t)off, size);
	ahead_was_read(m->ahead, size);
	/*
	 * The kernel sends a READ after the answer to OPEN, which C does not know: what the thread
	 * of the open wrote is seen by way of the mark, see finish_open().
	 */
	(void)mark_of(q.node);
	if (fi->fh == m->epoch)
		read_pinned(&q);
	else
		park(&q, start_pin);
}
