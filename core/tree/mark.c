/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Marks: fingerprints of content, of 64 bits. The mark of a file is the first 8 bytes of its
 * sha256. Marks are hashes without a key, as every machine has to compute the same ones.
 */
#include "base/siphash.h"
#include "base/util.h"
#include "tree/internal.h"

uint64_t tree_hash(uint64_t prefix, const void *data, size_t n)
{
	static const struct siphash_key no_key;

	return siphash(&no_key, prefix, data, n);
}

uint64_t tree_hash_words(uint64_t prefix, const uint64_t *words, size_t n)
{
	uint8_t bytes[MAX_HASH_WORDS * sizeof(*words)];

	for (size_t i = 0; i < n; i++)
		put_le64(bytes + i * sizeof(*words), words[i]);
	return tree_hash(prefix, bytes, n * sizeof(*words));
}

uint64_t tree_mark(const uint8_t *sha256)
{
	uint64_t mark = 0;

	for (size_t i = 0; i < sizeof(mark); i++)
		mark = mark << 8 | sha256[i];
	return mark;
}

uint64_t tree_mark_text(const void *data, size_t n)
{
	return tree_hash(n, data, n);
}

/*
 * The sha256 of a derived object is all zeros, as nothing lists one. Its bytes follow from the
 * model, so it has the mark of the model.
 */
uint64_t tree_mark_object(const struct tree *t, const struct object *o)
{
	uint64_t mark = tree_mark(object_sha256(o));

	return mark ? mark : t->model;
}

uint64_t tree_mark_piece(const struct tree *t, uint64_t mark, const struct piece *p)
{
	/* the size of a whole or derived object may be known to one process and not to the next */
	bool part = !p->whole && tree_mark(object_sha256(p->object)) != 0;
	const uint64_t words[] = { tree_mark_object(t, p->object), p->off, part ? p->end : 0 };

	return tree_hash_words(mark, words, ARRAY_SIZE(words));
}
