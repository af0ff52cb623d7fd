/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whom the user trusts, and whether a signature of theirs covers a carton. sign.h has the format.
 *
 * The checks, in their order:
 *  1. the bundle has the right media type, one key or one chain of certificates, and an envelope
 *     with one signature;
 *  2. the signature is right for the exact bytes of the payload;
 *  3. the key is one of the user's; or the chain ends at one of the user's authorities, and the
 *     first certificate of the chain names the signer that the user expects;
 *  4. the types of the statement, and the method by which the files were hashed, are known;
 *  5. each listed file is in MANIFEST, and each line of MANIFEST is listed, with the same hash.
 *
 * The statement is parsed only after the signature was found to be right; but for sign_lists().
 * Keys are on P-256, P-384 or P-521. A chain is checked as of now.
 *
 * Threads: the one that opens the carton.
 */
#ifndef CARTON_SIGN_CHECK_H
#define CARTON_SIGN_CHECK_H

#include "carton.h"
#include "format/manifest.h"

struct trust;

/*
 * Reads the keys and authorities that the options name. *ret is NULL if they name none. 0; -EINVAL:
 * options that do not go together, or a file without such a key or certificate; errors of reading
 * it. Logged.
 */
int trust_new(const struct carton_options *options, struct trust **ret);
void trust_free(struct trust *t); /* NULL-safe */

/*
 * The two halves of a check; *why says which check has failed, and nothing is logged. Both together
 * take SIGNATURE_EXPANSION times the memory of the text.
 */

/*
 * Is it a signature by somebody who is trusted? 0: who that is, and what is signed, which the
 * caller frees; -EBADMSG; -EFBIG over a limit; -ENOMEM. Any thread.
 */
int sign_read(const struct trust *t, const struct buf *text, struct carton_signature *ret,
	      struct buf *ret_payload, struct reason *why);

/*
 * Does a signature list what `m` has, whoever has made it? Nothing that a reader relies on. Returns
 * and changes `m` as sign_compare().
 */
int sign_lists(const struct buf *text, struct manifest *m, struct reason *why);

/*
 * Does the signed list cover `m`? 0: each of the m->n lines is signed; the m->left_out lines that
 * the list leaves out are moved behind them. Errors are those of sign_read().
 */
int sign_compare(const struct buf *payload, struct manifest *m, struct reason *why);

#endif
