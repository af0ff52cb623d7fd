/* SPDX-License-Identifier: Apache-2.0 */
/* Whom the user trusts: keys, or authorities with the name of a signer. */
#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/util.h"
#include "sign/internal.h"

struct trusted_key {
	EVP_PKEY *key;
	char hint[2 * SHA256_SIZE + 1];
};

struct trust {
	OSSL_LIB_CTX *library;
	struct trusted_key *keys;
	size_t n_keys, cap_keys;
	X509_STORE *authorities; /* NULL: none */
	char *signer;		 /* NULL: without authorities */
};

/* ---- reading what the user names ---- */

static int read_file(const char *path, struct buf *ret)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), r;
	ssize_t got = 1;

	*ret = buf_init(MAX_KEY_FILE);
	r = fd < 0 ? -errno : 0;
	while (r == 0 && got > 0) {
		r = buf_reserve(ret, 4096);
		got = r == 0 ? read(fd, ret->data + ret->len, 4096) : 0;
		if (got < 0)
			r = -errno;
		else
			ret->len += (size_t)got;
	}
	fd_close(fd);
	if (r == -EFBIG)
		return log_error(-EINVAL, path, "is not a PEM file: it is longer than any");
	return r < 0 ? log_error(r, path, "cannot be read: %s", strerror(-r)) : 0;
}

static int add_key(struct trust *t, EVP_PKEY *key, const char *path)
{
	int r = array_room(t->keys, &t->cap_keys, t->n_keys + 1);

	if (r == 0 && !sign_digest(key))
		r = log_error(-EINVAL, path,
			      "has another kind of key than one on P-256, P-384 or P-521");
	if (r == 0)
		r = sign_hint(key, t->keys[t->n_keys].hint);
	if (r < 0)
		EVP_PKEY_free(key);
	else
		t->keys[t->n_keys++].key = key;
	return r;
}

/* A pem_password_cb: what is encrypted is none of these; nobody is asked at the terminal. */
static int no_passphrase(char *ret, int n, int writing, void *ctx)
{
	(void)ret, (void)n, (void)writing, (void)ctx;
	return -1;
}

/* Adds each key of a PEM file. How many, or -errno. */
static int add_keys(struct trust *t, BIO *pem, const char *path)
{
	EVP_PKEY *key;
	int n = 0, r = 0;

	while (r == 0 &&
	       (key = PEM_read_bio_PUBKEY_ex(pem, NULL, no_passphrase, NULL, t->library, NULL))) {
		r = add_key(t, key, path);
		n++;
	}
	return r < 0 ? r : n;
}

static X509 *new_certificate(const struct trust *t)
{
	return X509_new_ex(t->library, NULL);
}

/* The same of certificates. */
static int add_authorities(struct trust *t, BIO *pem, const char *path)
{
	int n = 0;

	(void)path;
	if (!t->authorities)
		t->authorities = X509_STORE_new();
	for (; t->authorities; n++) {
		X509 *x = new_certificate(t);
		bool ok = x && PEM_read_bio_X509(pem, &x, no_passphrase, NULL) &&
			  X509_STORE_add_cert(t->authorities, x) == 1;

		X509_free(x);
		if (!ok)
			return n;
	}
	return -ENOMEM;
}

static bool buf_has(const struct buf *text, const char *word)
{
	return memmem(text->data, text->len, word, strlen(word)) != NULL;
}

typedef int add_fn(struct trust *t, BIO *pem, const char *path);

static int add_files(struct trust *t, char *const *paths, add_fn *add, const char *what)
{
	int r = 0;

	for (; r == 0 && paths && *paths; paths++) {
		struct buf text;
		BIO *pem = NULL;

		r = read_file(*paths, &text);
		if (r == 0)
			pem = BIO_new_mem_buf(text.data, (int)text.len);
		if (r == 0)
			r = pem ? add(t, pem, *paths) : -ENOMEM;
		if (r == 0 && add == add_keys && buf_has(&text, "PRIVATE KEY-----"))
			r = log_error(-EINVAL, *paths,
				      "has no %s in PEM but a private one; write it by "
				      "openssl pkey -in KEY -pubout",
				      what);
		else if (r == 0)
			r = log_error(-EINVAL, *paths, "has no %s in PEM", what);
		r = MIN(r, 0);
		BIO_free(pem);
		buf_finish(&text);
	}
	return r;
}

