/* SPDX-License-Identifier: Apache-2.0 */
#include "check/check_entry.h"

#include <stdlib.h>

#include "archive/decode.h"
#include "base/ingest.h"
#include "base/util.h"

/* a part has so many bytes, or one chunk; they are read in blocks */
#define PART (16 * MIB)
#define PART_BLOCK (512 * KIB)

/* What the index says of it; NULL: nothing. */
static const struct chunks_file *in_index(const struct check_entry *k,
					  uint8_t ret_sha256[SHA256_SIZE])
{
	if (!k->line)
		return NULL;
	manifest_hash(k->line, ret_sha256);
	return check_chunks_find(k->chunks, ret_sha256);
}

static int check_crc(const struct entry *e, uint32_t crc)
{
	if (!e->has_crc || crc == e->crc)
		return 0;
	return log_error(-EBADMSG, e->name, "crc mismatch: the zip says %08x, the bytes have %08x",
			 e->crc, crc);
}

/* ---- as a whole ---- */

/* A stream that passes bytes through and computes their crc, and the hashes of their chunks. */
struct crc_stream {
	struct stream stream;
	struct stream *in;
	uint32_t crc;
	struct chunks_hasher chunks; /* with a chunk size if they are wanted */
};

static ssize_t crc_read(struct stream *s, void *ret_buf, size_t n)
{
	struct crc_stream *c = container_of(s, struct crc_stream, stream);
	ssize_t got = stream_read(c->in, ret_buf, n);
	int r = 0;

	if (got > 0)
		c->crc = crc32_update(c->crc, ret_buf, (size_t)got);
	if (got > 0 && c->chunks.chunk_size)
		r = chunks_hasher_feed(&c->chunks, ret_buf, (size_t)got);
	return r < 0 ? r : got;
}

static void crc_close(struct stream *s)
{
	stream_close(container_of(s, struct crc_stream, stream)->in);
}

static const struct stream_ops crc_ops = { crc_read, crc_close };

int check_entry(const struct check_entry *k)
{
	const struct entry *e = k->entry;
	uint8_t sha256[SHA256_SIZE];
	const struct chunks_file *chunks = in_index(k, sha256);
	struct crc_stream crc = { .stream.ops = &crc_ops };
	struct ingest job = {
		.in = &crc.stream,
		.size = e->size,
		.hash = k->line && !(chunks && k->by_chunks),
		.alone = k->crowded,
		.progress = k->progress,
		.ctx = k->ctx,
	};
	struct ingested found = { 0 };
	int r = container_stream(k->container, e, &crc.in), bad_crc;

	if (r < 0)
		return r;
	crc.chunks.chunk_size = chunks ? chunks->chunk_size : 0;
	r = ingest_run(&job, &found);
	stream_close(&crc.stream);
	if (r < 0)
		goto out;
	if (job.hash)
		r = manifest_check_hash(e->name, k->line, found.sha256);
	bad_crc = check_crc(e, crc.crc);
	r = r < 0 ? r : bad_crc;
	if (r == 0)
		r = chunks_hasher_end(&crc.chunks);
	/* a bad file was logged */
	if (r == 0 && chunks)
		r = check_chunks_compare(k->chunks, e, chunks, &crc.chunks, 0);
out:
	chunks_hasher_finish(&crc.chunks);
	return r;
}

/* ---- in parts ---- */

struct check_parts {
	struct check_entry of;
	const struct chunks_file *chunks;
	struct source *source;
	uint64_t off;	    /* of the bytes in the source */
	uint64_t part;	    /* bytes of each, whole chunks, but for the last */
	size_t n;	    /* how many */
	atomic_size_t left; /* that are not checked */
	atomic_bool failed;
	uint32_t crcs[]; /* of each */
};

static uint64_t part_size(const struct chunks_file *chunks)
{
	return MAX(PART, chunks->chunk_size);
}

size_t check_parts(const struct check_entry *k)
{
	uint8_t sha256[SHA256_SIZE];
	const struct chunks_file *chunks = k->by_chunks ? in_index(k, sha256) : NULL;

	/* a size that differs is reported by the other way */
	if (!chunks || k->entry->method != METHOD_STORED || k->container->remote ||
	    chunks->size != k->entry->size || chunks->size <= part_size(chunks))
		return 0;
	return (size_t)((chunks->size - 1) / part_size(chunks) + 1);
}

int check_parts_new(const struct check_entry *k, struct check_parts **ret)
{
	size_t n = check_parts(k);
	struct check_parts *p = calloc(1, sizeof(*p) + n * sizeof(p->crcs[0]));
	uint8_t sha256[SHA256_SIZE];
	int r;

	if (!p)
		return -ENOMEM;
	p->of = *k;
	p->chunks = in_index(k, sha256);
	p->part = part_size(p->chunks);
	p->n = n;
	atomic_init(&p->left, n);
	r = container_locate(k->container, k->entry, &p->source, &p->off);
	if (r < 0) {
		free(p);
		return r;
	}
	*ret = p;
	return 0;
}

static void parts_free(struct check_parts *p)
{
	source_unref(p->source);
	free(p);
}

static int read_part(struct check_parts *p, size_t i, struct chunks_hasher *chunks, char *block)
{
	uint64_t from = i * p->part, size = MIN(p->part, p->chunks->size - from), n;
	int r = 0;

	for (uint64_t at = 0; at < size && r == 0; at += n) {
		n = MIN(PART_BLOCK, size - at);
		r = source_pread(p->source, block, (size_t)n, p->off + from + at);
		if (r < 0)
			break;
		p->crcs[i] = crc32_update(p->crcs[i], block, (size_t)n);
		r = chunks_hasher_feed(chunks, block, (size_t)n);
		p->of.progress(p->of.ctx, n);
	}
	return r == 0 ? chunks_hasher_end(chunks) : r;
}

static int compare_part(struct check_parts *p, size_t i)
{
	struct chunks_hasher chunks = { .chunk_size = p->chunks->chunk_size };
	char *block = malloc(PART_BLOCK);
	int r = block ? read_part(p, i, &chunks, block) : -ENOMEM;

	if (r == 0 && !atomic_load(&p->failed))
		r = check_chunks_compare(p->of.chunks, p->of.entry, p->chunks, &chunks,
					 i * (p->part / p->chunks->chunk_size));
	chunks_hasher_finish(&chunks);
	free(block);
	return r;
}

/* The parts were all right: compares the crc of all. */
static int check_whole_crc(const struct check_parts *p)
{
	uint32_t crc = 0;

	for (size_t i = 0; i < p->n; i++)
		crc = crc32_join(crc, p->crcs[i], MIN(p->part, p->chunks->size - i * p->part));
	return check_crc(p->of.entry, crc);
}

int check_part(struct check_parts *p, size_t i)
{
	int r = compare_part(p, i);

	if (r < 0 && atomic_exchange(&p->failed, true))
		r = 0;
	if (atomic_fetch_sub(&p->left, 1) > 1)
		return r;
	if (!atomic_load(&p->failed))
		r = check_whole_crc(p);
	parts_free(p);
	return r;
}

void check_parts_drop(struct check_parts *p)
{
	if (p && atomic_fetch_sub(&p->left, 1) == 1)
		parts_free(p);
}
