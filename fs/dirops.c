/* SPDX-License-Identifier: Apache-2.0 */
#include "dirops.h"

#include <linux/fuse.h>
#include <sys/uio.h>
#include <unistd.h>

#if FUSE_VERSION < FUSE_MAKE_VERSION(3, 17)
/* libfuse takes FUSE_CAP_PARALLEL_DIROPS and forgets it: it is added to what libfuse writes. */

static ssize_t on_writev(int fd, struct iovec *iov, int n, void *userdata)
{
	struct mount *m = userdata;

	/* the answer to INIT: a head and this. Until it is given there is no other thread or answer */
	if (m->in_init) {
		struct fuse_init_out *init = n == 2 ? iov[1].iov_base : NULL;

		m->in_init = false;
		if (init && iov[1].iov_len == sizeof(*init))
			init->flags |= FUSE_PARALLEL_DIROPS;
	}
	return writev(fd, iov, n);
}

static ssize_t on_read(int fd, void *buf, size_t n, void *userdata)
{
	(void)userdata;
	return read(fd, buf, n);
}

void dirops_parallel(struct mount *m)
{
	static const struct fuse_custom_io io = { .writev = on_writev, .read = on_read };

	/* a failure leaves it as it was */
	fuse_session_custom_io(m->session, &io, fuse_session_fd(m->session));
}
#else
void dirops_parallel(struct mount *m)
{
	(void)m;
}
#endif
