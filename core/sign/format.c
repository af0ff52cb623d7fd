/* SPDX-License-Identifier: Apache-2.0 */
/* What the writer and the reader of signatures share. */
#include <errno.h>
#include <openssl/core_names.h>
#include <openssl/encoder.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "sign/sign.h"

const char *const sign_left_out[] = { ".git", ".gitattributes", ".github", ".gitignore", NULL };

bool sign_is_below(const char *path, const char *of)
{
	size_t n = strlen(of);

	return strncmp(path, of, n) == 0 && (path[n] == '\0' || path[n] == '/');
}

bool sign_leaves_out(const char *path)
{
	if (strcmp(path, SIGN_IN_CARTON) == 0 || strcmp(path, SIGN_IN_MODEL) == 0)
		return true;
	for (const char *const *p = sign_left_out; *p; p++)
		if (sign_is_below(path, *p))
			return true;
	return false;
}

size_t dsse_pae(size_t n, char ret[DSSE_PAE_SIZE])
{
	return (size_t)snprintf(ret, DSSE_PAE_SIZE, "DSSEv1 %zu %s %zu ", strlen(SIGN_PAYLOAD_TYPE),
				SIGN_PAYLOAD_TYPE, n);
}

const char *sign_digest(const struct evp_pkey_st *key)
{
	static const char *const known[][2] = {
		{ "prime256v1", "SHA256" },
		{ "secp384r1", "SHA384" },
		{ "secp521r1", "SHA512" },
	};
	char group[32] = "";

	if (EVP_PKEY_is_a(key, "EC") != 1 ||
	    EVP_PKEY_get_group_name(key, group, sizeof(group), NULL) != 1)
		return NULL;
	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		if (strcmp(group, known[i][0]) == 0)
			return known[i][1];
	return NULL;
}

/* A copy, because the form of the point is a property of the key. */
static int public_pem(EVP_PKEY *key, BIO *out)
{
	EVP_PKEY *copy = EVP_PKEY_dup(key);
	int r = copy ? 0 : -ENOMEM;

	if (r == 0 &&
	    (EVP_PKEY_set_utf8_string_param(copy, OSSL_PKEY_PARAM_EC_POINT_CONVERSION_FORMAT,
					    "uncompressed") != 1 ||
	     PEM_write_bio_PUBKEY(out, copy) != 1))
		r = -EIO;
	EVP_PKEY_free(copy);
	return r;
}

int sign_hint(const struct evp_pkey_st *key, char ret[2 * SHA256_SIZE + 1])
{
	BIO *out = BIO_new(BIO_s_mem());
	uint8_t sha256[SHA256_SIZE];
	char *text;
	long n;
	int r = out ? public_pem((EVP_PKEY *)key, out) : -ENOMEM;

	if (r == 0) {
		n = BIO_get_mem_data(out, &text);
		r = sha256_mem(text, (size_t)n, sha256);
	}
	if (r == 0)
		hex_encode(sha256, SHA256_SIZE, ret);
	BIO_free(out);
	return r;
}
