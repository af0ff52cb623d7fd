/* SPDX-License-Identifier: Apache-2.0 */
#include "pack/old_signature.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sign/check.h"
#include "sign/sign.h"

/* 1: the signature does not list what `m` has; 0: it does; -errno: it cannot be read. */
static int lists_others(int fd, uint64_t size, struct manifest *m, struct budget *budget)
{
	struct buf text = buf_init(MAX_SIGNATURE);
	struct reason why = { 0 };
	int r = size > MAX_SIGNATURE ? 1 : budget_take(budget, SIGNATURE_EXPANSION * size);

	if (r != 0)
		return r;
	r = buf_reserve(&text, (size_t)size);
	if (r == 0)
		r = pread_full(fd, text.data, (size_t)size, 0);
	if (r == 0) {
		text.len = (size_t)size;
		r = sign_lists(&text, m, &why);
		if (r < 0 && r != -ENOMEM)
			r = 1;
	}
	buf_finish(&text);
	budget_give(budget, SIGNATURE_EXPANSION * size);
	return r;
}

int old_signature_beside(const struct newfile *out, struct manifest *m, struct budget *budget)
{
	char name[NAME_MAX + 1];
	struct stat st;
	int fd, r = 0;

	/* an open file has no place in which its signature could be */
	if (out->to >= 0)
		return 0;
	if (snprintf(name, sizeof(name), "%s%s", out->name, SIGN_SUFFIX) >= (int)sizeof(name))
		return 0;
	fd = openat(out->dir, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
		r = lists_others(fd, (uint64_t)st.st_size, m, budget);
	fd_close(fd);
	return r;
}

void old_signature_set_aside(const struct newfile *out, int found)
{
	char from[NAME_MAX + 1], to[NAME_MAX + 8], path[4096];

	snprintf(from, sizeof(from), "%s%s", out->name, SIGN_SUFFIX);
	snprintf(to, sizeof(to), "%s.old", from);
	snprintf(path, sizeof(path), "%s%s", out->path, SIGN_SUFFIX);
	if (found < 0)
		carton_log(CARTON_LOG_WARNING, path,
			   "cannot be read, so it may not sign the new carton: %s",
			   strerror(-found));
	else if (renameat(out->dir, from, out->dir, to) == 0)
		carton_log(CARTON_LOG_WARNING, path,
			   "does not sign the new carton: it is %s now; cartonctl sign makes "
			   "a new one",
			   to);
	else
		carton_log(CARTON_LOG_WARNING, path, "does not sign the new carton: remove it (%s)",
			   strerror(errno));
}
