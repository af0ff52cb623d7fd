/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The user's key: a file of 64 hex digits and a newline. A cache says with it what was verified
 * (cache.h). It lies where no carton, and no daemon that has one open, can read or write it: never
 * in the cache. It is read before a process is confined.
 *
 * Threads: any.
 */
#ifndef CARTON_CACHE_KEY_H
#define CARTON_CACHE_KEY_H

#include <stdbool.h>

#include "base/digest.h"
#include "base/own.h"

struct key_file {
	char *path; /* absolute; the directory that has it has no symlink in its path */
	int dir;    /* that directory */
};

/*
 * Finds the directory of the key `file`. NULL: cache.key in $XDG_STATE_HOME/cartonfs; else, of
 * root, in /var/lib/cartonfs; else in ~/.local/state/cartonfs, which are made if missing. 0; or
 * -errno, and ret_why says why ("cannot be found: ..."). `ret` is set in any case, with the path
 * where one is known, and is to be ended.
 */
int key_file_find(const char *file, struct key_file *ret, char ret_why[OWN_WHY]);
void key_file_finish(struct key_file *k);

/* Is the file beneath this directory, which is there? */
bool key_file_is_below(const struct key_file *k, const char *directory);

/*
 * Reads the key. The first process makes it, with mode 0600: several that begin at once have the
 * same. 0; -EPERM: others may read it; -EBADMSG: it is no such file; -errno. ret_why says why.
 */
int key_file_read(const struct key_file *k, uint8_t ret_key[KEY_SIZE], char ret_why[OWN_WHY]);

#endif
