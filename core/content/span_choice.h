/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which small entries of a remote carton are fetched with one that somebody asks for (span.h).
 *
 * Threads: any; of one store, with the lock of its runs.
 */
#ifndef CARTON_CONTENT_SPAN_CHOICE_H
#define CARTON_CONTENT_SPAN_CHOICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct entry;
struct object;
struct object_store;

/* The entry that was asked for, and its neighbours. The caller frees the list. */
struct span_choice {
	size_t n;
	struct {
		const struct entry *entry;
		struct object *object;
	} * list;	  /* by their offset */
	uint64_t request; /* bytes of one request */

	/* private */
	size_t cap;
};

/* Has opening the carton left it in memory? Without the lock, too. */
bool span_is_left(const struct object_store *store, const struct entry *e);

/*
 * Chooses the entries for one that somebody asks for, `o` and `e`. None if that is to be asked for
 * alone.
 */
void span_choose(struct object *o, const struct entry *e, struct span_choice *ret);

#endif
