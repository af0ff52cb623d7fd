/* SPDX-License-Identifier: Apache-2.0 */
/* EVP gives no states; these functions of OpenSSL do. They are public, and deprecated since 3.0. */
#define OPENSSL_SUPPRESS_DEPRECATED

#include "base/sha256.h"

#include <errno.h>
#include <openssl/sha.h>
#include <stdlib.h>

#include "base/util.h"

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
