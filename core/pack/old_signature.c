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

/* Reads all of an open file. 0, -EFBIG, -ENOMEM, or -errno. */
static int read_all(int fd, struct buf *ret)
{
	struct stat st;
	int r = fstat(fd, &st) < 0 ? -errno : 0;

	if (r == 0 && (uint64_t)st.st_size > MAX_SIGNATURE)
		r = -EFBIG;
	if (r == 0)
		r = buf_reserve(ret, (size_t)st.st_size);
	if (r == 0)
		r = pread_full(fd, ret->data, (size_t)st.st_size, 0);
	if (r == 0)
		ret->len = (size_t)st.st_size;
	return r;
}

static bool is_of(int fd, struct manifest *m, struct budget *budget)
{
	struct buf text = buf_init(MAX_SIGNATURE);
	struct reason why = { 0 };
	struct stat st;
	uint64_t taken = fstat(fd, &st) == 0 ? MIN((uint64_t)st.st_size, MAX_SIGNATURE) : 0;
	int r;

	taken *= SIGNATURE_EXPANSION;
	if (budget_take(budget, taken) < 0)
		return false;
	r = read_all(fd, &text);
	if (r == 0)
		r = sign_lists(&text, m, &why);
	buf_finish(&text);
	budget_give(budget, taken);
	return r == 0;
}

bool old_signature_beside(const struct newfile *out, struct manifest *m, struct budget *budget)
{
	char name[NAME_MAX + 1];
	bool other = false;
	struct stat st;
	int fd;

	if (snprintf(name, sizeof(name), "%s%s", out->name, SIGN_SUFFIX) >= (int)sizeof(name))
		return false;
	fd = openat(out->dir, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return errno != ENOENT;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
		other = !is_of(fd, m, budget);
	fd_close(fd);
	return other;
}

void old_signature_set_aside(const struct newfile *out)
{
	char from[NAME_MAX + 1], to[NAME_MAX + 8], path[4096];

	snprintf(from, sizeof(from), "%s%s", out->name, SIGN_SUFFIX);
	snprintf(to, sizeof(to), "%s.old", from);
	snprintf(path, sizeof(path), "%s%s", out->path, SIGN_SUFFIX);
	if (renameat(out->dir, from, out->dir, to) == 0)
		carton_log(CARTON_LOG_WARNING, path,
			   "does not sign the new carton: it is %s now; cartonctl sign makes "
			   "a new one",
			   to);
	else
		carton_log(CARTON_LOG_WARNING, path, "does not sign the new carton: remove it (%s)",
			   strerror(errno));
}
