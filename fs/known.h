/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Generated nodes that the kernel knows, noted in a file with their paths: so the next process finds them by
 * the inode numbers that this one has given out (keep.h).
 *
 * Any thread, but for known_open() and known_free().
 */
#ifndef FS_KNOWN_H
#define FS_KNOWN_H

#include <stdint.h>
#include <sys/types.h>

#include "carton.h"

struct known;

/*
 * Reads what earlier processes have noted in `fd`, from `start` to its end, and finds these nodes: generates their
 * directories, and waits for that, but for one server that does not answer in time only. One that is not found now
 * stays unknown. Further notes follow there. 0 or -errno.
 */
int known_open(int fd, off_t start, const struct carton *c, struct known **ret);
void known_free(struct known *k); /* NULL-safe */

/* Notes a node, unless that was done. A failure means that the next process does not find it. NULL-safe. */
void known_note(struct known *k, struct carton_node *node, uint64_t ino);

/* The node that an earlier process has noted with this number, or NULL. NULL-safe. */
struct carton_node *known_find(const struct known *k, uint64_t ino);

/* Its number then, which it keeps; 0: none has noted it. NULL-safe. */
uint64_t known_ino(const struct known *k, const struct carton_node *node);

#endif
