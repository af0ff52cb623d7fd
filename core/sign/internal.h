/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of this folder, lowest first: format, fields, trust, bundle, statement. */
#ifndef CARTON_SIGN_INTERNAL_H
#define CARTON_SIGN_INTERNAL_H

#include "format/manifest.h"
#include "import/scan.h"
#include "sign/check.h"
#include "sign/sign.h"

/* ---- fields.c: objects of JSON, in which no key is twice ---- */

/*
 * scan_new() for a text of up to MAX_SIGNATURE bytes. Spaces and lines at its end are not read:
 * json_next() allows just spaces there.
 */
struct scan *fields_scan(const char *text, size_t n);

struct fields {
	const char *const *keys; /* those that are read, ending with NULL; at most 32 */
	unsigned seen;		 /* a bit for each that was there */
};

/*
 * Reads the next of these keys of an object, and skips others: 1 + its place in the list; 0 at the
 * end. -EBADMSG, with the reason: it is there twice. Errors of json_next().
 */
int fields_next(struct scan *s, struct fields *f, struct reason *why);

/* Sets the reason to what json_next() has found, if it has, and returns `r`. */
int fields_fault(const struct scan *s, int r, struct reason *why);

/* ---- bundle.c ---- */

/* What a bundle says; nothing of it is trusted. Zeroed: empty. */
struct bundle {
	char type[256];
	bool key, chain, sigstore;		   /* what there is to verify it with */
	char hint[256];				   /* of the key; "": none */
	struct buf certificates[MAX_CERTIFICATES]; /* DER */
	size_t n_certificates;
	bool envelope;
	char payload_type[256];
	struct buf payload, signature; /* decoded; of the last, if there are several */
	size_t n_signatures;
};

/*
 * Parses it, and decodes base64. 0; -EBADMSG, -EFBIG, with the reason: it cannot be read, or is no
 * signature of this kind; -ENOMEM. `ret` is set in any case.
 */
int bundle_parse(const char *text, size_t n, struct bundle *ret, struct reason *why);
void bundle_finish(struct bundle *b);

/* ---- trust.c ---- */

/*
 * Is the bundle signed by one whom the user trusts? Tells who that is. 0; -EBADMSG, with the
 * reason; -ENOMEM.
 */
int trust_check(const struct trust *t, const struct bundle *b, struct carton_signature *ret,
		struct reason *why);

/* ---- statement.c ---- */

/*
 * Does the payload of a bundle list what `m` lists? Takes lines that it leaves out from `m`. 0;
 * -EBADMSG, -EFBIG, with the reason; -ENOMEM.
 */
int statement_check(const char *payload, size_t n, struct manifest *m, struct reason *why);

#endif
