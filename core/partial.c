/* SPDX-License-Identifier: Apache-2.0 */
#include "partial.h"

#include <stdlib.h>
#include <sys/stat.h>

#include "util.h"

/* How many bytes may be lost when this process dies: so many, or those of so long. */
#define STEP (1 * MIB)
#define STEP_MS 1000
/* what is reserved ahead where the length is not known */
#define ROOM (4 * MIB)

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
