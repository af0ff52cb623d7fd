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

int hasher_hash(struct hasher *h, const struct tagged *t)
{
	if (t->off != h->hashed)
		return -EIO;
	h->hashed += t->n;
	return h->sha256 ? sha256_update(h->sha256, t->data, t->n) : 0;
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

int hasher_feed(struct hasher *h, const void *data, size_t n)
{
	struct tagged t;
	int r = hasher_tag(h, data, n, &t);

	return r < 0 ? r : hasher_hash(h, &t);
}

int hasher_end(struct hasher *h, struct ingested *ret)
{
	struct ingested out = { .size = h->hashed };
	int r = h->hashed == h->tagged ? end_block(h) : -EIO;

	if (r == 0 && h->sha256)
		r = sha256_final(h->sha256, out.sha256);
	if (r == 0) {
		out.tags = h->tags;
		h->tags = NULL;
		*ret = out;
	}
	hasher_abort(h);
	return r;
}

void hasher_abort(struct hasher *h)
{
	tag_abort(h->tag);
	sha256_free(h->sha256);
	free(h->tags);
	*h = (struct hasher){ 0 };
}
