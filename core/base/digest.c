/* SPDX-License-Identifier: Apache-2.0 */
#include "base/digest.h"

#include <errno.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/util.h"

/*
 * A private library context, with OpenSSL's default provider. The default context, which libcurl
 * uses when it is loaded, reads openssl.cnf and seeds a random generator: that would take a fifth
 * of the time of a mount. OpenSSL 3.0 reads openssl.cnf at the first digest in any context.
 */
struct library {
	OSSL_LIB_CTX *context; /* NULL: no memory, so no function of OpenSSL may be called */
	EVP_MAC *poly1305;     /* NULL: not available */
};

/* Loads what an earlier call could not load. False: no memory, or not available. */
static bool load(struct library *l)
{
	if (!l->context)
		l->context = OSSL_LIB_CTX_new();
	if (l->context && !l->poly1305)
		l->poly1305 = EVP_MAC_fetch(l->context, "POLY1305", NULL);
	return l->poly1305;
}

/*
 * Loaded once: looking up an algorithm takes longer than hashing a small file. If the loading
 * fails, for example without memory, the next caller tries it again.
 */
static const struct library *library(void)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the loading */
	static const struct library none;
	static struct library loaded;
	static atomic_bool ready;

	if (!atomic_load(&ready)) {
		pthread_mutex_lock(&lock);
		if (!atomic_load(&ready))
			atomic_store(&ready, load(&loaded));
		pthread_mutex_unlock(&lock);
	}
	return atomic_load(&ready) ? &loaded : &none;
}

OSSL_LIB_CTX *digest_library(void)
{
	return library()->context;
}

/* Random bytes from the kernel. 0 or -EIO. */
static int random_bytes(uint8_t *ret, size_t n)
{
	ssize_t got;

	do
		got = getrandom(ret, n, 0);
	while (got < 0 && errno == EINTR);
	/* up to 256 bytes are never cut short */
	return got == (ssize_t)n ? 0 : -EIO;
}

int hmac_sha256(const void *key, size_t n_key, const void *data, size_t n,
		uint8_t ret_mac[SHA256_SIZE])
{
	OSSL_LIB_CTX *context = library()->context;

	if (!context)
		return -ENOMEM;
	return EVP_Q_mac(context, "HMAC", NULL, "SHA256", NULL, key, n_key, data, n, ret_mac,
			 SHA256_SIZE, NULL) ?
		       0 :
		       -EIO;
}

bool mac_matches(const void *a, const void *b, size_t n)
{
	return CRYPTO_memcmp(a, b, n) == 0;
}

int git_blob_id(const void *data, size_t n, uint8_t ret_id[SHA1_SIZE])
{
	OSSL_LIB_CTX *context = library()->context;
	EVP_MD *md = context ? EVP_MD_fetch(context, "SHA1", NULL) : NULL;
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	char head[32];
	int len = snprintf(head, sizeof(head), "blob %zu", n);
	bool ok = md && ctx && EVP_DigestInit_ex(ctx, md, NULL) == 1 &&
		  EVP_DigestUpdate(ctx, head, (size_t)len + 1) == 1 &&
		  EVP_DigestUpdate(ctx, data, n) == 1 && EVP_DigestFinal_ex(ctx, ret_id, NULL) == 1;

	EVP_MD_CTX_free(ctx);
	EVP_MD_free(md);
	return ok ? 0 : -EIO;
}

int git_name(const uint8_t id[SHA1_SIZE], uint8_t ret_name[SHA256_SIZE])
{
	char text[4 + 2 * SHA1_SIZE + 1] = "git ";

	hex_encode(id, SHA1_SIZE, text + 4);
	return sha256_mem(text, strlen(text), ret_name);
}

void base64_encode(const void *data, size_t n, char *ret)
{
	EVP_EncodeBlock((unsigned char *)ret, data, (int)n);
}

/*
 * Not by OpenSSL, which also decodes other texts, and takes three times as long: the payload of a
 * signature may have some 40 MiB.
 */
