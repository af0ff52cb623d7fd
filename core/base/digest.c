/* SPDX-License-Identifier: Apache-2.0 */
#include "base/digest.h"

#include <errno.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <openssl/rand.h>
#include <stdbool.h>
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

/* A struct tag is a context of OpenSSL, and nothing else. */
int tag_begin(const struct tagger *t, struct tag **ret)
{
	EVP_MAC_CTX *ctx = EVP_MAC_CTX_dup(t->keyed);

	if (!ctx)
		return -ENOMEM;
	*ret = (struct tag *)ctx;
	return 0;
}

int tag_update(struct tag *tag, const void *data, size_t n)
{
	return EVP_MAC_update((EVP_MAC_CTX *)tag, data, n) == 1 ? 0 : -EIO;
}

int tag_end(struct tag *tag, uint8_t ret_tag[TAG_SIZE])
{
	size_t len = 0;
	bool done = EVP_MAC_final((EVP_MAC_CTX *)tag, ret_tag, &len, TAG_SIZE) == 1;

	tag_abort(tag);
	return done && len == TAG_SIZE ? 0 : -EIO;
}

void tag_abort(struct tag *tag)
{
	EVP_MAC_CTX_free((EVP_MAC_CTX *)tag);
}

int tagger_tag(const struct tagger *t, const void *data, size_t n, uint8_t ret_tag[TAG_SIZE])
{
	struct tag *tag;
	int r = tag_begin(t, &tag);

	if (r < 0)
		return r;
	r = tag_update(tag, data, n);
	if (r == 0)
		return tag_end(tag, ret_tag);
	tag_abort(tag);
	return r;
}

uint32_t crc32_update(uint32_t crc, const void *data, size_t n)
{
	return (uint32_t)crc32_z(crc, data, n);
}
