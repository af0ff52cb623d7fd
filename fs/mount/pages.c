/* SPDX-License-Identifier: Apache-2.0 */
#include "mount/pages.h"

#define BLOCK 4096
/* files up to this size are put into the page cache when they are opened */
#define SMALL (16 * 1024)

/*
 * Fills the page cache on first open. A small file is stored whole, which saves a READ. If the size
 * came from a server, at least the last page is stored: that sets i_size, which mmap and sendfile
 * do not ask for again.
 */
static void store_bytes(const struct mount *m, struct carton_node *node, bool unsure)
{
	struct fuse_bufvec bytes = FUSE_BUFVEC_INIT(0);
	struct carton_stat st;
	char buf[SMALL];
	uint64_t off;
	ssize_t n;

	carton_stat(node, &st);
	if (st.size == 0 || (st.size > sizeof(buf) && !unsure))
		return;
	off = st.size <= sizeof(buf) ? 0 : (st.size - 1) / BLOCK * BLOCK;
	n = carton_read(node, buf, sizeof(buf), off, !unsure);
	if (n <= 0)
		return;
	bytes.buf[0].mem = buf;
	bytes.buf[0].size = (size_t)n;
	fuse_lowlevel_notify_store(m->session, mount_ino(m, node), (off_t)off, &bytes, 0);
}

/*
 * notify_store blocks on locked pages, whose reader may be waiting for this thread. Before the
 * first open is answered there are no readers, so it cannot deadlock.
 */
void pages_first_open(struct mount *m, struct carton_node *node)
{
	/* an earlier process may have answered opens */
	if (m->epoch > 1 || mark_of(node) & MARK_OPENED)
		return;
	pthread_mutex_lock(&m->first_open);
	if (!(mark_of(node) & MARK_OPENED)) {
		store_bytes(m, node, mark_of(node) & MARK_UNSURE);
		mark_add(node, MARK_OPENED);
	}
	pthread_mutex_unlock(&m->first_open);
}

/*
 * Waits until the READs of the file that the kernel has sent are answered. Each READ that got bytes
 * is among them; a later READ fails. Do not call it on a thread that answers READs: they would wait
 * for it.
 */
void pages_damaged(void *mount, struct carton_node *file)
{
	const struct mount *m = mount;

	mark_add(file, MARK_DAMAGED);
	fuse_lowlevel_notify_inval_inode(m->session, mount_ino(m, file), 0, 0);
}
