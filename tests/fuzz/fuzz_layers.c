/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads any bytes as two stacked layers, each of which may be compressed. The first byte gives the
 * length of the lower one, in blocks of 512. Each file that is listed is a range of its tar, which
 * has the hash that is given. The result is a tree, and no path or link leads out of it.
 *
 * Also reads the bytes as the text LAYERS of a kept carton: each file is within its layer.
 */
#include <string.h>

#include "archive/container.h"
#include "archive/unpack.h"
#include "base/budget.h"
#include "base/source.h"
#include "import/internal.h"
#include "import/merge.h"

#include "fuzz.h"

#define ROOM (1 << 20) /* more is not unpacked */

struct layer {
	struct stream stream;
	const uint8_t *data;
	size_t n, at;
};

static ssize_t read_bytes(struct stream *s, void *ret_buf, size_t n)
{
	struct layer *y = container_of(s, struct layer, stream);

	n = MIN(n, y->n - y->at);
	if (n > 0)
		memcpy(ret_buf, y->data + y->at, n);
	y->at += n;
	return (ssize_t)n;
}

static void close_bytes(struct stream *s)
{
	(void)s;
}

static struct layer layer_of(const void *data, size_t n)
{
	static const struct stream_ops ops = { read_bytes, close_bytes };

	return (struct layer){ { &ops }, data, n, 0 };
}

/* Unpacks a layer into `ret`. Its length; ROOM: it may be longer; a negative number: refused. */
static ssize_t unpack(struct layer *y, struct budget *budget, uint8_t *ret)
{
	enum unpack_coding coding = unpack_coding(y->data, y->n);
	struct stream *s;
	ssize_t n;

	if (coding == UNPACK_NONE)
		return stream_read_full(&y->stream, ret, ROOM);
	if (unpack_open(&y->stream, "fuzz", coding, budget, &s) < 0)
		return -1;
	n = stream_read_full(s, ret, ROOM);
	stream_close(s);
	return n;
}

struct reading {
	struct merge merge;
	const uint8_t *tar;
	size_t n;
};

static int entry(void *ctx, const struct tar_entry *e)
{
	struct reading *rd = ctx;
	uint8_t sha256[SHA256_SIZE];

	if (e->kind == TAR_FILE) {
		CHECK(e->off <= rd->n && e->in.size <= rd->n - e->off);
		CHECK(sha256_mem(rd->tar + e->off, e->in.size, sha256) == 0);
		CHECK(memcmp(sha256, e->in.sha256, SHA256_SIZE) == 0);
	}
	return merge_add(&rd->merge, e);
}

static bool goes_out(const char *path)
{
	return *path == '/' || strcmp(path, "..") == 0 || strncmp(path, "../", 3) == 0 ||
	       strstr(path, "/../") ||
	       (strlen(path) > 2 && !strcmp(path + strlen(path) - 3, "/.."));
}

static void check_tree(const struct merge *m, bool ended)
{
	for (size_t i = 0; i < m->n; i++) {
		const struct member *f = &m->list[i];

		CHECK(*f->path && !goes_out(f->path) && f->kind != TAR_DIR &&
		      f->kind != TAR_HARDLINK && !f->fresh);
		if (i > 0)
			CHECK(path_compare(f[-1].path, f->path) < 0 &&
			      !merge_is_below(f->path, f[-1].path));
		if (!ended || f->gone)
			continue;
		CHECK(!path_fault(f->path, strlen(f->path)) && f->kind != TAR_OTHER);
		CHECK((f->kind == TAR_SYMLINK) == (f->to != NULL));
		CHECK(!f->to || !f->to->gone);
	}
}

static void read_layers(const uint8_t *data, size_t n)
{
	static uint8_t tars[2][ROOM];
	struct budget budget;
	struct reading rd = { .merge = { .name = "fuzz", .budget = &budget } };
	size_t first = MIN(n, (size_t)data[0] * 512 + 1);
	int r = 0;

	budget_init(&budget, 256 * MIB);
	merge_init(&rd.merge);
	for (uint32_t i = 0; i < 2 && r == 0; i++) {
		struct layer y = i ? layer_of(data + first, n - first) :
				     layer_of(data + 1, first - 1);
		ssize_t len = unpack(&y, &budget, tars[i]);

		if (len < 0 || len == ROOM)
			break;
		rd.tar = tars[i];
		rd.n = (size_t)len;
		y = layer_of(tars[i], rd.n);
		merge_begin(&rd.merge, i + 1);
		r = tar_scan(&(struct tar_scan){
			.in = &y.stream, .name = "fuzz", .entry = entry, .ctx = &rd });
		if (r == 0)
			r = merge_layer(&rd.merge);
		CHECK(r != 0 || y.at == y.n);
		check_tree(&rd.merge, false);
	}
	if (r == 0) {
		merge_end(&rd.merge, "");
		check_tree(&rd.merge, true);
	}
	merge_finish(&rd.merge);
	CHECK(budget.used == 0);
}

static int note(void *ctx, const struct layers_file *f)
{
	const struct listing *l = ctx;

	CHECK(f->layer > 0 && f->layer <= l->n_layers && !path_fault(f->path, f->n_path));
	CHECK(f->off + f->size <= l->layers[f->layer - 1].size);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct buf text = buf_init(n + 1);
	struct listing l = { .name = "fuzz" };

	if (n == 0)
		return 0;
	read_layers(data, n);
	CHECK(buf_add(&text, data, n) == 0);
	layers_parse(&l, &text, note, &l);
	buf_finish(&text);
	listing_finish(&l);
	return 0;
}
