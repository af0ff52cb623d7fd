/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file that appears whole or not at all.
 *
 * It has no name while it is written (O_TMPFILE), so nothing is left when the process is killed. To
 * replace another file it is linked under a temporary name and renamed. Where the file system has
 * no unnamed files, it has that name from the start; the next one of the same name takes over what
 * was left.
 *
 * Threads: one at a time.
 */
#ifndef CARTON_WRITER_NEWFILE_H
#define CARTON_WRITER_NEWFILE_H

#include <stdbool.h>

struct newfile {
	char *path;	  /* as it was given */
	const char *name; /* its last component */
	char *temporary;  /* ".NAME.new" */
	int dir, fd;
	bool named; /* `fd` is the file `temporary` */
};

/*
 * Begins a file that will be at `path`, for reading and writing. What is there stays until it is
 * published, and has to be a regular file. 0; -EINVAL: not a file name; -EBUSY: another process
 * writes it; -EISDIR, -EEXIST: what is there is no regular file; or -errno of the system. Logged.
 */
int newfile_begin(const char *path, struct newfile *ret);

/*
 * Writes it to disk and puts it in its place. 0 or -errno, logged; what was there is then
 * unchanged.
 */
int newfile_publish(struct newfile *o);

/* Closes it; removes what was not published. All zero: does nothing. */
void newfile_end(struct newfile *o);

/* The directory that it is in, malloc'ed: "." for a bare name. NULL: no memory. */
char *newfile_directory(const char *path);

#endif
