/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a zip: it is refused, or every entry keeps the container's promises and gives
 * exactly its size or an error.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "archive/container.h"
#include "archive/decode.h"
#include "archive/zip.h"

#include "fuzz.h"

#define MAX_STREAMED (1 * MIB) /* of one entry: a bomb need not be seen to its end */

struct memory {
	struct source source;
	const uint8_t *data;
};

static int memory_pread(struct source *s, void *ret_buf, size_t n, uint64_t off)
{
	struct memory *m = container_of(s, struct memory, source);

	/* what was checked against the archive's size must not lie beyond it */
	CHECK(off <= s->size && n <= s->size - off);
	memcpy(ret_buf, m->data + off, n);
	return 0;
}

struct part {
	struct stream stream;
	struct source *source;
	uint64_t off, left;
};

static ssize_t part_read(struct stream *s, void *ret_buf, size_t n)
{
	struct part *p = container_of(s, struct part, stream);

	n = (size_t)MIN(n, p->left);
	if (n)
		CHECK(source_pread(p->source, ret_buf, n, p->off) == 0);
	p->off += n;
	p->left -= n;
	return (ssize_t)n;
}

static void part_close(struct stream *s)
{
	struct part *p = container_of(s, struct part, stream);

	source_unref(p->source);
	free(p);
}

static int memory_stream(struct source *s, uint64_t off, uint64_t n, struct stream **ret)
{
	static const struct stream_ops ops = { .read = part_read, .close = part_close };
	struct part *p = calloc(1, sizeof(*p));

	CHECK(p && off <= s->size && n <= s->size - off);
	*p = (struct part){ { &ops }, source_ref(s), off, n };
	*ret = &p->stream;
	return 0;
}

static void memory_free(struct source *s)
{
	free(container_of(s, struct memory, source));
}

static void stream_to_end(struct container *c, const struct entry *e)
{
	uint64_t have = 0;
	struct stream *s;
	char block[5000];
	ssize_t got = 1;

	if (container_stream(c, e, &s) < 0)
		return;
	while (got > 0 && have < MAX_STREAMED) {
		got = stream_read(s, block, sizeof(block));
		CHECK(got <= (ssize_t)sizeof(block));
		have += got > 0 ? (uint64_t)got : 0;
		CHECK(have <= e->size);
	}
	CHECK(got != 0 || have == e->size);
	stream_close(s);
}

static void read_whole(struct container *c, const struct entry *e)
{
	struct buf b = { 0 };
	int r = container_read(c, e, 4096, &b);

	CHECK(r == 0 || r == -EBADMSG || r == -EFBIG || r == -EOPNOTSUPP || r == -ENOMEM);
	CHECK(r < 0 || (b.len == e->size && b.data[b.len] == '\0'));
	buf_finish(&b);
}

/* Searched for before it is opened, a name that is there is found. */
static void check_hint(const struct container *c, const uint8_t *data, size_t n)
{
	int fd = memfd_create("zip", MFD_CLOEXEC);
	struct stat st;

	CHECK(fd >= 0 && pwrite_full(fd, data, n, 0) == 0 && fstat(fd, &st) == 0);
	for (size_t i = 0; i < c->n_entries && i < 4; i++)
		CHECK(c->entries[i].kind == ENTRY_DIR || !is_ascii(c->entries[i].name) ||
		      container_may_have(fd, &st, c->entries[i].name));
	close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static const struct source_ops ops = {
		.pread = memory_pread,
		.stream = memory_stream,
		.free = memory_free,
	};
	struct memory *m = calloc(1, sizeof(*m));
	struct container *c;
	int r;

	CHECK(m);
	m->source.ops = &ops;
	m->source.refs = 1;
	m->source.size = n;
	m->source.fd = -1;
	m->data = data;
	r = zip_open(&m->source, NULL, &c);
	source_unref(&m->source);
	CHECK(r == 0 || r == -EBADMSG || r == -EOPNOTSUPP || r == -EFBIG || r == -ENOMEM);
	if (r < 0)
		return 0;
	for (size_t i = 0; i < c->n_entries; i++) {
		const struct entry *e = &c->entries[i];

		CHECK(!path_fault(e->name, strlen(e->name)) && strlen(e->name) == e->name_len);
		CHECK(container_find(c, e->name) == e && decode_knows(e->method));
		CHECK(e->header < n && e->stored <= n && entry_end(e) <= n &&
		      e->size <= MAX_FILE_SIZE);
		if (e->kind == ENTRY_DIR)
			continue;
		read_whole(c, e);
		stream_to_end(c, e);
	}
	check_hint(c, data, n);
	container_close(c);
	return 0;
}
