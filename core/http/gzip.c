/* SPDX-License-Identifier: Apache-2.0 */
#include "http/gzip.h"

#include <stdlib.h>
#include <zlib.h>

#include "base/util.h"

#define WINDOW_GZIP (15 + 16) /* the largest window, and gzip's header and trailer around it */

struct gunzip {
	struct stream stream;
	struct stream *in;
	z_stream z;
	bool between; /* a member has ended: another one may follow, or nothing */
	unsigned char buf[64 << 10];
};

/* More input: how many bytes, 0 at a good end, or -errno. */
static ssize_t fill(struct gunzip *g)
{
	ssize_t got = stream_read(g->in, g->buf, sizeof(g->buf));

	if (got == 0 && !g->between)
		return -EBADMSG;
	if (got > 0) {
		g->z.next_in = g->buf;
		g->z.avail_in = (unsigned)got;
	}
	return got;
}

static ssize_t gunzip_read(struct stream *s, void *ret_buf, size_t n)
{
	struct gunzip *g = container_of(s, struct gunzip, stream);

	n = MIN(n, (size_t)1 << 30);
	g->z.next_out = ret_buf;
	g->z.avail_out = (unsigned)n;
	while (g->z.avail_out == n) {
		ssize_t got = g->z.avail_in ? 1 : fill(g);
		int r;

		if (got <= 0)
			return got;
		if (g->between && inflateReset(&g->z) != Z_OK)
			return -EBADMSG;
		r = inflate(&g->z, Z_NO_FLUSH);
		g->between = r == Z_STREAM_END;
		if (r != Z_OK && r != Z_STREAM_END)
			return r == Z_MEM_ERROR ? -ENOMEM : -EBADMSG;
	}
	return (ssize_t)(n - g->z.avail_out);
}

static void gunzip_close(struct stream *s)
{
	struct gunzip *g = container_of(s, struct gunzip, stream);

	inflateEnd(&g->z);
	stream_close(g->in);
	free(g);
}

static const struct stream_ops gunzip_ops = { gunzip_read, gunzip_close };

int http_gzip_stream(struct stream *in, struct stream **ret)
{
	struct gunzip *g = calloc(1, sizeof(*g));

	if (!g || inflateInit2(&g->z, WINDOW_GZIP) != Z_OK) {
		free(g);
		stream_close(in);
		return -ENOMEM;
	}
	g->stream.ops = &gunzip_ops;
	g->in = in;
	*ret = &g->stream;
	return 0;
}
