/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Notes of the generated nodes that the kernel knows: their inode numbers and paths, in a file. So
 * the next process finds the nodes by the numbers that this one has given out (keep.h). The file is
 * in memory; the memory that the carton may take limits the number of notes.
 *
 * Any thread, but for inode_notes_new() and inode_notes_free().
 */
#ifndef FS_INODE_NOTES_H
#define FS_INODE_NOTES_H

#include <stdint.h>
#include <sys/types.h>

#include "carton.h"

struct inode_notes;
struct mount;

/*
 * Reads the notes of earlier processes in `fd`, from `start` to its end, and finds their nodes. For
 * that it generates their directories and waits for servers; after one server has not answered in
 * time, it waits for no other. A node that is not found at this time is not found later. New notes
 * are appended. Notes may be hostile: a number counts for one generated node, and only if an
 * earlier process than that of `m` may have given it. 0 or -errno.
 */
int inode_notes_new(int fd, off_t start, const struct mount *m, struct inode_notes **ret);
void inode_notes_free(struct inode_notes *notes); /* NULL-safe */

/*
 * Appends a note for the node, unless there is one. After a failure the next process does not find
 * it. NULL-safe.
 */
void inode_notes_add(struct inode_notes *notes, struct carton_node *node, uint64_t ino);

/* The node to which an earlier process has given this inode number, or NULL. NULL-safe. */
struct carton_node *inode_notes_find(const struct inode_notes *notes, uint64_t ino);

/*
 * The inode number that an earlier process has given the node, and that it keeps; 0: none.
 * NULL-safe.
 */
uint64_t inode_notes_ino(const struct inode_notes *notes, const struct carton_node *node);

#endif
