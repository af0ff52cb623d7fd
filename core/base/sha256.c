/* SPDX-License-Identifier: Apache-2.0 */
/* EVP gives no states; these functions of OpenSSL do. They are public, and deprecated since 3.0. */
#define OPENSSL_SUPPRESS_DEPRECATED

#include "base/sha256.h"

#include <errno.h>
#include <openssl/sha.h>
#include <stdlib.h>

#include "base/sha256_lanes.h"
#include "base/util.h"

/* A part with more blocks gets in line again after so many: so parts of a length end together. */
#define TURN ((size_t)128)

struct sha256 {
	SHA256_CTX ctx;
};

int sha256_new(struct sha256 **ret)
{
	struct sha256 *s = malloc(sizeof(*s));

	if (!s)
		return -ENOMEM;
	SHA256_Init(&s->ctx);
	*ret = s;
	return 0;
}

void sha256_resume(struct sha256 *s, const uint8_t state[SHA256_SIZE], uint64_t size)
{
	uint64_t bits = size * 8;

	SHA256_Init(&s->ctx);
	if (size == 0)
		return;
	for (size_t i = 0; i < 8; i++)
		s->ctx.h[i] = get_be32(state + 4 * i);
	s->ctx.Nl = (SHA_LONG)bits;
	s->ctx.Nh = (SHA_LONG)(bits >> 32);
}

void sha256_state(const struct sha256 *s, uint8_t ret_state[SHA256_SIZE])
{
	for (size_t i = 0; i < 8; i++)
		put_be32(ret_state + 4 * i, s->ctx.h[i]);
}

int sha256_update(struct sha256 *s, const void *data, size_t n)
{
	return SHA256_Update(&s->ctx, data, n) == 1 ? 0 : -EIO;
}

int sha256_final(struct sha256 *s, uint8_t ret_hash[SHA256_SIZE])
{
	return SHA256_Final(ret_hash, &s->ctx) == 1 ? 0 : -EIO;
}

/* The next `n` bytes of a part, by OpenSSL. */
static int take(struct sha256_part *p, size_t n)
{
	int r = sha256_update(p->s, p->data, n);

	p->data = (const uint8_t *)p->data + n;
	p->n -= n;
	return r;
}

/* The next `blocks` blocks of several parts. */
static void take_blocks(const struct sha256_lanes *how, struct sha256_part *const *parts,
			size_t lanes, size_t blocks)
{
	uint32_t *states[SHA256_MAX_LANES];
	const uint8_t *data[SHA256_MAX_LANES];
	uint64_t bits = (uint64_t)blocks * SHA256_BLOCK * 8;

	for (size_t i = 0; i < lanes; i++) {
		struct sha256_part *p = parts[i];
		SHA256_CTX *ctx = &p->s->ctx;
		uint64_t sum = ((uint64_t)ctx->Nh << 32 | ctx->Nl) + bits;

		ctx->Nl = (SHA_LONG)sum;
		ctx->Nh = (SHA_LONG)(sum >> 32);
		states[i] = ctx->h;
		data[i] = p->data;
		p->data = data[i] + blocks * SHA256_BLOCK;
		p->n -= blocks * SHA256_BLOCK;
	}
	(lanes == 2 ? how->two : how->three)(states, data, blocks);
}

/* Parts with whole blocks, in line. */
struct line {
	struct sha256_part *head, **tail;
	size_t n;
};

/* Gets in line if it has a block. */
static void join(struct line *l, struct sha256_part *p)
{
	if (p->n < SHA256_BLOCK)
		return;
	p->next = NULL;
	*l->tail = p;
	l->tail = &p->next;
	l->n++;
}

static struct sha256_part *leave(struct line *l)
{
	struct sha256_part *p = l->head;

	l->head = p->next;
	if (!l->head)
		l->tail = &l->head;
	l->n--;
	return p;
}

/* The blocks of all in line, until only one is left. */
static void take_turns(const struct sha256_lanes *how, struct line *l)
{
	struct sha256_part *parts[SHA256_MAX_LANES];

	while (l->n > 1) {
		size_t lanes = MIN(l->n, (size_t)SHA256_MAX_LANES), blocks = TURN;

		for (size_t i = 0; i < lanes; i++) {
			parts[i] = leave(l);
			blocks = MIN(blocks, parts[i]->n / SHA256_BLOCK);
		}
		take_blocks(how, parts, lanes, blocks);
		for (size_t i = 0; i < lanes; i++)
			join(l, parts[i]);
	}
}

int sha256_update_by(const struct sha256_lanes *how, struct sha256_part *parts, size_t n)
{
	struct line line = { .tail = &line.head };
	int r = 0;

	for (size_t i = 0; i < n && how && r == 0; i++) {
		size_t begun = parts[i].s->ctx.num;

		/* lanes take whole blocks */
		if (begun)
			r = take(&parts[i], MIN(parts[i].n, SHA256_BLOCK - begun));
		join(&line, &parts[i]);
	}
	if (r == 0)
		take_turns(how, &line);
	for (size_t i = 0; i < n && r == 0; i++)
		r = take(&parts[i], parts[i].n);
	return r;
}

int sha256_update_many(struct sha256_part *parts, size_t n)
{
	const struct sha256_lanes *how = sha256_x86();

	return sha256_update_by(how ? how : sha256_arm(), parts, n);
}

void sha256_free(struct sha256 *s)
{
	free(s);
}

int sha256_mem(const void *data, size_t n, uint8_t ret_hash[SHA256_SIZE])
{
	struct sha256 s;

	SHA256_Init(&s.ctx);
	return sha256_update(&s, data, n) == 0 ? sha256_final(&s, ret_hash) : -EIO;
}
