/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A private key that signs. The key is in a process of its own, which reads nothing of the model:
 * the process that does is confined, and could neither ask for a passphrase nor reach a key that is
 * behind a provider of OpenSSL. The other process gets a digest, and gives a signature of it.
 *
 * Threads: one.
 */
#ifndef CARTON_SIGN_SIGNER_H
#define CARTON_SIGN_SIGNER_H

#include <stdint.h>
#include <sys/types.h>

#include "base/limits.h"
#include "sign/sign.h"

#define SIGNER_BY 256
#define SIGNER_NAME 256
#define SIGNER_SIGNATURE 160 /* bytes: one of P-521 in DER has at most 141 */

struct signer_options {
	const char *key;	     /* a PEM file, or a URI that OpenSSL's store opens */
	const char *passphrase_file; /* has that of the key in its first line; NULL: none */
	const char *cert;	     /* a PEM file: the certificate of the key first; NULL: none */
};

struct signer_cert {
	uint8_t *der;
	size_t n;
};

struct signer {
	int fd;			  /* of the process that has the key, */
	pid_t pid;		  /* which this is; 0: there is none */
	char key[SIGNER_NAME];	  /* its name, for messages: without a PIN */
	struct evp_pkey_st *open; /* the public key */
	const char *digest;	  /* of its curve */
	char hint[2 * SHA256_SIZE + 1];
	struct signer_cert chain[MAX_CERTIFICATES];
	size_t n_chain;
	char by[SIGNER_BY]; /* the subject of the first certificate; "": there is none */
	int64_t ends;	    /* when it ends, in seconds since 1970 */
};

/*
 * Starts the process, and reads the key, which may ask for a passphrase at the terminal, and the
 * certificates. Call it before any thread is started; the options outlive the signer. 0; -EINVAL:
 * no key on P-256, P-384 or P-521, another passphrase, or certificates that no verifier would
 * accept; or as the system says. Logged.
 */
int signer_start(const struct signer_options *options, struct signer *ret);

/*
 * Signs the DSSE encoding of a payload, and checks the signature. 0 and its length in *ret_n; -EIO,
 * logged; -ENOMEM.
 */
int signer_sign(struct signer *s, const void *payload, size_t n,
		uint8_t ret_signature[SIGNER_SIGNATURE], size_t *ret_n);

/* Ends the process. All zero but for an `fd` of -1: does nothing. */
void signer_end(struct signer *s);

/* ---- for the files of this folder ---- */

/* key.c: the key as messages may show it: a URI has its PIN behind the `?`. Returns `ret`. */
char *signer_show_key(const char *key, char ret[SIGNER_NAME]);

/* chain.c: reads options->cert into `s`, which has its public key. As signer_start(). */
int signer_read_chain(const char *cert, struct signer *s);

/* What the other process says: 0 and `n` bytes, or -errno and why, as text. */
struct signer_answer {
	int r;
	uint32_t n;
	uint8_t bytes[2048];
};

/* key.c: the other process: answers with the public key as PEM, then with signatures of digests. */
_Noreturn void signer_serve(const struct signer_options *options, int fd);

#endif
