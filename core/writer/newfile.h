/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file that appears whole or not at all.
 *
 * The file has no name while it is written (O_TMPFILE), so no file is left when the process is
 * killed. To replace another file it is linked under a temporary name and renamed. Where the file
 * system has no unnamed files, it has the temporary name from the start; the next process that
 * writes the same file removes one that was left.
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
 * Begins a file that will be at `path`, for reading and writing. An older file, which has to be a
 * regular one, stays there until the new one is published. 0; -EINVAL: not a file name; -EBUSY:
 * another process writes it; -EISDIR, -EEXIST: `path` is there and no regular file; or -errno of
 * the system. Logged.
 */
int newfile_begin(const char *path, struct newfile *ret);

/*
 * Writes the file to disk and puts it in its place. 0 or -errno, logged; an older file is then
 * unchanged.
 */
int newfile_publish(struct newfile *o);

/* Closes the file; removes it if it was not published. All zero: does nothing. */
void newfile_end(struct newfile *o);

/* The directory of `path`, malloc'ed: "." for a bare name. NULL: no memory. */
char *newfile_directory(const char *path);

#endif
