/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares the chunk index of a carton (cartonfs-chunks(5)) with its files, for `cartonctl verify`.
 *
 * Threads: any, after check_chunks_init().
 */
#ifndef CARTON_CHECK_CHUNKS_H
#define CARTON_CHECK_CHUNKS_H

#include "format/chunks.h"
#include "carton/opened.h"

struct check_chunks {
	struct node *file;     /* the index, pinned; or NULL */
	struct chunks *chunks; /* or NULL: there is none that can be used */
};

/*
 * Reads the index, if there is one. Problems are logged: how many, or -ENOMEM. Ended by
 * check_chunks_finish(), also after a failure.
 */
ssize_t check_chunks_init(struct carton *c, struct check_chunks *ret);
void check_chunks_finish(struct check_chunks *k);

/* The chunk size of the file of that hash and size; 0: the index does not have it. */
uint64_t check_chunks_size(const struct check_chunks *k, const uint8_t sha256[SHA256_SIZE]);

/*
 * Compares the chunks of a whole file, whose hasher has ended, with those of the index. 0;
 * -EBADMSG, logged with the first that differs; or an error of reading the index.
 */
int check_chunks_compare(const struct check_chunks *k, const char *name,
			 const uint8_t sha256[SHA256_SIZE], const struct chunks_hasher *h);

#endif
