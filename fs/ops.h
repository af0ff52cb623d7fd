/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FUSE requests, answered from a carton.
 *
 * A loop thread only translates. What has to wait (a file that is not verified yet, a read from a
 * slow disk) is parked: the thread goes on, a worker of the carton answers, and an interrupt
 * answers EINTR at once.
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
	bool in_init;		  /* INIT is being answered, the first of all requests */
	unsigned max_read;	  /* as the mount option says, 0: no limit */
	void (*ready)(void *ctx); /* called once the kernel has begun to talk to us */
	void *ctx;
	pthread_mutex_t first_open; /* held while a file is opened that never was before */
};

/* The user data of the session is a struct mount. */
extern const struct fuse_lowlevel_ops mount_ops;

#endif
