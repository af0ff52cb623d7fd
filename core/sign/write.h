/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the texts of a signature (sign.h): the statement, which depends on the files alone, and
 * the bundle. Neither has a space that means nothing.
 *
 * Threads: any.
 */
#ifndef CARTON_SIGN_WRITE_H
#define CARTON_SIGN_WRITE_H

#include "base/util.h"
#include "sign/sign.h"
#include "sign/signer.h"

struct sign_file {
	const char *name;
	uint8_t sha256[SHA256_SIZE];
};

/* What is signed (section 5.2 of the specification). */
struct sign_list {
	const char *model; /* the name of the file or directory that is signed */
	struct sign_file *files;
	size_t n;
	bool symlinks;		/* some paths are symlinks: their targets are signed */
	const char *ignored[3]; /* also left out, beside sign_left_out; or NULL */
};

/*
 * Sorts the files, and adds the statement to an empty buffer. 0; -EFBIG over MAX_SIGNATURE;
 * -ENOMEM or -EIO.
 */
int sign_write_statement(struct sign_list *list, struct buf *ret);

/* Adds the bundle of a statement and its signature (`n` bytes). Errors as above. */
int sign_write_bundle(const struct signer *by, const struct buf *statement, const void *signature,
		      size_t n, struct buf *ret);

#endif
