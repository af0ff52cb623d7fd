/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares the chunk index of a carton (cartonfs-chunks(5)) with its files, for `cartonctl verify`.
 *
 * Threads: any, after check_chunks_init().
 */
#ifndef CARTON_CHECK_CHUNKS_H
#define CARTON_CHECK_CHUNKS_H

#include "base/hasher.h"
#include "carton/opened.h"

/*
 * Reads the index, if there is one. Problems are logged: how many, or -ENOMEM. Ended by
 * check_chunks_finish(), also after a failure.
 */
ssize_t check_chunks_init(struct carton *c, struct carton_index *ret);
void check_chunks_finish(struct carton_index *k);

/* What the index says of the file of that hash; NULL: it does not have it. */
const struct chunks_file *check_chunks_find(const struct carton_index *k,
					    const uint8_t sha256[SHA256_SIZE]);

/*
 * Compares the states of an entry, kept after each chunk, with those of the index. 0; -EBADMSG,
 * logged with the first that differs; or an error of reading the index.
 */
int check_chunks_compare(const struct carton_index *k, const struct entry *e,
			 const struct chunks_file *f, const struct ingested *found);

#endif
