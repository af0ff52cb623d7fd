/* SPDX-License-Identifier: Apache-2.0 */
#include "base/digest.h"

#include <errno.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <openssl/rand.h>
#include <stdlib.h>
#include <zlib.h>

struct sha256 {
	EVP_MD_CTX *ctx;
};

int sha256_new(struct sha256 **ret)
{
	struct sha256 *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->ctx = EVP_MD_CTX_new();
	if (!s->ctx || EVP_DigestInit_ex(s->ctx, EVP_sha256(), NULL) != 1) {
		sha256_free(s);
		return -ENOMEM;
	}
	*ret = s;
	return 0;
}

int sha256_update(struct sha256 *s, const void *data, size_t n)
{
	return EVP_DigestUpdate(s->ctx, data, n) == 1 ? 0 : -EIO;
}

int sha256_final(struct sha256 *s, uint8_t ret_hash[SHA256_SIZE])
{
	return EVP_DigestFinal_ex(s->ctx, ret_hash, NULL) == 1 ? 0 : -EIO;
}

void sha256_free(struct sha256 *s)
{
	if (!s)
		return;
	EVP_MD_CTX_free(s->ctx);
	free(s);
}

int sha256_mem(const void *data, size_t n, uint8_t ret_hash[SHA256_SIZE])
{
	return EVP_Digest(data, n, ret_hash, NULL, EVP_sha256(), NULL) == 1 ? 0 : -EIO;
}

struct tagger {
	EVP_MAC_CTX *keyed; /* never updated itself: each tag works on a copy */
};

int tagger_new(struct tagger **ret)
{
	struct tagger *t = calloc(1, sizeof(*t));
	EVP_MAC *mac = EVP_MAC_fetch(NULL, "POLY1305", NULL);
	unsigned char key[32];
	int r = -ENOMEM;

	if (!t || !mac)
		goto out;
	t->keyed = EVP_MAC_CTX_new(mac);
	if (!t->keyed)
		goto out;
	r = -EIO;
	if (RAND_priv_bytes(key, sizeof(key)) != 1 ||
	    EVP_MAC_init(t->keyed, key, sizeof(key), NULL) != 1)
		goto out;
	OPENSSL_cleanse(key, sizeof(key));
	*ret = t;
	t = NULL;
	r = 0;
out:
	EVP_MAC_free(mac);
	tagger_free(t);
	return r;
}

void tagger_free(struct tagger *t)
{
	if (!t)
		return;
	EVP_MAC_CTX_free(t->keyed);
	free(t);
}

int tagger_tag(const struct tagger *t, const void *data, size_t n, uint8_t ret_tag[TAG_SIZE])
{
	EVP_MAC_CTX *ctx = EVP_MAC_CTX_dup(t->keyed);
	size_t len = 0;
	int r = -EIO;

	if (!ctx)
		return -ENOMEM;
	if (EVP_MAC_update(ctx, data, n) == 1 && EVP_MAC_final(ctx, ret_tag, &len, TAG_SIZE) == 1 &&
	    len == TAG_SIZE)
		r = 0;
	EVP_MAC_CTX_free(ctx);
	return r;
}

uint32_t crc32_update(uint32_t crc, const void *data, size_t n)
{
	return (uint32_t)crc32_z(crc, data, n);
}
