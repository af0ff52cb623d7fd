/* SPDX-License-Identifier: Apache-2.0 */
/* Sources and streams of bytes.
 *
 * A source has a size and gives the bytes at an offset: a local file here, a file of an http server
 * in remote_source.h. A stream gives bytes one after the other: a part of a source, a decoder over
 * another stream (decode.h), an http body. Nothing at this level is verified.
 */
#ifndef CARTON_BASE_SOURCE_H
#define CARTON_BASE_SOURCE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* ---- streams: used by one thread at a time ---- */

struct stream {
	const struct stream_ops *ops;
};

struct stream_ops {
	ssize_t (*read)(struct stream *s, void *ret_buf, size_t n);
	void (*close)(struct stream *s);
};

/*
 * Reads up to `n` (> 0) bytes. Returns how many, 0 at the end, or -errno; -EBADMSG if it ends
 * before its known length.
 */
static inline ssize_t stream_read(struct stream *s, void *ret_buf, size_t n)
{
	return s->ops->read(s, ret_buf, n);
}

/* NULL-safe. */
static inline void stream_close(struct stream *s)
{
	if (s)
		s->ops->close(s);
}

/* Reads until `n` bytes are there or the stream ends: how many, or -errno. */
ssize_t stream_read_full(struct stream *s, void *ret_buf, size_t n);

/* ---- sources: counted references, used by any thread ---- */

struct source {
	const struct source_ops *ops;
	atomic_uint refs;
	uint64_t size;	     /* when it was opened */
	int fd;		     /* of a local file, else -1 */
	struct spill *spill; /* of a local file: the second file with some of its bytes; or NULL */
	const char *version; /* identifies this content, for resuming a download; NULL: unknown */
};

struct source_ops {
	int (*pread)(struct source *s, void *ret_buf, size_t n, uint64_t off);
	int (*stream)(struct source *s, uint64_t off, uint64_t n, struct stream **ret);
	void (*free)(struct source *s);
	/* as source_prefetch(); NULL: it does nothing */
	int (*prefetch)(struct source *s, uint64_t off, uint64_t n, uint64_t before);
};

/* A local file; `fd` is taken over, also on failure. 0, -ENOMEM or what fstat says. */
int source_from_fd(int fd, struct source **ret);

/* The descriptor of a local source that has the bytes at `off`, as spill_fd(). */
int source_fd_at(const struct source *s, uint64_t off, size_t *n);

struct source *source_ref(struct source *s);
void source_unref(struct source *s); /* NULL-safe */

/* A local file: it can be read in place at any time. */
static inline bool source_is_local(const struct source *s)
{
	return s->fd >= 0;
}

/*
 * Exactly `n` bytes at `off`. Blocks. -ENODATA if the source is shorter; or an error of its kind.
 */
int source_pread(struct source *s, void *ret_buf, size_t n, uint64_t off);

/* The same for a local source, but -EAGAIN if the bytes are not in the page cache. */
int source_pread_nowait(struct source *s, void *ret_buf, size_t n, uint64_t off);

/* Are some bytes of a large range of a local source in the page cache? A guess. */
bool source_is_cached(struct source *s, uint64_t off, uint64_t n);

/*
 * Has the file of a local source the size and the times that it had? 1, 0 or -errno. A change
 * within one tick of the clock is not seen.
 */
struct stat;
int source_is_same(const struct source *s, const struct stat *before);

/* Has the file of a local source a name, so that others may find it? */
bool source_has_name(const struct source *s);

/* Has the kernel read a range of a local source into the page cache, and does not wait for that. */
void source_will_need(struct source *s, uint64_t off, uint64_t n);

/* Takes a range out of the page cache. */
void source_drop_pages(struct source *s, uint64_t off, uint64_t n);

/*
 * Announces that [off, off+n) will be read soon, in small reads. A remote source fetches it with
 * one request, if it is not too large, together with up to `before` bytes before it. 0 or the
 * request's error.
 */
static inline int source_prefetch(struct source *s, uint64_t off, uint64_t n, uint64_t before)
{
	return s->ops->prefetch ? s->ops->prefetch(s, off, n, before) : 0;
}

/* For implementations of sources: a stream that reads [off, off+n) with source_pread(). */
int source_part(struct source *s, uint64_t off, uint64_t n, struct stream **ret);

/*
 * A stream of [off, off+n), which holds a reference. 0, -ENOMEM, or an error of the kind of source.
 */
int source_stream(struct source *s, uint64_t off, uint64_t n, struct stream **ret);

#endif
