/* SPDX-License-Identifier: Apache-2.0 */
#include "base/source.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "base/spill.h"
#include "base/util.h"

#define WILL_NEED (256 * KIB)

ssize_t stream_read_full(struct stream *s, void *ret_buf, size_t n)
{
	size_t have = 0;

	while (have < n) {
		ssize_t got = stream_read(s, (char *)ret_buf + have, n - have);

		if (got < 0)
			return got;
		if (got == 0)
			break;
		have += (size_t)got;
	}
	return (ssize_t)have;
}

/* ---- a part of a source, in order ---- */

struct part_stream {
	struct stream stream;
	struct source *source;
	uint64_t off;
	uint64_t left;
};

static ssize_t part_read(struct stream *s, void *ret_buf, size_t n)
{
	struct part_stream *p = container_of(s, struct part_stream, stream);
	int r;

	n = MIN(n, p->left);
	if (n == 0)
		return 0;
	r = source_pread(p->source, ret_buf, n, p->off);
	if (r < 0)
		return r;
	p->off += n;
	p->left -= n;
	return (ssize_t)n;
}

static void part_close(struct stream *s)
{
	struct part_stream *p = container_of(s, struct part_stream, stream);

	source_unref(p->source);
	free(p);
}

static const struct stream_ops part_ops = { part_read, part_close };

int source_part(struct source *s, uint64_t off, uint64_t n, struct stream **ret)
{
	struct part_stream *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	*p = (struct part_stream){
		.stream.ops = &part_ops,
		.source = source_ref(s),
		.off = off,
		.left = n,
	};
	*ret = &p->stream;
	return 0;
}

/* ---- a local file ---- */

int source_fd_at(const struct source *s, uint64_t off, size_t *n)
{
	return spill_fd(s->spill, s->fd, off, n);
}

static int file_pread(struct source *s, void *ret_buf, size_t n, uint64_t off)
{
	size_t part;
	int r = 0;

	for (; n > 0 && r == 0; n -= part, off += part) {
		part = n;
		r = pread_full(source_fd_at(s, off, &part), ret_buf, part, off);
		ret_buf = (char *)ret_buf + part;
	}
	return r;
}

static int file_stream(struct source *s, uint64_t off, uint64_t n, struct stream **ret)
{
	/* this doubles readahead, which is not worth a system call for a small part */
	if (n > MIB)
		posix_fadvise(s->fd, (off_t)off, (off_t)n, POSIX_FADV_SEQUENTIAL);
	return source_part(s, off, n, ret);
}

static void file_free(struct source *s)
{
	fd_close(s->fd);
	spill_unref(s->spill);
	free(s);
}

static const struct source_ops file_ops = { file_pread, file_stream, file_free, NULL };

int source_from_fd(int fd, struct source **ret)
{
	struct source *s = calloc(1, sizeof(*s));
	struct stat st;
	int r;

	if (!s || fstat(fd, &st) < 0) {
		r = s ? -errno : -ENOMEM;
		free(s);
		fd_close(fd);
		return r;
	}
	s->ops = &file_ops;
	s->refs = 1;
	s->size = (uint64_t)st.st_size;
	s->fd = fd;
	*ret = s;
	return 0;
}

int source_is_same(const struct source *s, const struct stat *before)
{
	struct stat now;

	if (fstat(s->fd, &now) < 0)
		return -errno;
	return now.st_size == before->st_size && now.st_mtim.tv_sec == before->st_mtim.tv_sec &&
	       now.st_mtim.tv_nsec == before->st_mtim.tv_nsec &&
	       now.st_ctim.tv_sec == before->st_ctim.tv_sec &&
	       now.st_ctim.tv_nsec == before->st_ctim.tv_nsec;
}

/* ---- any source ---- */

struct source *source_ref(struct source *s)
{
	atomic_fetch_add(&s->refs, 1);
	return s;
}

void source_unref(struct source *s)
{
	if (s && atomic_fetch_sub(&s->refs, 1) == 1)
		s->ops->free(s);
}

int source_pread(struct source *s, void *ret_buf, size_t n, uint64_t off)
{
	return n ? s->ops->pread(s, ret_buf, n, off) : 0;
}

int source_pread_nowait(struct source *s, void *ret_buf, size_t n, uint64_t off)
{
	size_t part = n;
	int fd = source_fd_at(s, off, &part);
	struct iovec iov = { ret_buf, part };
	ssize_t got;

	do
		got = preadv2(fd, &iov, 1, (off_t)off, RWF_NOWAIT);
	while (got < 0 && errno == EINTR);
	/* also if the file system does not support RWF_NOWAIT */
	return got == (ssize_t)n ? 0 : -EAGAIN;
}

bool source_is_cached(struct source *s, uint64_t off, uint64_t n)
{
	bool found = false;
	char byte = 0;

	/* the beginning says nothing: the header there was read, and the kernel read ahead */
	for (unsigned i = 1; i < 8 && !found; i++)
		found = source_pread_nowait(s, &byte, 1, off + n / 8 * i) == 0;
	return found;
}

bool source_has_name(const struct source *s)
{
	struct stat st;

	return fstat(s->fd, &st) == 0 && st.st_nlink > 0;
}

void source_will_need(struct source *s, uint64_t off, uint64_t n)
{
	/* of one call, the kernel may do no more than what the disk takes at once */
	for (uint64_t done = 0, step; done < n; done += step) {
		step = MIN(WILL_NEED, n - done);
		posix_fadvise(s->fd, (off_t)(off + done), (off_t)step, POSIX_FADV_WILLNEED);
	}
}

void source_drop_pages(struct source *s, uint64_t off, uint64_t n)
{
	posix_fadvise(s->fd, (off_t)off, (off_t)n, POSIX_FADV_DONTNEED);
}

int source_stream(struct source *s, uint64_t off, uint64_t n, struct stream **ret)
{
	return s->ops->stream(s, off, n, ret);
}