ssize_t base64_decode(char *text, size_t n)
{
	static const char letters[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	size_t pad = n < 4 || text[n - 1] != '=' ? 0 : text[n - 2] != '=' ? 1 : 2, len = 0;
	int8_t values[256];

	memset(values, -1, sizeof(values));
	for (int i = 0; i < 64; i++)
		values[(unsigned char)letters[i]] = (int8_t)i;
	if (n % 4)
		return -EBADMSG;
	/* the last letters, in place of the padding, have no bits */
	memset(text + n - pad, 'A', pad);
	for (size_t at = 0; at < n; at += 4) {
		const unsigned char *c = (unsigned char *)text + at;
		int a = values[c[0]], b = values[c[1]], d = values[c[2]], e = values[c[3]];
		unsigned v = (unsigned)a << 18 | (unsigned)b << 12 | (unsigned)d << 6 | (unsigned)e;

		if ((a | b | d | e) < 0)
			return -EBADMSG;
		text[len++] = (char)(v >> 16);
		text[len++] = (char)(v >> 8);
		text[len++] = (char)v;
	}
	for (size_t i = 0; i < pad; i++)
		if (text[--len] != 0)
			return -EBADMSG;
	return (ssize_t)len;
}

/*
 * struct tagger and tag are OpenSSL contexts under another name. A tagger is keyed and never
 * updated: each tag works on a copy.
 */
int tagger_new(const uint8_t key[KEY_SIZE], struct tagger **ret)
{
	EVP_MAC *mac = library()->poly1305;
	EVP_MAC_CTX *ctx = mac ? EVP_MAC_CTX_new(mac) : NULL;
	uint8_t made[KEY_SIZE];
	int r = ctx ? 0 : -ENOMEM;

	if (r == 0 && !key)
		r = random_bytes(made, sizeof(made));
	if (r == 0 && EVP_MAC_init(ctx, key ? key : made, KEY_SIZE, NULL) != 1)
		r = -EIO;
	OPENSSL_cleanse(made, sizeof(made));
	if (r == 0)
		*ret = (struct tagger *)ctx;
	else
		EVP_MAC_CTX_free(ctx);
	return r;
}

void tagger_free(struct tagger *t)
{
	EVP_MAC_CTX_free((EVP_MAC_CTX *)t);
}

int tag_begin(const struct tagger *t, struct tag **ret)
{
	EVP_MAC_CTX *ctx = EVP_MAC_CTX_dup((const EVP_MAC_CTX *)t);

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

#define NONCE_SIZE 12

/* Looked up each time, since only seals need it, and they are few. The caller frees it. */
static EVP_CIPHER *aes_256_gcm(void)
{
	OSSL_LIB_CTX *context = library()->context;

	return context ? EVP_CIPHER_fetch(context, "AES-256-GCM", NULL) : NULL;
}

int box_close(const struct box_of *b, uint8_t ret_lock[BOX_LOCK_SIZE])
{
	EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
	EVP_CIPHER *cipher = aes_256_gcm();
	uint8_t *mac = ret_lock + NONCE_SIZE;
	int n, r = ctx && cipher ? 0 : -ENOMEM;

	if (r == 0 && (random_bytes(ret_lock, NONCE_SIZE) < 0 ||
		       EVP_EncryptInit_ex(ctx, cipher, NULL, b->key, ret_lock) != 1 ||
		       EVP_EncryptUpdate(ctx, NULL, &n, b->header, (int)b->n_header) != 1 ||
		       EVP_EncryptUpdate(ctx, b->data, &n, b->data, (int)b->n) != 1 ||
		       EVP_EncryptFinal_ex(ctx, NULL, &n) != 1 ||
		       EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_GET_TAG, TAG_SIZE, mac) != 1))
		r = -EIO;
	EVP_CIPHER_CTX_free(ctx);
	EVP_CIPHER_free(cipher);
	return r;
}

int box_open(const struct box_of *b, const uint8_t lock[BOX_LOCK_SIZE])
{
	EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
	EVP_CIPHER *cipher = aes_256_gcm();
	uint8_t mac[TAG_SIZE];
	int n, r = ctx && cipher ? 0 : -ENOMEM;

	memcpy(mac, lock + NONCE_SIZE, TAG_SIZE);
	if (r == 0 && (EVP_DecryptInit_ex(ctx, cipher, NULL, b->key, lock) != 1 ||
		       EVP_DecryptUpdate(ctx, NULL, &n, b->header, (int)b->n_header) != 1 ||
		       EVP_DecryptUpdate(ctx, b->data, &n, b->data, (int)b->n) != 1 ||
		       EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_TAG, TAG_SIZE, mac) != 1 ||
		       EVP_DecryptFinal_ex(ctx, NULL, &n) != 1))
		r = -EBADMSG;
	EVP_CIPHER_CTX_free(ctx);
	EVP_CIPHER_free(cipher);
	return r;
}

int key_derive(const uint8_t secret[KEY_SIZE], const char *purpose, uint8_t ret_key[KEY_SIZE])
{
	_Static_assert(KEY_SIZE == SHA256_SIZE, "a key is a MAC");

	return hmac_sha256(secret, KEY_SIZE, purpose, strlen(purpose), ret_key);
}
