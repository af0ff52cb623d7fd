/* SPDX-License-Identifier: Apache-2.0 */
#include "dirops.h"

#include <linux/fuse.h>
#include <sys/uio.h>
#include <unistd.h>

#if FUSE_VERSION < FUSE_MAKE_VERSION(3, 17)
/* libfuse before 3.17 does not pass FUSE_CAP_PARALLEL_DIROPS on: the flag is added to its reply. */

static ssize_t on_writev(int fd, struct iovec *iov, int n, void *userdata)
{
	struct mount *m = userdata;

	/* the reply to INIT is a header and a fuse_init_out; until it is sent, there is one thread */
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

	/* on failure lookups stay serial */
	fuse_session_custom_io(m->session, &io, fuse_session_fd(m->session));
}
#else
void dirops_parallel(struct mount *m)
{
	(void)m;
}
#endif
