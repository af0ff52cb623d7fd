/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers FUSE requests from a carton.
 *
 * libfuse's threads never wait. A request that must wait (opening a file that is not verified yet, a read
 * from disk) is parked (park.h): a worker replies later, or an interrupt replies EINTR at once.
 */
#ifndef FS_OPS_H
#define FS_OPS_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "carton.h"
#include "fuse.h"
#include "status.h"

struct mount {
	struct fuse_session *session;
	struct carton *carton;
	struct status *status;
	uid_t uid;
	gid_t gid;
	mode_t umask;
	bool in_init;		  /* INIT, the first request, is being answered */
	unsigned max_read;	  /* bytes, from the mount option; 0: no limit */
	void (*ready)(void *ctx); /* called at INIT: the mount is usable */
	void (*used)(void *ctx);  /* called once, at the first open of a file */
	atomic_bool is_used;
	void *ctx;
	pthread_mutex_t
		first_open; /* held during the first open of a file: see mount_first_open() */
	struct passthrough *passthrough; /* NULL: not wanted */
	struct ahead *ahead;	  /* verifies files before they are opened; NULL: nobody does */
	atomic_int push_patience; /* more than 0: large files are pushed (push.h) */
};

/* Flags of a node: its carton_mark(). */
#define MARK_UNSURE 1	/* the kernel was given a size that may be wrong */
#define MARK_OPENED 2	/* an open has been answered */
#define MARK_PUSHING 4	/* a push is under way, or about to begin */
#define MARK_PUSHED 8	/* all but its end was put into the page cache; its end was not read yet */
#define MARK_TAINTED 16 /* the page cache may hold bytes that are not right: see push_end() */

#define MARK_DAMAGED 32 /* its bytes have become wrong: mount_damaged() */

/* -o passthrough: whether the kernel reads the file by itself now; "yes" or "no". */
#define PASSTHROUGH_NAME "user.carton.passthrough"

/* The inode number for the kernel is the address of the node: nodes live as long as the mount. */
static inline fuse_ino_t mount_ino(const struct mount *m, const struct carton_node *node)
{
	return node == carton_root(m->carton) ? FUSE_ROOT_ID : (fuse_ino_t)(uintptr_t)node;
}

/* The user data of the session is a struct mount. */
extern const struct fuse_lowlevel_ops mount_ops;

/* control.c: what cartonctl asks of a mount. */
void control_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned cmd, void *arg,
		   struct fuse_file_info *fi, unsigned flags, const void *in, size_t in_size,
		   size_t out_size);

/* The damaged() of the carton of a mount: what the kernel has of the file is dropped, also under its readers. */
void mount_damaged(void *mount, struct carton_node *file);

/* What the first open of a file does before it is answered; the file is pinned. */
void mount_first_open(struct mount *m, struct carton_node *node);

#endif