static int check_options(const struct carton_options *o)
{
	bool asks = o->verify_keys || o->verify_cas;

	if (o->verify_cas && !o->signer)
		return log_error(-EINVAL, NULL,
				 "verify_ca needs signer=NAME: an authority has many customers");
	if (o->signer && !o->verify_cas)
		return log_error(-EINVAL, NULL, "the option signer needs verify_ca=PEM");
	if (o->signature && !asks)
		return log_error(-EINVAL, NULL,
				 "the option signature is not checked without verify_key=PEM or "
				 "verify_ca=PEM");
	if (asks && o->verify == CARTON_VERIFY_OFF)
		return log_error(-EINVAL, NULL, "verify=off compares no file with what is signed");
	return 0;
}

int trust_new(const struct carton_options *o, struct trust **ret)
{
	struct trust *t;
	int r = check_options(o);

	*ret = NULL;
	if (r < 0 || (!o->verify_keys && !o->verify_cas))
		return r;
	t = calloc(1, sizeof(*t));
	if (!t)
		return -ENOMEM;
	t->library = digest_library();
	t->signer = o->signer ? strdup(o->signer) : NULL;
	r = t->library && (t->signer || !o->signer) ? 0 : -ENOMEM;
	if (r == 0)
		r = add_files(t, o->verify_keys, add_keys, "public key");
	if (r == 0)
		r = add_files(t, o->verify_cas, add_authorities, "certificate");
	if (r < 0)
		trust_free(t);
	else
		*ret = t;
	return r;
}

void trust_free(struct trust *t)
{
	if (!t)
		return;
	for (size_t i = 0; i < t->n_keys; i++)
		EVP_PKEY_free(t->keys[i].key);
	free(t->keys);
	X509_STORE_free(t->authorities);
	free(t->signer);
	free(t);
}

/* ---- the signature ---- */

/* 1: it is right; 0: it is not; -ENOMEM. */
static int is_right(const struct trust *t, EVP_PKEY *key, const struct bundle *b)
{
	EVP_MD_CTX *md = EVP_MD_CTX_new();
	char head[DSSE_PAE_SIZE];
	size_t n = dsse_pae(b->payload.len, head);
	int r = md ? 0 : -ENOMEM;

	if (r == 0)
		r = EVP_DigestVerifyInit_ex(md, NULL, sign_digest(key), t->library, NULL, key,
					    NULL) == 1 &&
		    EVP_DigestVerifyUpdate(md, head, n) == 1 &&
		    EVP_DigestVerifyUpdate(md, b->payload.data, b->payload.len) == 1 &&
		    EVP_DigestVerifyFinal(md, (unsigned char *)b->signature.data,
					  b->signature.len) == 1;
	EVP_MD_CTX_free(md);
	return r;
}

static int wrong(struct reason *why)
{
	return reason_set(
		why, -EBADMSG,
		"signature: it is not of these bytes by this key: the payload was changed, "
		"or was signed in another encoding than DSSE");
}

/* An old bundle has no hint: then it may be any of the keys. */
static int check_key(const struct trust *t, const struct bundle *b, struct carton_signature *ret,
		     struct reason *why)
{
	size_t matching = 0;

