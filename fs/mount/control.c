/* SPDX-License-Identifier: Apache-2.0 */
#include "common/control.h"

#include <errno.h>
#include <string.h>

#include "mount/ops.h"

void control_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned cmd, void *arg,
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
