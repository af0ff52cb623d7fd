/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The format of a signature: OpenSSF Model Signing (OMS) 1.0. A signature is one JSON file, a
 * Sigstore bundle: a DSSE envelope, and what verifies it: a key or a chain of certificates. The
 * payload of the envelope is an in-toto statement, which lists each file of the model with its
 * sha256.
 *
 * The names in the list are relative to the carton if it has carton.toml, else to model/. The list
 * is ordered by strcmp(), which is not the order of MANIFEST. It does not have the signature
 * itself, nor what sign_leaves_out() names.
 *
 * Threads: any.
 */
#ifndef CARTON_SIGN_SIGN_H
#define CARTON_SIGN_SIGN_H

#include <stdbool.h>
#include <stddef.h>

#include "base/digest.h"

/* ---- the words of the format ---- */

#define SIGN_BUNDLE_TYPE "application/vnd.dev.sigstore.bundle.v0.3+json"
#define SIGN_PAYLOAD_TYPE "application/vnd.in-toto+json"
#define SIGN_STATEMENT_TYPE "https://in-toto.io/Statement/v1"
#define SIGN_PREDICATE_TYPE "https://model_signing/signature/v1.0"

/* Its names: in a carton, in a repository or the directory of a model, and beside a source. */
#define SIGN_IN_CARTON "misc/model.sig"
#define SIGN_IN_MODEL "model.sig"
#define SIGN_SUFFIX ".sig"

/* What the list leaves out by default, at the top of what is signed; ends with NULL. */
extern const char *const sign_left_out[];

/*
 * Does a list leave out this path, which is relative to what is signed: is it the signature itself,
 * or one of sign_left_out, or below one?
 */
bool sign_leaves_out(const char *path);

/* Is `path` the path `of`, or below it? */
bool sign_is_below(const char *path, const char *of);

/* ---- what is signed ---- */

/*
 * The pre-authentication encoding of DSSE for a payload of `n` bytes of SIGN_PAYLOAD_TYPE, up to
 * the payload, which follows it. Returns the length, without a NUL.
 */
#define DSSE_PAE_SIZE 80
size_t dsse_pae(size_t n, char ret[DSSE_PAE_SIZE]);

/* ---- keys; EVP_PKEY of OpenSSL ---- */

struct evp_pkey_st;

/* The digest that goes with a key on P-256, P-384 or P-521, such as "SHA256"; NULL: another key. */
const char *sign_digest(const struct evp_pkey_st *key);

/*
 * The hint by which a bundle names a key: the sha256 of the PEM text of the public key, with its
 * point uncompressed, as 64 hex digits and a NUL. 0, -ENOMEM or -EIO.
 */
int sign_hint(const struct evp_pkey_st *key, char ret[2 * SHA256_SIZE + 1]);

#endif
