/* SPDX-License-Identifier: Apache-2.0 */
/* A file that is written as it is read from a stream. */
#include "cache/file.h"

#include <stdlib.h>

#include "base/util.h"

struct file_stream {
	struct stream stream;
	struct file *dest;
	struct stream *in;
	uint64_t have; /* bytes that the file had before the stream began */
	uint64_t off;
};

static ssize_t file_stream_read(struct stream *s, void *ret_buf, size_t n)
{
	struct file_stream *ds = container_of(s, struct file_stream, stream);
	ssize_t got;
	int r = 0;

	if (ds->off < ds->have) {
		got = (ssize_t)MIN(n, ds->have - ds->off);
		r = file_read(ds->dest, ret_buf, (size_t)got, ds->off);
	} else {
		got = stream_read(ds->in, ret_buf, n);
		if (got > 0)
			r = file_write(ds->dest, ret_buf, (size_t)got, ds->off);
	}
	if (got < 0 || r < 0)
		return got < 0 ? got : r;
	ds->off += (uint64_t)got;
	file_progress(ds->dest, MAX(ds->off, ds->have));
	return got;
}

static void file_stream_close(struct stream *s)
{
	struct file_stream *ds = container_of(s, struct file_stream, stream);

	stream_close(ds->in);
	free(ds);
}

static const struct stream_ops file_stream_ops = { file_stream_read, file_stream_close };

int file_stream(struct file *d, uint64_t have, struct stream *in, struct stream **ret)
{
	struct file_stream *ds = calloc(1, sizeof(*ds));

	if (!ds) {
		stream_close(in);
		return -ENOMEM;
	}
	*ds = (struct file_stream){ { &file_stream_ops }, d, in, have, 0 };
	*ret = &ds->stream;
	return 0;
}
