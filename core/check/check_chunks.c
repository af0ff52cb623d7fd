/* SPDX-License-Identifier: Apache-2.0 */
#include "check/check_chunks.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/util.h"
#include "open/load.h"

static int compare_hashes(const void *a, const void *b)
{
	return memcmp(a, b, SHA256_SIZE);
}

/* Counts the records of files that the carton does not have. The records are sorted by hash. */
static ssize_t count_strangers(const struct carton *c, const struct chunks *chunks)
{
	const struct manifest *m = c->manifest;
	uint8_t(*have)[SHA256_SIZE] = calloc(m->n + 1, sizeof(*have));
	ssize_t n = 0;

	if (!have)
		return -ENOMEM;
	for (size_t i = 0; i < m->n; i++)
		manifest_hash(manifest_path(m, i), have[i]);
	qsort(have, m->n, sizeof(*have), compare_hashes);
	for (size_t i = 0; i < chunks->n; i++)
		n += !bsearch(chunks->files[i].sha256, have, m->n, sizeof(*have), compare_hashes);
	free(have);
	if (n)
		carton_log(CARTON_LOG_WARNING, CHUNKS_PATH,
			   "has chunks of %zd file%s that the carton does not have", n,
			   n == 1 ? "" : "s");
	return n ? 1 : 0;
}

ssize_t check_chunks_init(struct carton *c, struct check_chunks *ret)
{
	struct node *n = tree_find(c->tree, CHUNKS_PATH);
	int r;

	*ret = (struct check_chunks){ 0 };
	if (!n || n->kind != NODE_FILE || (!n->file.entry && !carton_fetches(c)))
		return 0;
	/* a damaged index is logged, and counted with the other files */
	if (carton_pin_wait(c, from_node(n)) < 0)
		return 0;
	ret->file = n;
	r = load_chunks(n, &c->budget, &ret->chunks);
	if (r == -ENOMEM)
		return r;
	return r < 0 ? 1 : count_strangers(c, ret->chunks);
}

void check_chunks_finish(struct check_chunks *k)
{
	chunks_free(k->chunks);
	if (k->file)
		carton_unpin(from_node(k->file));
}

uint64_t check_chunks_size(const struct check_chunks *k, const uint8_t sha256[SHA256_SIZE])
{
	const struct chunks_file *f = k->chunks ? chunks_find(k->chunks, sha256) : NULL;

	return f ? f->chunk_size : 0;
}

int check_chunks_compare(const struct check_chunks *k, const char *name,
			 const uint8_t sha256[SHA256_SIZE], const struct chunks_hasher *h)
{
	const struct chunks_file *f = chunks_find(k->chunks, sha256);
	uint8_t want[SHA256_SIZE];
	int r = 0;

	if (f->size != h->size)
		return log_error(-EBADMSG, CHUNKS_PATH,
				 "has %" PRIu64 " bytes for \"%s\", which has %" PRIu64, f->size,
				 name, h->size);
	for (size_t i = 0; i < h->n && r == 0; i++) {
		r = object_read_wait(node_object(k->file), want, sizeof(want),
				     chunks_hash_at(k->chunks, f, i));
		if (r == 0 && memcmp(want, h->hashes[i], sizeof(want)) != 0)
			r = log_error(-EBADMSG, CHUNKS_PATH,
				      "chunk %zu of \"%s\" has another hash than the file", i,
				      name);
	}
	return r;
}
