/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file_size.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "log.h"

uint64_t file_size_limit(void)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_FSIZE, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY ?
		       UINT64_MAX :
		       limit.rlim_cur;
}

const char *carton_write_error(int error)
{
	if (error != -EFBIG)
		return strerror(-error);
	return file_size_limit() == UINT64_MAX ?
		       "the file system takes no file of that size; another one may" :
		       "the limit of the size of files is met; raise it: ulimit -f, or LimitFSIZE= "
		       "of a unit";
}

/* ---- the signal ---- */

static void only_xfsz(sigset_t *ret)
{
	sigemptyset(ret);
	sigaddset(ret, SIGXFSZ);
}

void file_size_guard(struct file_size_guard *ret)
{
	sigset_t xfsz;

	ret->blocked = false;
	/* nearly always */
	if (file_size_limit() == UINT64_MAX)
		return;
	only_xfsz(&xfsz);
	if (pthread_sigmask(SIG_BLOCK, &xfsz, &ret->mask) != 0)
		return;
	/* what was blocked before is the caller's, with what is pending */
	ret->blocked = !sigismember(&ret->mask, SIGXFSZ);
}

void file_size_release(const struct file_size_guard *guard)
{
	static const struct timespec now;
	int saved = errno;
	sigset_t xfsz;

	if (!guard->blocked)
		return;
	only_xfsz(&xfsz);
	/* the kernel sends SIGXFSZ to the thread that calls write(2), so it is pending here */
	while (sigtimedwait(&xfsz, NULL, &now) < 0 && errno == EINTR)
		;
	pthread_sigmask(SIG_SETMASK, &guard->mask, NULL);
	errno = saved;
}

/* ---- calls ---- */

int fd_resize(int fd, uint64_t size)
{
	struct file_size_guard guard;
	int r;

	file_size_guard(&guard);
	r = ftruncate(fd, (off_t)size) < 0 ? -errno : 0;
	file_size_release(&guard);
	return r;
}

ssize_t fd_append(int fd, const void *data, size_t n)
{
	struct file_size_guard guard;
	ssize_t put;

	file_size_guard(&guard);
	do
		put = write(fd, data, n);
	while (put < 0 && errno == EINTR);
	file_size_release(&guard);
	return put < 0 ? -errno : put;
}
