/* SPDX-License-Identifier: Apache-2.0 */
#include "check/check_entry.h"

#include <stdlib.h>

#include "archive/decode.h"
#include "base/ingest.h"
#include "base/util.h"

/* a part is read in blocks */
#define PART_BLOCK (512 * KIB)

static size_t count_parts(uint64_t size)
{
	return (size_t)((size + TAG_PART - 1) / TAG_PART);
}

/* What the index says of it that its tags (NULL: none) do not vouch for; NULL: nothing. */
static const struct chunks_file *in_index(const struct check_entry *k, uint8_t (*tags)[TAG_SIZE])
{
	uint8_t sha256[SHA256_SIZE];

	if (!k->line || (tags && k->made->indexed))
		return NULL;
	manifest_hash(k->line, sha256);
	return check_chunks_find(k->chunks, sha256);
}

static int check_crc(const struct entry *e, uint32_t crc)
{
	if (!e->has_crc || crc == e->crc)
		return 0;
	return log_error(-EBADMSG, e->name, "crc mismatch: the zip says %08x, the bytes have %08x",
			 e->crc, crc);
}

/* ---- as a whole ---- */

static ssize_t crc_read(struct stream *s, void *ret_buf, size_t n)
{
	struct crc_stream *c = container_of(s, struct crc_stream, stream);
	ssize_t got = stream_read(c->in, ret_buf, n);

	if (got > 0)
		c->crc = crc32_update(c->crc, ret_buf, (size_t)got);
	return got;
}

static void crc_close(struct stream *s)
{
	stream_close(container_of(s, struct crc_stream, stream)->in);
}

static const struct stream_ops crc_ops = { crc_read, crc_close };

static int other_bytes(const struct entry *e)
{
	return log_error(-EBADMSG, e->name, "has other bytes than those that were written");
}

static bool same_tags(uint8_t (*tags)[TAG_SIZE], const struct ingested *found)
{
	size_t n = count_parts(found->size);

	return n == 0 || memcmp(found->tags, tags, n * TAG_SIZE) == 0;
}

int check_entry_begin(const struct check_entry *k, struct entry_check *ret)
{
	const struct entry *e = k->entry;
	uint8_t(*tags)[TAG_SIZE] = pack_tags_of(k->made, e);
	const struct chunks_file *chunks = in_index(k, tags);

	*ret = (struct entry_check){
		.of = *k,
		.crc.stream.ops = &crc_ops,
		.chunks = chunks,
		.job = {
			.in = &ret->crc.stream,
			.size = e->size,
			.tagger = tags ? k->made->tagger : NULL,
			.parts = true,
			.hash = k->line && (!tags || chunks),
			.states = chunks ? chunks->chunk_size : 0,
			.alone = k->crowded,
			.progress = k->progress,
			.ctx = k->ctx,
		},
	};
	return container_stream(k->container, e, &ret->crc.in);
}

/* Compares what was found with what is known of the entry. */
static int compare(const struct entry_check *c, const struct ingested *found)
{
	const struct check_entry *k = &c->of;
	const struct entry *e = k->entry;
	uint8_t(*tags)[TAG_SIZE] = pack_tags_of(k->made, e);
	int r = 0, bad_crc;

	if (tags)
		r = same_tags(tags, found) ? 0 : other_bytes(e);
	if (r == 0 && c->job.hash)
		r = manifest_check_hash(e->name, k->line, found->sha256);
	bad_crc = check_crc(e, c->crc.crc);
	r = r < 0 ? r : bad_crc;
	/* a bad file was logged */
	if (r == 0 && c->chunks)
		r = check_chunks_compare(k->chunks, e, c->chunks, found);
	return r;
}

int check_entry_end(struct entry_check *c, int r, struct ingested *found)
{
	stream_close(&c->crc.stream);
	if (r < 0)
		return r;
	r = compare(c, found);
	free(found->tags);
	free(found->states);
	return r;
}

int check_entry(const struct check_entry *k)
{
	struct ingested found;
	struct entry_check c;
	int r = check_entry_begin(k, &c);

	if (r < 0)
		return r;
	r = ingest_run(&c.job, &found);
	return check_entry_end(&c, r, &found);
}

/* ---- in parts ---- */

struct check_parts {
	struct check_entry of;
	uint8_t (*tags)[TAG_SIZE];
	struct source *source;
	uint64_t off;	    /* of the bytes in the source */
	size_t n;	    /* how many */
	atomic_size_t left; /* that are not checked */
	atomic_bool failed;
	uint32_t crcs[]; /* of each */
};

size_t check_parts(const struct check_entry *k)
{
	uint8_t(*tags)[TAG_SIZE] = pack_tags_of(k->made, k->entry);
	size_t n = count_parts(k->entry->size);

	if (!tags || in_index(k, tags) || k->entry->method != METHOD_STORED ||
	    k->container->remote || n == 1)
		return 0;
	return n;
}

int check_parts_new(const struct check_entry *k, struct check_parts **ret)
{
	size_t n = check_parts(k);
	struct check_parts *p = calloc(1, sizeof(*p) + n * sizeof(p->crcs[0]));
	int r;

	if (!p)
		return -ENOMEM;
	p->of = *k;
	p->tags = pack_tags_of(k->made, k->entry);
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

static uint64_t part_len(const struct check_parts *p, size_t i)
{
	return MIN(TAG_PART, p->of.entry->size - i * TAG_PART);
}

static int read_part(struct check_parts *p, size_t i, struct hasher *h, char *block)
{
	uint64_t size = part_len(p, i), n;
	int r = 0;

	for (uint64_t at = 0; at < size && r == 0; at += n) {
		n = MIN(PART_BLOCK, size - at);
		r = source_pread(p->source, block, (size_t)n, p->off + i * TAG_PART + at);
		if (r < 0)
			break;
		p->crcs[i] = crc32_update(p->crcs[i], block, (size_t)n);
		r = hasher_feed(h, block, (size_t)n);
		p->of.progress(p->of.ctx, n);
	}
	return r;
}

static int compare_part(struct check_parts *p, size_t i)
{
	char *block = malloc(PART_BLOCK);
	struct ingested found = { 0 };
	struct hasher h;
	int r = block ? hasher_begin(&h, p->of.made->tagger, false) : -ENOMEM;

	if (r < 0) {
		free(block);
		return r;
	}
	hasher_tag_parts(&h);
	r = read_part(p, i, &h, block);
	if (r == 0)
		r = hasher_end(&h, &found);
	else
		hasher_abort(&h);
	/* one of several says it */
	if (r == 0 && !same_tags(&p->tags[i], &found))
		r = atomic_load(&p->failed) ? -EBADMSG : other_bytes(p->of.entry);
	free(found.tags);
	free(block);
	return r;
}

/* The parts were all right: compares the crc of all. */
static int check_whole_crc(const struct check_parts *p)
{
	uint32_t crc = 0;

	for (size_t i = 0; i < p->n; i++)
		crc = crc32_join(crc, p->crcs[i], part_len(p, i));
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
