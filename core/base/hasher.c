/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hasher.h"

#include <stdlib.h>

#include "base/util.h"

int hasher_begin(struct hasher *h, const struct tagger *tagger, bool hash)
{
	*h = (struct hasher){ .tagger = tagger, .block = TAG_BLOCK };
	return hash ? sha256_new(&h->sha256) : 0;
}

void hasher_tag_parts(struct hasher *h)
{
	h->block = TAG_PART;
}

void hasher_keep_states(struct hasher *h, uint64_t step)
{
	h->step = step;
}

void hasher_resume(struct hasher *h, const uint8_t state[SHA256_SIZE], uint64_t size)
{
	sha256_resume(h->sha256, state, size);
}

/* The place for what belongs behind the bytes so far; NULL: no memory. */
static uint8_t *new_state(struct hasher *h)
{
	size_t i = (size_t)((h->hashed - 1) / h->step);

	return array_room(h->states, &h->state_cap, i + 1) < 0 ? NULL : h->states[i];
}

/* Keeps the state where one belongs. 0 or -ENOMEM. */
static int keep_state(struct hasher *h)
{
	uint8_t *state;

	if (!h->step || h->hashed % h->step)
		return 0;
	state = new_state(h);
	if (!state)
		return -ENOMEM;
	sha256_state(h->sha256, state);
	return 0;
}

/* The next part of a buffer: to its end, or to where a state is kept. */
static struct sha256_part next_part(struct hasher *h, const struct tagged *t)
{
	size_t done = (size_t)(h->hashed - t->off), n = t->n - done;

	if (h->step && h->sha256)
		n = (size_t)MIN(n, h->step - h->hashed % h->step);
	h->hashed += n;
	return (struct sha256_part){ h->sha256, (const char *)t->data + done, n, NULL };
}

int hasher_hash_several(const struct to_hash *list, size_t n)
{
	struct sha256_part parts[HASHERS];
	struct hasher *of[HASHERS];
	size_t k;
	int r = 0;

	for (size_t i = 0; i < n; i++)
		if (list[i].tagged->off != list[i].hasher->hashed)
			return -EIO;
	do {
		k = 0;
		for (size_t i = 0; i < n; i++) {
			struct hasher *h = list[i].hasher;

			if (h->hashed == list[i].tagged->off + list[i].tagged->n)
				continue;
			parts[k] = next_part(h, list[i].tagged);
			if (h->sha256)
				of[k++] = h;
		}
		r = sha256_update_many(parts, k);
		for (size_t i = 0; i < k && r == 0; i++)
			r = keep_state(of[i]);
	} while (k > 0 && r == 0);
	return r;
}

int hasher_hash(struct hasher *h, const struct tagged *t)
{
	return hasher_hash_several(&(struct to_hash){ h, t }, 1);
}

static int end_block(struct hasher *h)
{
	struct tag *tag = h->tag;

	h->tag = NULL;
	return tag ? tag_end(tag, h->tags[(h->tagged - 1) / h->block]) : 0;
}

static int make_tags(struct hasher *h, const char *p, size_t n)
{
	int r = 0;

	while (n > 0 && r == 0) {
		size_t step = MIN(n, h->block - (size_t)(h->tagged % h->block));

		if (!h->tag) {
			/* the table grows with the bytes received, not with an announced size */
			r = array_room(h->tags, &h->tag_cap, (size_t)(h->tagged / h->block) + 1);
			if (r == 0)
				r = tag_begin(h->tagger, &h->tag);
		}
		if (r == 0)
			r = tag_update(h->tag, p, step);
		if (r < 0)
			break;
		p += step;
		n -= step;
		h->tagged += step;
		if (h->tagged % h->block == 0)
			r = end_block(h);
	}
	return r;
}

int hasher_tag(struct hasher *h, const void *data, size_t n, struct tagged *ret)
{
	*ret = (struct tagged){ data, n, h->tagged };
	if (h->tagger)
		return make_tags(h, data, n);
	h->tagged += n;
	return 0;
}

int hasher_feed_several(const struct hasher_part *list, size_t n)
{
	struct tagged tagged[HASHERS];
	struct to_hash hash[HASHERS];
	int r = 0;

	for (size_t i = 0; i < n && r == 0; i++) {
		r = hasher_tag(list[i].hasher, list[i].data, list[i].n, &tagged[i]);
		hash[i] = (struct to_hash){ list[i].hasher, &tagged[i] };
	}
	return r < 0 ? r : hasher_hash_several(hash, n);
}

int hasher_feed(struct hasher *h, const void *data, size_t n)
{
	return hasher_feed_several(&(struct hasher_part){ h, data, n }, 1);
}

/* The hash in place of the last state. 0 or -ENOMEM. */
static int end_states(struct hasher *h, const uint8_t sha256[SHA256_SIZE])
{
	uint8_t *last;

	if (!h->step || !h->hashed)
		return 0;
	last = new_state(h);
	if (!last)
		return -ENOMEM;
	memcpy(last, sha256, SHA256_SIZE);
	return 0;
}

static int end(struct hasher *h, bool state, struct ingested *ret)
{
	struct ingested out = { .size = h->hashed };
	int r = h->hashed == h->tagged ? end_block(h) : -EIO;

	if (state)
		sha256_state(h->sha256, out.sha256);
	else if (r == 0 && h->sha256)
		r = sha256_final(h->sha256, out.sha256);
	if (r == 0)
		r = end_states(h, out.sha256);
	if (r == 0) {
		out.tags = h->tags;
		out.states = h->states;
		h->tags = NULL;
		h->states = NULL;
		*ret = out;
	}
	hasher_abort(h);
	return r;
}

int hasher_end(struct hasher *h, struct ingested *ret)
{
	return end(h, false, ret);
}

int hasher_end_state(struct hasher *h, struct ingested *ret)
{
	return end(h, true, ret);
}

void hasher_abort(struct hasher *h)
{
	tag_abort(h->tag);
	sha256_free(h->sha256);
	free(h->tags);
	free(h->states);
	*h = (struct hasher){ 0 };
}
