/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The user's key: a file of 64 hex digits and a newline. Keys of sources are derived from it, with
 * which seals and notes of the cache are made (cache.h). No carton, and no daemon that has one
 * open, can read or write the file, so it never lies in the cache. It is read before a process is
 * confined.
 *
 * Threads: any.
 */
#ifndef CARTON_CACHE_KEY_H
#define CARTON_CACHE_KEY_H

#include <stdbool.h>

#include "base/digest.h"
#include "base/own.h"

struct key_file {
	char *path; /* absolute; the path of its directory has no symlink */
	int dir;    /* that directory */
};

/*
 * Finds the directory of the key `file`. NULL: cache.key in $XDG_STATE_HOME/cartonfs; else, of
 * root, in /var/lib/cartonfs; else in ~/.local/state/cartonfs. These directories are made if
 * missing. 0; or -errno, and ret_why says why ("cannot be made: ..."). In any case `ret` is set,
 * with the path if that is known, and the caller calls key_file_finish().
 */
int key_file_find(const char *file, struct key_file *ret, char ret_why[OWN_WHY]);
void key_file_finish(struct key_file *k);

/* Is the file beneath this directory? False: it is not, or there is no such directory. */
bool key_file_is_below(const struct key_file *k, const char *directory);

/*
 * Reads the key. If there is none, makes it, with mode 0600; processes that begin at the same time
 * get the same key. 0; -EPERM: others may read it; -EBADMSG: the file is no key; -errno. ret_why
 * says why.
 */
int key_file_read(const struct key_file *k, uint8_t ret_key[KEY_SIZE], char ret_why[OWN_WHY]);

#endif
