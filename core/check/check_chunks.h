/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares the chunk index of a carton (cartonfs-chunks(5)) with its files, for `cartonctl verify`.
 *
 * Threads: any, after check_chunks_init().
 */
#ifndef CARTON_CHECK_CHUNKS_H
#define CARTON_CHECK_CHUNKS_H

#include "carton/opened.h"

/*
 * Reads the index, if there is one. Problems are logged: how many, or -ENOMEM. Ended by
 * check_chunks_finish(), also after a failure.
 */
ssize_t check_chunks_init(struct carton *c, struct carton_index *ret);
void check_chunks_finish(struct carton_index *k);

/* The chunk size of the file of that hash and size; 0: the index does not have it. */
uint64_t check_chunks_size(const struct carton_index *k, const uint8_t sha256[SHA256_SIZE]);

/*
 * Compares the chunks of a whole file, whose hasher has ended, with those of the index. 0;
 * -EBADMSG, logged with the first that differs; or an error of reading the index.
 */
int check_chunks_compare(const struct carton_index *k, const char *name,
			 const uint8_t sha256[SHA256_SIZE], const struct chunks_hasher *h);

#endif
