/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "mount/ops.h"
#include "mount/passthrough.h"

static bool is_file(const struct carton_node *node)
{
	struct carton_stat st;

	carton_stat(node, &st);
	return st.kind == CARTON_FILE;
}

void xattr_get(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	const struct mount *m = mount_of(req);
	struct carton_node *node = mount_node(m, ino);
	char value[256];
	ssize_t n = carton_property(node, name, value, sizeof(value));

	if (m->passthrough && strcmp(name, PASSTHROUGH_NAME) == 0 && is_file(node))
		n = snprintf(value, sizeof(value), "%s",
			     passthrough_has(m->passthrough, node) ? "yes" : "no");
	/*
	 * EOPNOTSUPP: unlike after ENODATA, the kernel and ls -l ask for ACLs and labels only once
	 */
	if (n == -ENODATA && strncmp(name, "user.", 5) != 0)
		fuse_reply_err(req, EOPNOTSUPP);
	else if (n < 0)
		fuse_reply_err(req, mount_errno((int)n));
	else if (size == 0)
		fuse_reply_xattr(req, (size_t)n);
	else if ((size_t)n > size)
		fuse_reply_err(req, ERANGE);
	else
		fuse_reply_buf(req, value, (size_t)n);
}

/* Lists no attribute: cp -a and rsync -X would copy "verified" to a file that may be changed. */
void xattr_list(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	(void)ino;
	if (size == 0)
		fuse_reply_xattr(req, 0);
	else
		fuse_reply_buf(req, NULL, 0);
}
