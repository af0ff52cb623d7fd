/* SPDX-License-Identifier: Apache-2.0 */
#include "check/check_chunks.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/util.h"
#include "open/load.h"

#define SLOTS_AT_ONCE 128

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

ssize_t check_chunks_init(struct carton *c, struct carton_index *ret)
{
	const struct node *n = tree_find(c->tree, CHUNKS_PATH);
	int r;

	*ret = (struct carton_index){ 0 };
	if (n && n->kind == NODE_FILE && !n->file.entry && !carton_fetches(c))
		return 0;
	/* a damaged file is counted with the others */
	r = load_index(c, ret);
	if (r < 0)
		return r == -ENOMEM ? r : 1;
	return ret->chunks ? count_strangers(c, ret->chunks) : 0;
}

void check_chunks_finish(struct carton_index *k)
{
	chunks_free(k->chunks);
	if (k->file)
		carton_unpin(from_node(k->file));
}

const struct chunks_file *check_chunks_find(const struct carton_index *k,
					    const uint8_t sha256[SHA256_SIZE])
{
	return k->chunks ? chunks_find(k->chunks, sha256) : NULL;
}

int check_chunks_compare(const struct carton_index *k, const struct entry *e,
			 const struct chunks_file *f, const struct ingested *found)
{
	uint8_t want[SLOTS_AT_ONCE][SHA256_SIZE];
	uint64_t count = chunks_count(f), n;

	if (f->size != e->size)
		return log_error(-EBADMSG, CHUNKS_PATH,
				 "has %" PRIu64 " bytes for \"%s\", which has %" PRIu64, f->size,
				 e->name, e->size);
	for (uint64_t i = 0; i < count; i += n) {
		int r;

		n = MIN(SLOTS_AT_ONCE, count - i);
		r = object_read_wait(node_object(k->file), want, (size_t)n * SHA256_SIZE,
				     chunks_slot_at(k->chunks, f, i), NULL);
		if (r < 0)
			return r;
		for (uint64_t j = 0; j < n; j++)
			if (memcmp(want[j], found->states[i + j], SHA256_SIZE) != 0)
				return log_error(-EBADMSG, CHUNKS_PATH,
						 "chunk %" PRIu64 " of \"%s\" has another state "
						 "than the file",
						 i + j, e->name);
	}
	return 0;
}
