/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A mount: the state that is shared by the threads that answer its requests, its inode numbers, and
 * the flags of its files.
 */
#ifndef FS_MOUNT_H
#define FS_MOUNT_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "carton.h"
#include "process/fuse.h"
#include "mount/inode_notes.h"
#include "mount/status.h"

struct keep;

struct mount {
	struct fuse_session *session;
	struct carton *carton;
	struct status *status;
	uid_t owner; /* the user who mounts */
	uid_t uid;   /* the owner of the files */
	gid_t gid;
	mode_t umask;
	atomic_bool in_init;	   /* INIT, the first request, is being answered */
	struct inode_notes *notes; /* NULL: the mount does not outlive the process */
	struct keep *keep;	   /* or NULL */
	/* MAX_PUSHES: inodes that are being pushed, for the next process; or NULL */
	_Atomic uint64_t *pushes;
	uint16_t epoch; /* counts the processes that have served this mount, from 1: see keep.h */
	unsigned max_read;	  /* bytes, from the mount option; 0: no limit */
	void (*ready)(void *ctx); /* called at INIT: the mount is usable */
	void (*used)(void *ctx);  /* called once, at the first open of a file */
	atomic_bool is_used;
	void *ctx;
	/* held during the first open of a file: see pages_first_open() */
	pthread_mutex_t first_open;
	struct passthrough *passthrough; /* NULL: not wanted */
	struct ahead *ahead;		 /* verifies files before they are opened; NULL: off */
	atomic_uint files_looked_up;	 /* one by one, up to a number (ops.c) */
	atomic_int push_patience;	 /* more than 0: large files are pushed (push.h) */
};

/* Flags of a node: its carton_mark(). */
#define MARK_UNSURE 1	/* the kernel was given a size that may be wrong */
#define MARK_OPENED 2	/* an open has been answered */
#define MARK_PUSHING 4	/* a push is under way, or about to begin */
#define MARK_PUSHED 8	/* the page cache has all but its end, and the end was not read yet */
#define MARK_TAINTED 16 /* the page cache may hold bytes that are not right: see push_end() */
#define MARK_DAMAGED 32 /* it was found damaged after it was opened: pages_damaged() */
#define MARK_NOTED 64	/* see inode_notes.h */

static inline unsigned char mark_of(struct carton_node *node)
{
	return __atomic_load_n(carton_mark(node), __ATOMIC_SEQ_CST);
}

/* Both return the flags before the change. */
static inline unsigned char mark_add(struct carton_node *node, unsigned char flags)
{
	return __atomic_fetch_or(carton_mark(node), flags, __ATOMIC_SEQ_CST);
}

static inline unsigned char mark_remove(struct carton_node *node, unsigned char flags)
{
	return __atomic_fetch_and(carton_mark(node), (unsigned char)~flags, __ATOMIC_SEQ_CST);
}

/* -o passthrough: whether the kernel reads the file by itself now; "yes" or "no". */
#define PASSTHROUGH_NAME "user.carton.passthrough"

/*
 * The inode numbers that the kernel gets. That of a node of the carton is its carton_number() plus
 * INO_FIRST, as the smaller ones are for status_files.c. The next process computes the same number
 * (keep.h). A generated node has another carton_number() in the next process, so its inode number
 * has the epoch of this process in its upper 16 bits, and the next process looks the node up in
 * inode_notes.h.
 *
 * A request may have any inode number: the kernel takes it from a file handle, which an NFS client
 * may have forged.
 */
#define INO_FIRST 16
#define MAX_PUSHES 64

/*
 * Makes the `fh` of an open file from an address. Only the kernel has that number, so no client of
 * an NFS server can forge one.
 */
static inline uint64_t mount_tag(const struct mount *m, const void *address)
{
	return (uint64_t)m->epoch << 48 | (uint64_t)(uintptr_t)address;
}

/* Was the tag made by mount_tag() of this process, and not of an earlier one? */
static inline bool mount_mine(const struct mount *m, uint64_t tag)
{
	return tag >> 48 == m->epoch;
}

static inline void *mount_untag(uint64_t tag)
{
	return (void *)(uintptr_t)(tag & ((1ULL << 48) - 1));
}

static inline bool mount_is_generated(const struct mount *m, const struct carton_node *node)
{
	return carton_number(m->carton, node) & CARTON_GENERATED;
}

static inline bool mount_ino_is_generated(fuse_ino_t ino)
{
	return ino >> 48;
}

static inline fuse_ino_t mount_ino(const struct mount *m, const struct carton_node *node)
{
	uint64_t number = carton_number(m->carton, node), noted;

	if (!(number & CARTON_GENERATED))
		return number == 1 ? FUSE_ROOT_ID : INO_FIRST + number;
	noted = inode_notes_ino(m->notes, node);
	return noted ? noted : (uint64_t)m->epoch << 48 | number;
}

/*
 * NULL: there is no such node, or an earlier process has generated it and this one cannot find it.
 */
static inline struct carton_node *mount_node(const struct mount *m, fuse_ino_t ino)
{
	const bool generated = mount_ino_is_generated(ino);
	const uint64_t number = ino & ((1ULL << 48) - 1);

	if (ino == FUSE_ROOT_ID)
		return carton_root(m->carton);
	if (generated && !mount_mine(m, ino))
		return inode_notes_find(m->notes, ino);
	if (generated != !!(number & CARTON_GENERATED)) /* forged */
		return NULL;
	if (generated)
		return carton_by_number(m->carton, number);
	return number > INO_FIRST ? carton_by_number(m->carton, number - INO_FIRST) : NULL;
}

static inline struct mount *mount_of(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

/* The only place that turns -EBADMSG (bad bytes) into EIO. */
static inline int mount_errno(int r)
{
	return r == -EBADMSG ? EIO : -r;
}

#endif
