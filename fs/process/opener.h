/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens a few files for a confined process: resolver files such as /etc/resolv.conf, and those that
 * the user has named. Such a file may be replaced by rename(2) or by a symlink on the path, and a
 * Landlock rule covers only the old inode. The kernel reports each open(2) of the confined process
 * (seccomp_unotify(2)). Files of the list are opened here, for reading; for all others the rules of
 * the confined process apply.
 *
 * The list is made before the process reads a carton, and paths are compared as they are written:
 * the process cannot name any other file.
 */
#ifndef FS_OPENER_H
#define FS_OPENER_H

#include <stdbool.h>

#include "carton.h"

struct opener {
	int fds[2]; /* a seccomp listener, and /proc/PID/mem of the confined process; -1: not yet */
	const char *files[3]; /* NULL: none */
	char *netrc;	      /* files[2], malloc'ed */
	char *authorities;    /* files[0], if the option does not name them; malloc'ed */
};

/*
 * Takes the list from the options, whose strings must outlive it. If they name no certificate
 * authorities, takes the file that the environment names for this source.
 */
void opener_init(struct opener *o, const struct carton_options *options, const char *source);

/* Closes no descriptor. */
void opener_finish(struct opener *o);

/* Is it a listener, as opener_answer() needs it? */
bool opener_is_listener(int fd);

/* Answers one open(2), when `listener` is readable. */
void opener_answer(const struct opener *o);

/* The .netrc that libcurl reads; malloc'ed, NULL: there is no home directory, or out of memory. */
char *opener_netrc(void);

#endif
