/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/claims.h"

#include <errno.h>
#include <fcntl.h>

static int lock(int fd, int command, struct flock *fl, uint64_t off, uint64_t n)
{
	fl->l_whence = SEEK_SET;
	fl->l_start = (off_t)off;
	fl->l_len = (off_t)n;
	return fcntl(fd, command, fl);
}

bool claim_take(int fd, uint64_t off, uint64_t n)
{
	struct flock fl = { .l_type = F_WRLCK };

	/* where there are no locks, nobody has one */
	return lock(fd, F_OFD_SETLK, &fl, off, n) == 0 || (errno != EAGAIN && errno != EACCES);
}

void claim_give(int fd, uint64_t off, uint64_t n)
{
	struct flock fl = { .l_type = F_UNLCK };

	lock(fd, F_OFD_SETLK, &fl, off, n);
}

bool claim_is_taken(int fd, uint64_t off, uint64_t n)
{
	struct flock fl = { .l_type = F_WRLCK };

	return lock(fd, F_OFD_GETLK, &fl, off, n) == 0 && fl.l_type != F_UNLCK;
}
