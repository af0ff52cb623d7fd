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
#include <sys/types.h>

#include "carton.h"
#include "fuse.h"

struct mount {
	struct fuse_session *session;
	struct carton *carton;
	uid_t uid;
	gid_t gid;
	mode_t umask;
	bool in_init;		  /* INIT, the first request, is being answered */
	unsigned max_read;	  /* bytes, from the mount option; 0: no limit */
	void (*ready)(void *ctx); /* called at INIT: the mount is usable */
	void *ctx;
	pthread_mutex_t first_open; /* held during the first open of a file: see first_open() */
};

/* The user data of the session is a struct mount. */
extern const struct fuse_lowlevel_ops mount_ops;

/* control.c: what cartonctl asks of a mount. */
void control_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned cmd, void *arg,
		   struct fuse_file_info *fi, unsigned flags, const void *in, size_t in_size,
		   size_t out_size);

#endif
