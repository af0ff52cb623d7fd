/* SPDX-License-Identifier: Apache-2.0 */
#include "mount/push.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

/* for a smaller file the decision takes longer than the read */
#define PUSH_MIN (512 * 1024)
/* bytes at the end that are not pushed; a multiple of any page size */
#define TAIL (128 * 1024)
/* how many pushed files may be closed unread before pushing stops */
#define PATIENCE 2

struct push {
	struct carton_observer observer;
	struct mount *mount;
	struct carton_node *node;
	uint64_t end;		 /* only bytes before this offset are put into the page cache */
	_Atomic uint64_t *noted; /* in mount->pushes; NULL: there are none */
	atomic_bool begun;	 /* some pages were stored */
	atomic_bool failed;	 /* storing failed, so no more are stored */
};

static uint64_t file_size(const struct carton_node *node)
{
	struct carton_stat st;

	carton_stat(node, &st);
	return st.size;
}

/* Where the last block of a file begins. */
static uint64_t tail_of(uint64_t size)
{
	return (size - 1) / TAIL * TAIL;
}

/* Bytes of memory that are available without swapping; 0: unknown. */
static uint64_t free_memory(void)
{
	FILE *f = fopen("/proc/meminfo", "re");
	unsigned long long kib = 0;
	char line[128];

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
			break;
	if (f)
		fclose(f);
	return (uint64_t)kib * 1024;
}

/*
 * Records the push, so that the next process drops these unverified pages if this one is killed.
 * False: the table is full.
 */
static bool note(const struct mount *m, struct carton_node *node, _Atomic uint64_t **ret)
{
	uint64_t none = 0;

	*ret = NULL;
	for (size_t i = 0; m->pushes && i < MAX_PUSHES; i++, none = 0)
		if (atomic_compare_exchange_strong(&m->pushes[i], &none, mount_ino(m, node))) {
			*ret = &m->pushes[i];
			return true;
		}
	return !m->pushes;
}

static void push_bytes(struct carton_observer *observer, uint64_t off, const void *data, size_t n)
{
	struct push *p = (struct push *)observer;
	struct fuse_bufvec bytes = FUSE_BUFVEC_INIT(0);

	if (off >= p->end || atomic_load(&p->failed))
		return;
	if (n > p->end - off)
		n = (size_t)(p->end - off);
	bytes.buf[0].mem = (void *)(uintptr_t)data;
	bytes.buf[0].size = n;
	atomic_store(&p->begun, true);
	/* an inode that the kernel has forgotten has no pages */
	if (fuse_lowlevel_notify_store(p->mount->session, mount_ino(p->mount, p->node), (off_t)off,
				       &bytes, 0) < 0)
		atomic_store(&p->failed, true);
}

static void push_end(struct carton_observer *observer, int result)
{
	struct push *p = (struct push *)observer;
	int r;

	if (result == 0) {
		mark_add(p->node, MARK_PUSHED);
	} else if (atomic_load(&p->begun)) {
		r = fuse_lowlevel_notify_inval_inode(p->mount->session,
						     mount_ino(p->mount, p->node), 0, 0);
		/* the next open that succeeds drops the pages */
		if (r < 0 && r != -ENOENT) {
			mark_add(p->node, MARK_TAINTED);
			p->noted = NULL; /* the push stays in the table */
		}
	}
	if (p->noted)
		atomic_store(p->noted, 0);
	mark_remove(p->node, MARK_PUSHING);
	free(p);
}

/* Will the file be passed through? Then its pages would not be used. */
static bool will_pass(const struct mount *m, const struct carton_node *node)
{
	struct carton_storage storage;

	return m->passthrough && !(carton_storage(node, &storage) && storage.as_it_is);
}

/* Is there room for it? */
static bool fits(const struct mount *m, uint64_t size)
{
	return size <= carton_memory(m->carton) && size <= free_memory() / 2;
}

struct carton_observer *push_new(struct mount *m, struct carton_node *node,
				 const struct fuse_file_info *fi)
{
	uint64_t size = file_size(node);
	_Atomic uint64_t *noted;
	struct push *p;

	/* after a restart, a file may be open that this process has not opened */
	if (m->epoch > 1 || size < PUSH_MIN || (fi->flags & O_DIRECT) ||
	    atomic_load(&m->push_patience) <= 0 || (mark_of(node) & (MARK_UNSURE | MARK_OPENED)) ||
	    will_pass(m, node) || !fits(m, size))
		return NULL;
	if (mark_add(node, MARK_PUSHING) & MARK_PUSHING)
		return NULL;
	p = malloc(sizeof(*p));
	if (!p || !note(m, node, &noted)) {
		free(p);
		mark_remove(node, MARK_PUSHING);
		return NULL;
	}
	*p = (struct push){
		.observer = { push_bytes, push_end, -1 },
		.mount = m,
		.node = node,
		.end = tail_of(size),
		.noted = noted,
	};
	return &p->observer;
}

void push_saw_read(struct mount *m, struct carton_node *node, uint64_t off, size_t n)
{
	uint64_t size = file_size(node);

	if (size < PUSH_MIN || off + n <= tail_of(size) || off >= size)
		return;
	mark_remove(node, MARK_PUSHED);
	atomic_store(&m->push_patience, PATIENCE);
}

void push_saw_release(struct mount *m, struct carton_node *node)
{
	if (mark_of(node) & MARK_PUSHED && mark_remove(node, MARK_PUSHED) & MARK_PUSHED)
		atomic_fetch_sub(&m->push_patience, 1);
}