	if (t->n_keys == 0)
		return reason_set(why, -EBADMSG,
				  "key: it is signed with a key, and no verify_key is "
				  "given");
	for (size_t i = 0; i < t->n_keys; i++) {
		const struct trusted_key *k = &t->keys[i];
		int r = 0;

		if (*b->hint && strcmp(b->hint, k->hint) != 0)
			continue;
		matching++;
		r = is_right(t, k->key, b);
		if (r > 0)
			snprintf(ret->by, sizeof(ret->by), "key %s", k->hint);
		if (r != 0)
			return MIN(r, 0);
	}
	return matching ? wrong(why) :
			  reason_set(why, -EBADMSG,
				     "key: it names another key, %.16s..., than verify_key has: "
				     "%.16s...%s",
				     b->hint, t->keys[0].hint, t->n_keys > 1 ? " and others" : "");
}

/* ---- a chain of certificates ---- */

static int read_chain(const struct trust *t, const struct bundle *b, STACK_OF(X509) * ret,
		      struct reason *why)
{
	for (size_t i = 0; i < b->n_certificates; i++) {
		const struct buf *der = &b->certificates[i];
		const unsigned char *at = (const unsigned char *)der->data;
		X509 *x = der->len - 1 < MAX_CERTIFICATE ? new_certificate(t) : NULL;

		if (!x || !d2i_X509(&x, &at, (long)der->len) ||
		    at != (const unsigned char *)der->data + der->len) {
			X509_free(x);
			return reason_set(why, -EBADMSG, "chain: certificate %zu is malformed",
					  i + 1);
		}
		if (!sk_X509_push(ret, x)) {
			X509_free(x);
			return -ENOMEM;
		}
	}
	return 0;
}

/* OpenSSL lets some authorities pass whose certificate does not say that they are one. */
static int check_authorities(X509_STORE_CTX *ctx, struct reason *why)
{
	STACK_OF(X509) *chain = X509_STORE_CTX_get0_chain(ctx);

	for (int i = 1; i < sk_X509_num(chain); i++)
		if (X509_check_ca(sk_X509_value(chain, i)) != 1)
			return reason_set(
				why, -EBADMSG,
				"chain: certificate %d has no basic constraints that make "
				"it an authority",
				i + 1);
	return 0;
}

/* Does it lead to one of the user's authorities now? No extended key usage is asked for. */
static int verify_chain(X509_STORE_CTX *ctx, struct reason *why)
{
	X509_VERIFY_PARAM *param = X509_STORE_CTX_get0_param(ctx);
	int r;

	/* the user may trust one that is below another */
	X509_VERIFY_PARAM_set_flags(param, X509_V_FLAG_PARTIAL_CHAIN);
	X509_VERIFY_PARAM_set_depth(param, MAX_CERTIFICATES);
	X509_VERIFY_PARAM_set_auth_level(param, 2);
	r = X509_verify_cert(ctx);
	if (r == 1)
		return check_authorities(ctx, why);
	r = X509_STORE_CTX_get_error(ctx);
	return r == X509_V_ERR_OUT_OF_MEM ? -ENOMEM :
					    reason_set(why, -EBADMSG, "chain: certificate %d: %s",
						       X509_STORE_CTX_get_error_depth(ctx) + 1,
						       X509_verify_cert_error_string(r));
}

static int check_chain(const struct trust *t, STACK_OF(X509) * chain, struct reason *why)
{
	X509 *leaf = sk_X509_value(chain, 0);
	X509_STORE_CTX *ctx = X509_STORE_CTX_new_ex(t->library, NULL);
	int r = ctx && X509_STORE_CTX_init(ctx, t->authorities, leaf, chain) == 1 ? 0 : -ENOMEM;

	if (r == 0)
		r = verify_chain(ctx, why);
	X509_STORE_CTX_free(ctx);
	if (r == 0 && (!(X509_get_extension_flags(leaf) & EXFLAG_KUSAGE) ||
		       !(X509_get_key_usage(leaf) & KU_DIGITAL_SIGNATURE)))
		r = reason_set(why, -EBADMSG,
			       "chain: the key usage of certificate 1 has no digitalSignature");
	return r;
}

