/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a command writes to: OUT of the command line, which may be standard output.
 *
 * Only what is complete and verified is written there (core/writer/newfile.h), and what the command
 * prints goes to standard error.
 */
#ifndef FS_CTL_DESTINATION_H
#define FS_CTL_DESTINATION_H

#include <stdbool.h>

struct destination {
	const char *path;  /* for the library */
	const char *label; /* for people */
	bool open;	   /* an open file, such as standard output */
	char text[32];	   /* of `path` */
};

/*
 * `word` may be - or /dev/stdout, or /dev/fd/N of another open file: then all that is printed from
 * now on goes to standard error. An exit status; a failure is reported. `ret` may not be moved.
 */
int destination_open(const char *word, struct destination *ret);

/* Says that nothing was made there. */
void destination_failed(const struct destination *d);

#endif
