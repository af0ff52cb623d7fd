/* SPDX-License-Identifier: Apache-2.0 */
#include "control.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "ops.h"

static int refresh(const struct mount *m, const struct control_refresh *q)
{
	if (!memchr(q->url, '\0', sizeof(q->url)))
		return -EINVAL;
	return carton_refresh(m->carton, q->url);
}

void control_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned cmd, void *arg,
		   struct fuse_file_info *fi, unsigned flags, const void *in, size_t in_size,
		   size_t out_size)
{
	const struct mount *m = fuse_req_userdata(req);
	uid_t uid = fuse_req_ctx(req)->uid;
	int r;

	(void)ino;
	(void)arg;
	(void)fi;
	(void)flags;
	(void)out_size;
	if (cmd != CONTROL_REFRESH || in_size != sizeof(struct control_refresh))
		r = -ENOTTY;
	else if (uid != 0 && uid != geteuid())
		r = -EPERM;
	else
		r = refresh(m, in);
	if (r < 0)
		fuse_reply_err(req, -r);
	else
		fuse_reply_ioctl(req, 0, NULL, 0);
}
