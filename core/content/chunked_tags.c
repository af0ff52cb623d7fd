/* SPDX-License-Identifier: Apache-2.0 */
/* The tags of chunks: of a seal, and of the whole. */
#include <stdlib.h>

#include "base/util.h"
#include "content/chunked_state.h"

static bool has_tags(const struct chunked *c, uint64_t i, uint8_t (*tags)[TAG_SIZE])
{
	static const uint8_t none[TAG_SIZE];

	return memcmp(tags[chunk_first_tag(c->file, i)], none, TAG_SIZE) != 0;
}

/* Of a file whose chunks can be fetched again. */
static bool use_all(struct chunked *c, uint8_t (*tags)[TAG_SIZE])
{
	uint64_t cost = ((c->file->size - 1) / TAG_BLOCK + 1) * TAG_SIZE;

	for (uint64_t i = 0; i < c->n_chunks; i++)
		if (!has_tags(c, i, tags))
			return false;
	/* a hole: what was removed from the cache since, or never got to the disk */
	if (chunks_have_hole(&c->bytes, c->file) || !budget_try(c->index->budget, cost))
		return false;
	atomic_fetch_add(&c->counted, cost);
	memcpy(c->bytes.tags, tags, cost);
	for (uint64_t i = 0; i < c->n_chunks; i++)
		atomic_fetch_or(&c->verified[i / 8], (unsigned char)(1 << (i % 8)));
	atomic_store(&c->sealed, c->n_chunks);
	return true;
}

bool chunked_use_tags(struct chunked *c, uint8_t (*tags)[TAG_SIZE])
{
	if (c->filler)
		return use_all(c, tags);
	for (uint64_t i = 0; i < c->n_chunks; i++) {
		uint64_t at = chunk_first_tag(c->file, i), cost = chunk_tags_cost(c->file, i);

		if (!has_tags(c, i, tags))
			continue;
		if (!budget_try(c->index->budget, cost))
			break;
		memcpy(c->bytes.tags + at, tags + at, cost);
		atomic_fetch_add(&c->counted, cost);
		chunked_set_verified(c, i);
		c->kept++;
	}
	return c->kept > 0;
}

uint8_t (*chunked_new_tags(struct chunked *c))[TAG_SIZE]
{
	uint64_t n = c->n_chunks - MIN(atomic_load(&c->left), c->n_chunks);
	uint8_t(*all)[TAG_SIZE];

	if ((c->filler && n < c->n_chunks) || atomic_exchange(&c->kept, n) == n)
		return NULL;
	all = calloc((size_t)((c->file->size - 1) / TAG_BLOCK) + 1, TAG_SIZE);
	for (uint64_t i = 0; all && i < c->n_chunks; i++)
		if (chunked_is_verified(c, i))
			memcpy(all + chunk_first_tag(c->file, i),
			       c->bytes.tags + chunk_first_tag(c->file, i),
			       chunk_tags_cost(c->file, i));
	if (atomic_load(&c->by_whole)) {
		free(all);
		return NULL;
	}
	return all;
}

int chunked_set_tags(struct chunked *c, uint8_t (*tags)[TAG_SIZE])
{
	int r = 0;

	for (uint64_t i = 0; i < c->n_chunks && r == 0; i++) {
		uint8_t(*at)[TAG_SIZE] = c->bytes.tags + chunk_first_tag(c->file, i),
		(*new)[TAG_SIZE] = tags + chunk_first_tag(c->file, i);
		size_t n = chunk_tags_cost(c->file, i);

		pthread_mutex_lock(&c->lock[i % STRIPES]);
		if (!chunked_is_verified(c, i)) {
			memcpy(at, new, n);
			atomic_store(&c->by_whole, true);
			chunked_set_verified(c, i);
			/* they are there in any case: others get less */
			budget_charge(c->index->budget, n);
			atomic_fetch_add(&c->charged, n);
		} else if (memcmp(at, new, n) != 0) {
			r = -EBADMSG;
		}
		pthread_mutex_unlock(&c->lock[i % STRIPES]);
	}
	return r;
}

bool chunked_doubt_sealed(struct chunked *c, uint8_t (*tags)[TAG_SIZE])
{
	uint64_t sealed = atomic_load(&c->sealed);
	bool found = false;

	for (uint64_t i = 0; sealed && i < c->n_chunks; i++) {
		uint64_t at = chunk_first_tag(c->file, i), doubts = chunked_doubts(c);
		bool is_here = chunked_is_verified(c, i);

		if (is_here &&
		    memcmp(c->bytes.tags + at, tags + at, chunk_tags_cost(c->file, i)) == 0)
			continue;
		found = true;
		if (is_here)
			chunked_doubt(c, i * c->file->chunk_size, doubts);
	}
	/* a doubt counts in `left` first: from here on there is none */
	if (sealed && !found) {
		found = !atomic_compare_exchange_strong(&c->left, &sealed, 0);
		if (!found)
			atomic_store(&c->sealed, 0);
	}
	return found;
}

bool chunked_all_by_index(const struct chunked *c)
{
	return chunked_is_complete(c) && !atomic_load(&c->by_whole);
}
