/* SPDX-License-Identifier: Apache-2.0 */
#include "format/chunks.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/util.h"

/* The layout; all integers are little-endian. */
#define MAGIC "cartonfs-chunks\n"
#define MAGIC_SIZE 16
#define VERSION 2
#define HEADER_SIZE 40
#define FILE_SIZE 56
#define FILES_AT_ONCE 1024
#define SLOTS_AT_ONCE 128

/* ---- reading ---- */

struct reader {
	uint64_t size; /* of the index */
	chunks_read_fn *read;
	void *ctx;
	struct budget *budget;
	struct chunks *c;
};

/* Logs what is wrong with the bytes at `off`, and is -EBADMSG. */
#define bad(off, text, ...)                                                                      \
	({                                                                                       \
		carton_log(CARTON_LOG_WARNING, CHUNKS_PATH,                                      \
			   "byte %" PRIu64 ": " text "; the index is not used", (uint64_t)(off), \
			   ##__VA_ARGS__);                                                       \
		-EBADMSG;                                                                        \
	})

/* 1: it is of version 1. */
static int parse_header(struct reader *rd)
{
	uint8_t header[HEADER_SIZE];
	struct chunks *c = rd->c;
	uint64_t n;
	int r;

	if (rd->size < HEADER_SIZE)
		return bad(rd->size, "ends in its header of %d bytes", HEADER_SIZE);
	r = rd->read(rd->ctx, header, sizeof(header), 0);
	if (r < 0)
		return r;
	if (memcmp(header, MAGIC, MAGIC_SIZE) != 0)
		return bad(0, "does not begin with \"cartonfs-chunks\" and a newline");
	if (get_le64(header + 16) == 1)
		return 1;
	if (get_le64(header + 16) != VERSION) {
		bad(16, "version is %llu; only %d is supported",
		    (unsigned long long)get_le64(header + 16), VERSION);
		return -EOPNOTSUPP;
	}
	n = get_le64(header + 24);
	c->n_chunks = get_le64(header + 32);
	if (n > MAX_ENTRIES) {
		bad(24, "lists %llu files; the limit is %d", (unsigned long long)n, MAX_ENTRIES);
		return -EFBIG;
	}
	/* the counts are below the size of the file, so neither product overflows */
	if (n > rd->size / FILE_SIZE || c->n_chunks > rd->size / SHA256_SIZE ||
	    rd->size != HEADER_SIZE + n * FILE_SIZE + c->n_chunks * SHA256_SIZE)
		return bad(24, "%llu files and %llu chunks do not make an index of %llu bytes",
			   (unsigned long long)n, (unsigned long long)c->n_chunks,
			   (unsigned long long)rd->size);
	c->n = (size_t)n;
	return 0;
}

/* Reads one record. `chunk` is the number of its first chunk. */
static int parse_file(const struct chunks *c, size_t i, const uint8_t *p, uint64_t chunk)
{
	struct chunks_file *f = &c->files[i];
	uint64_t at = HEADER_SIZE + (uint64_t)i * FILE_SIZE;
	int order;

	memcpy(f->sha256, p, SHA256_SIZE);
	f->size = get_le64(p + 32);
	f->chunk_size = get_le64(p + 40);
	f->first = get_le64(p + 48);
	order = i ? memcmp(c->files[i - 1].sha256, f->sha256, SHA256_SIZE) : -1;
	if (order >= 0)
		return bad(at, "%s",
			   order ? "the files are not sorted by their sha256" :
				   "the same file for the second time");
	if (f->size == 0 || f->size > MAX_FILE_SIZE)
		return bad(at + 32, "a file of %llu bytes; it must be from 1 to 2^50",
			   (unsigned long long)f->size);
	if (f->chunk_size < MIN_CHUNK || f->chunk_size > MAX_CHUNK ||
	    (f->chunk_size & (f->chunk_size - 1)))
		return bad(at + 40,
			   "chunks of %llu bytes; they must be a power of two from %llu to %llu",
			   (unsigned long long)f->chunk_size, MIN_CHUNK, MAX_CHUNK);
	if (f->first != chunk)
		return bad(at + 48, "the first chunk is %llu; the files before end at %llu",
			   (unsigned long long)f->first, (unsigned long long)chunk);
	if (chunks_count(f) > c->n_chunks - chunk)
		return bad(at + 32, "the file has %llu chunks; only %llu are left",
			   (unsigned long long)chunks_count(f),
			   (unsigned long long)(c->n_chunks - chunk));
	return 0;
}

static int parse_files(const struct reader *rd)
{
	const struct chunks *c = rd->c;
	uint8_t block[FILES_AT_ONCE * FILE_SIZE];
	uint64_t chunk = 0;

	for (size_t i = 0; i < c->n; i += FILES_AT_ONCE) {
		size_t n = MIN(c->n - i, FILES_AT_ONCE);
		int r = rd->read(rd->ctx, block, n * FILE_SIZE,
				 HEADER_SIZE + (uint64_t)i * FILE_SIZE);

		for (size_t k = 0; k < n && r == 0; k++) {
			r = parse_file(c, i + k, block + k * FILE_SIZE, chunk);
			if (r == 0)
				chunk += chunks_count(&c->files[i + k]);
		}
		if (r < 0)
			return r;
	}
	if (chunk != c->n_chunks)
		return bad(32, "%llu chunks; the files have %llu", (unsigned long long)c->n_chunks,
			   (unsigned long long)chunk);
	return 0;
}

/*
 * The last slot of each file is its sha256, which the file is known by: this ties the states to
 * MANIFEST.
 */
static int check_last_slots(const struct reader *rd)
{
	uint8_t slots[SLOTS_AT_ONCE * SHA256_SIZE];
	uint64_t from = 0, end = 0; /* where these are in the index */

	for (size_t i = 0; i < rd->c->n; i++) {
		const struct chunks_file *f = &rd->c->files[i];
		uint64_t at = chunks_slot_at(rd->c, f, chunks_count(f) - 1);

		if (at >= end) {
			size_t n = (size_t)MIN(rd->size - at, sizeof(slots));
			int r = rd->read(rd->ctx, slots, n, at);

			if (r < 0)
				return r;
			from = at;
			end = at + n;
		}
		if (memcmp(slots + (at - from), f->sha256, SHA256_SIZE) != 0)
			return bad(at, "the last slot of a file is not its sha256");
	}
	return 0;
}

/* What the header has said fits the budget. */
static int parse_all(const struct reader *rd)
{
	struct chunks *c = rd->c;
	int r;

	c->files = calloc(c->n + 1, sizeof(*c->files));
	r = c->files ? parse_files(rd) : -ENOMEM;
	return r < 0 ? r : check_last_slots(rd);
}

static void say_first_version(void)
{
	carton_log(
		CARTON_LOG_NOTICE, CHUNKS_PATH,
		"is of version 1, which is not read: large files are hashed as a whole; `cartonctl "
		"repack --chunk-index` writes it anew, and then the model hash is another one, "
		"which no signature of the old carton fits");
}

int chunks_parse(uint64_t size, chunks_read_fn *read, void *ctx, struct budget *budget,
		 struct chunks **ret)
{
	struct reader rd = { size, read, ctx, budget, calloc(1, sizeof(*rd.c)) };
	uint64_t cost = 0;
	int r;

	if (!rd.c)
		return -ENOMEM;
	r = parse_header(&rd);
	if (r == 1) {
		say_first_version();
		chunks_free(rd.c);
		*ret = NULL;
		return 0;
	}
	if (r == 0) {
		cost = rd.c->n * sizeof(*rd.c->files);
		r = budget_take(budget, cost);
	}
	if (r < 0) {
		chunks_free(rd.c);
		return r;
	}
	r = parse_all(&rd);
	if (r < 0) {
		budget_give(budget, cost);
		chunks_free(rd.c);
		return r;
	}
	*ret = rd.c;
	return 0;
}

static int compare_hash(const void *key, const void *file)
{
	return memcmp(key, ((const struct chunks_file *)file)->sha256, SHA256_SIZE);
}

const struct chunks_file *chunks_find(const struct chunks *c, const uint8_t sha256[SHA256_SIZE])
{
	return bsearch(sha256, c->files, c->n, sizeof(*c->files), compare_hash);
}

uint64_t chunks_count(const struct chunks_file *f)
{
	return (f->size - 1) / f->chunk_size + 1;
}

uint64_t chunks_slot_at(const struct chunks *c, const struct chunks_file *f, uint64_t i)
{
	return HEADER_SIZE + (uint64_t)c->n * FILE_SIZE + (f->first + i) * SHA256_SIZE;
}

void chunks_free(struct chunks *c)
{
	if (!c)
		return;
	free(c->files);
	free(c);
}

/* ---- writing ---- */

uint64_t chunks_size_for(uint64_t file_size)
{
	uint64_t size = 256 * KIB;

	while (size < MAX_CHUNK && size * size / 16 < file_size)
		size *= 2;
	return size;
}

void chunks_made_finish(struct chunks_made *m)
{
	free(m->slots);
	*m = (struct chunks_made){ 0 };
}

static uint64_t count_slots(const struct chunks_made *m)
{
	return m->slots ? (m->size - 1) / m->chunk_size + 1 : 0;
}

static const uint8_t *sha256_made(const struct chunks_made *m)
{
	return m->slots[count_slots(m) - 1];
}

int chunks_writer_add(struct chunks_writer *w, struct chunks_made *file)
{
	if (!file->slots)
		return 0;
	if (array_room(w->files, &w->cap, w->n + 1) < 0)
		return -ENOMEM;
	w->files[w->n++] = *file;
	*file = (struct chunks_made){ 0 };
	return 0;
}

static int compare_made(const void *a, const void *b)
{
	return memcmp(sha256_made(a), sha256_made(b), SHA256_SIZE);
}

/* Sorts the files, and drops duplicates. */
static void tidy(struct chunks_writer *w)
{
	size_t n = 0;

	if (w->n)
		qsort(w->files, w->n, sizeof(*w->files), compare_made);
	for (size_t i = 0; i < w->n; i++) {
		if (n && compare_made(&w->files[n - 1], &w->files[i]) == 0)
			chunks_made_finish(&w->files[i]);
		else
			w->files[n++] = w->files[i];
	}
	w->n = n;
}

int chunks_writer_end(struct chunks_writer *w, uint8_t **ret_data, size_t *ret_size)
{
	uint64_t n_chunks = 0, first = 0;
	uint8_t *data, *file, *slot;
	size_t size;

	tidy(w);
	for (size_t i = 0; i < w->n; i++)
		n_chunks += count_slots(&w->files[i]);
	size = HEADER_SIZE + w->n * FILE_SIZE + (size_t)n_chunks * SHA256_SIZE;
	data = malloc(size);
	if (!data)
		return -ENOMEM;
	memcpy(data, MAGIC, MAGIC_SIZE);
	put_le64(data + 16, VERSION);
	put_le64(data + 24, w->n);
	put_le64(data + 32, n_chunks);
	file = data + HEADER_SIZE;
	slot = file + w->n * FILE_SIZE;
	for (size_t i = 0; i < w->n; i++, file += FILE_SIZE) {
		const struct chunks_made *m = &w->files[i];
		size_t n = (size_t)count_slots(m);

		memcpy(file, sha256_made(m), SHA256_SIZE);
		put_le64(file + 32, m->size);
		put_le64(file + 40, m->chunk_size);
		put_le64(file + 48, first);
		memcpy(slot, m->slots, n * SHA256_SIZE);
		slot += n * SHA256_SIZE;
		first += n;
	}
	*ret_data = data;
	*ret_size = size;
	return 0;
}

void chunks_writer_finish(struct chunks_writer *w)
{
	for (size_t i = 0; i < w->n; i++)
		chunks_made_finish(&w->files[i]);
	free(w->files);
}
