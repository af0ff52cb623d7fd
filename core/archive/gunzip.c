/* SPDX-License-Identifier: Apache-2.0 */
#include "archive/gunzip.h"

#include <stdlib.h>
#include <zlib.h>

#include "base/util.h"

#define WINDOW_GZIP (15 + 16) /* the largest window; expects gzip's header and trailer */

struct gunzip {
	z_stream z;
	gunzip_put_fn *put;
	void *ctx;
	bool between; /* a member has ended; the next one or the end of the data follows */
	bool padding; /* zeros have followed it: no member does */
	unsigned char out[64 << 10];
};

int gunzip_new(gunzip_put_fn *put, void *ctx, struct gunzip **ret)
{
	struct gunzip *g = calloc(1, sizeof(*g));

	if (!g || inflateInit2(&g->z, WINDOW_GZIP) != Z_OK) {
		free(g);
		return -ENOMEM;
	}
	g->put = put;
	g->ctx = ctx;
	*ret = g;
	return 0;
}

/* Between two members: skips zeros, and begins the next member if there is one. 0 or -EBADMSG. */
static int go_on(struct gunzip *g)
{
	while (g->z.avail_in && *g->z.next_in == 0) {
		g->padding = true;
		g->z.next_in++;
		g->z.avail_in--;
	}
	if (g->z.avail_in && (g->padding || inflateReset(&g->z) != Z_OK))
		return -EBADMSG;
	return 0;
}

int gunzip_feed(struct gunzip *g, const void *data, size_t n)
{
	int r;

	g->z.next_in = (unsigned char *)data;
	g->z.avail_in = (unsigned)n;
	do {
		r = g->between ? go_on(g) : 0;
		if (r < 0 || (g->between && !g->z.avail_in))
			return r;
		g->z.next_out = g->out;
		g->z.avail_out = sizeof(g->out);
		r = inflate(&g->z, Z_NO_FLUSH);
		if (r != Z_OK && r != Z_STREAM_END && r != Z_BUF_ERROR)
			return r == Z_MEM_ERROR ? -ENOMEM : -EBADMSG;
		g->between = r == Z_STREAM_END;
		r = g->put(g->ctx, g->out, sizeof(g->out) - g->z.avail_out);
	} while (r == 0 && (g->z.avail_in || !g->z.avail_out));
	return r;
}

int gunzip_end(const struct gunzip *g)
{
	return g->between ? 0 : -EBADMSG;
}

void gunzip_free(struct gunzip *g)
{
	if (!g)
		return;
	inflateEnd(&g->z);
	free(g);
}
