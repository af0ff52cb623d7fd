/* SPDX-License-Identifier: Apache-2.0 */
#include "fetch/partial.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/util.h"

/* How many bytes may be lost when this process dies: so many, or those of so long. */
#define STEP (1 * MIB)
#define STEP_MS 1000
/* what is reserved ahead where the length is not known */
#define ROOM (4 * MIB)
/* what is left free outside of the cache, as in it; what is known to fit need not leave so much */
#define KEEP_FREE 20
#define KEEP_KNOWN (64 * MIB)

struct partial {
	struct stream stream;
	struct cache_fill *fill;
	struct stream *prefix; /* NULL once read */
	struct stream *rest;
	uint64_t given;
	uint64_t noted;	  /* how far the file is said to be, */
	int64_t noted_ms; /* and since when */
	uint64_t room;	  /* bytes that the file may have */
};

/*
 * Space for `n` more bytes, in steps: how many there will be is not always known, and what they
 * take must be within what the cache may hold. 0 or -errno.
 */
static int make_room(struct partial *p, size_t n)
{
	int r = 0;

	if (p->given + n <= p->room)
		return 0;
	p->room = p->given + n + MIN(p->given, ROOM);
	r = cache_fill_reserve(p->fill, p->room);
	if (r == -ENOSPC) {
		p->room = p->given + n;
		r = cache_fill_reserve(p->fill, p->room);
	}
	return r;
}

/* Says how far the file is, which may be less than what was given: not all of that is written yet. */
static void note(struct partial *p)
{
	struct stat st;
	uint64_t len;

	if (fstat(cache_fill_fd(p->fill), &st) < 0)
		return;
	len = MIN((uint64_t)st.st_size, p->given);
	/* a failure to note costs time only, later */
	if (len > p->noted && cache_fill_progress(p->fill, len) == 0)
		p->noted = len;
	p->noted_ms = now_ms();
}

static ssize_t partial_read(struct stream *s, void *ret_buf, size_t n)
{
	struct partial *p = container_of(s, struct partial, stream);
	ssize_t got = 0;

	if (p->given > p->noted &&
	    (p->given - p->noted >= STEP || now_ms() - p->noted_ms >= STEP_MS))
		note(p);
	if (p->prefix) {
		got = stream_read(p->prefix, ret_buf, n);
		if (got == 0) {
			stream_close(p->prefix);
			p->prefix = NULL;
		}
	}
	if (got == 0)
		got = stream_read(p->rest, ret_buf, n);
	if (got > 0) {
		/* before they are written */
		int r = make_room(p, (size_t)got);

		if (r < 0)
			return r;
		p->given += (uint64_t)got;
	}
	return got;
}

static void partial_close(struct stream *s)
{
	struct partial *p = container_of(s, struct partial, stream);

	if (p->given > p->noted)
		note(p);
	stream_close(p->prefix);
	stream_close(p->rest);
	free(p);
}

static const struct stream_ops partial_ops = { partial_read, partial_close };

static int open_prefix(struct cache_fill *fill, uint64_t have, struct stream **ret)
{
	struct source *source;
	int fd = fd_dup(cache_fill_fd(fill)), r;

	if (fd < 0)
		return fd;
	r = source_from_fd(fd, &source);
	if (r < 0)
		return r;
	r = source_stream(source, 0, have, ret);
	source_unref(source);
	return r;
}

int partial_stream(struct cache_fill *fill, uint64_t have, struct stream *rest, struct stream **ret)
{
	struct partial *p;
	struct stat st;
	int r = 0;

	if (!fill) {
		*ret = rest;
		return 0;
	}
	p = calloc(1, sizeof(*p));
	if (p && have > 0)
		r = open_prefix(fill, have, &p->prefix);
	if (!p || r < 0) {
		free(p);
		stream_close(rest);
		return p ? r : -ENOMEM;
	}
	p->stream.ops = &partial_ops;
	p->fill = fill;
	p->rest = rest;
	p->noted = have;
	p->noted_ms = now_ms();
	/* what was reserved for a length that is known */
	if (fstat(cache_fill_fd(fill), &st) == 0)
		p->room = (uint64_t)st.st_blocks * 512;
	*ret = &p->stream;
	return 0;
}

/* ---- what goes to a file that is not in the cache ---- */

struct bound {
	struct stream stream;
	struct stream *in;
	int fd;
	uint64_t left;	/* bytes that may come */
	uint64_t known; /* those for which there is room, as far as we have looked */
};

bool partial_room(int fd, uint64_t n, uint64_t keep)
{
	struct statvfs vfs;
	uint64_t avail;

	/* what has no size, as a file in memory, has other bounds */
	if (fstatvfs(fd, &vfs) < 0 || vfs.f_blocks == 0)
		return true;
	keep = MIN(keep, (uint64_t)vfs.f_blocks / KEEP_FREE * vfs.f_frsize);
	avail = (uint64_t)vfs.f_bavail * vfs.f_frsize;
	return avail > keep && n <= avail - keep;
}

static ssize_t bound_read(struct stream *s, void *ret_buf, size_t n)
{
	struct bound *b = container_of(s, struct bound, stream);
	ssize_t got = stream_read(b->in, ret_buf, n);

	if (got <= 0)
		return got;
	if ((size_t)got > b->left)
		return -ENOSPC;
	b->left -= (size_t)got;
	/* looked at in steps; what is written lags behind, so for a step more than that */
	if ((size_t)got > b->known) {
		if (!partial_room(b->fd, 2 * ROOM, UINT64_MAX))
			return -ENOSPC;
		b->known = ROOM;
	}
	b->known -= MIN((size_t)got, b->known);
	return got;
}

static void bound_close(struct stream *s)
{
	struct bound *b = container_of(s, struct bound, stream);

	stream_close(b->in);
	free(b);
}

static const struct stream_ops bound_ops = { bound_read, bound_close };

int partial_bound(int fd, uint64_t most, uint64_t size, struct stream *in, struct stream **ret)
{
	bool fits = size == UINT64_MAX || (size <= most && partial_room(fd, size, KEEP_KNOWN));
	struct bound *b = fits ? calloc(1, sizeof(*b)) : NULL;

	if (!b) {
		stream_close(in);
		return fits ? -ENOMEM : -ENOSPC;
	}
	b->stream.ops = &bound_ops;
	b->in = in;
	b->fd = fd;
	b->left = most;
	b->known = size == UINT64_MAX ? 0 : size;
	*ret = &b->stream;
	return 0;
}