/* Its subject as RFC 2253 has it, but with letters outside of ASCII as they are. */
static int subject_of(X509 *x, char *ret, size_t n)
{
	BIO *out = BIO_new(BIO_s_mem());
	char *text;
	long len;
	int r = out && X509_NAME_print_ex(out, X509_get_subject_name(x), 0,
					  XN_FLAG_RFC2253 & ~ASN1_STRFLGS_ESC_MSB) >= 0 ?
			0 :
			-ENOMEM;

	if (r == 0) {
		len = BIO_get_mem_data(out, &text);
		r = len < (long)n ? 0 : -EFBIG;
		if (r == 0)
			snprintf(ret, n, "%.*s", (int)len, text);
	}
	BIO_free(out);
	return r;
}

/* Is one of its other names just this one: an address of mail, a URI, a name of DNS? */
static bool has_name(X509 *x, const char *name)
{
	GENERAL_NAMES *names = X509_get_ext_d2i(x, NID_subject_alt_name, NULL, NULL);
	bool found = false;

	for (int i = 0; i < sk_GENERAL_NAME_num(names) && !found; i++) {
		const GENERAL_NAME *g = sk_GENERAL_NAME_value(names, i);
		const ASN1_IA5STRING *s;

		if (g->type != GEN_EMAIL && g->type != GEN_URI && g->type != GEN_DNS)
			continue;
		s = g->d.ia5;
		found = (size_t)ASN1_STRING_length(s) == strlen(name) &&
			memcmp(ASN1_STRING_get0_data(s), name, strlen(name)) == 0;
	}
	GENERAL_NAMES_free(names);
	return found;
}

static int check_signer(const struct trust *t, X509 *leaf, struct carton_signature *ret,
			struct reason *why)
{
	char subject[CARTON_SIGNER];
	struct tm end;
	int r = subject_of(leaf, subject, sizeof(subject));

	if (r == -EFBIG)
		return reason_set(why, -EBADMSG, "chain: the subject of certificate 1 is too long");
	if (r < 0)
		return r;
	if (strcmp(t->signer, subject) != 0 && !has_name(leaf, t->signer))
		return reason_set(why, -EBADMSG, "signer: it is \"%s\", and not \"%s\"", subject,
				  t->signer);
	if (ASN1_TIME_to_tm(X509_get0_notAfter(leaf), &end) != 1)
		return reason_set(why, -EBADMSG, "chain: certificate 1 has no date of its end");
	memcpy(ret->by, subject, sizeof(subject));
	ret->ends = timegm(&end);
	return 0;
}

static int check_certificates(const struct trust *t, const struct bundle *b,
			      struct carton_signature *ret, struct reason *why)
{
	STACK_OF(X509) *chain = sk_X509_new_null();
	EVP_PKEY *key = NULL;
	int r = chain ? 0 : -ENOMEM;

	if (r == 0 && !t->authorities)
		r = reason_set(why, -EBADMSG,
			       "chain: it is signed with a certificate, and no verify_ca is given");
	if (r == 0)
		r = read_chain(t, b, chain, why);
	if (r == 0)
		key = X509_get0_pubkey(sk_X509_value(chain, 0));
	if (r == 0 && (!key || !sign_digest(key)))
		r = reason_set(why, -EBADMSG,
			       "chain: the key of certificate 1 is not on P-256, P-384 or P-521");
	if (r == 0) {
		r = is_right(t, key, b);
		r = r == 0 ? wrong(why) : MIN(r, 0);
	}
	if (r == 0)
		r = check_chain(t, chain, why);
	if (r == 0)
		r = check_signer(t, sk_X509_value(chain, 0), ret, why);
	sk_X509_pop_free(chain, X509_free);
	return r;
}

int trust_check(const struct trust *t, const struct bundle *b, struct carton_signature *ret,
		struct reason *why)
{
	return b->key ? check_key(t, b, ret, why) : check_certificates(t, b, ret, why);
}
