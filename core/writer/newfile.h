/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file that appears whole or not at all.
 *
 * The file has no name while it is written (O_TMPFILE), so no file is left when the process is
 * killed. To replace another file it is linked under a temporary name and renamed. Where the file
 * system has no unnamed files, it has the temporary name from the start; the next process that
 * writes the same file removes one that was left.
 *
 * A path /dev/fd/N names an open file, such as a pipe. It gets the bytes when they are complete;
 * until then they are in an unnamed temporary file, in $TMPDIR or /var/tmp.
 *
 * Threads: one at a time.
 */
#ifndef CARTON_WRITER_NEWFILE_H
#define CARTON_WRITER_NEWFILE_H

#include <stdbool.h>

struct newfile {
	char *path;	  /* as it was given; of an open file "the output" */
	const char *name; /* its last component; of an open file without a name: NULL */
	char *temporary;  /* ".NAME.new" */
	char *directory;  /* that it lies in; NULL: none */
	int dir, fd;
	bool named; /* `fd` is the file `temporary` */
	int to;	    /* the open file that gets the bytes; -1: it is a path */
};

/*
 * Begins a file that will be at `path`, for reading and writing. An older file, which has to be a
 * regular one, stays there until the new one is published. 0; -EINVAL: not a file name; -EBUSY:
 * another process writes it; -EISDIR, -EEXIST: `path` is there and no regular file; -EBADF,
 * -ENOTTY: the open file cannot be written to, or is a terminal; or -errno of the system. Logged.
 */
int newfile_begin(const char *path, struct newfile *ret);

/*
 * Writes the file to disk and puts it in its place. 0 or -errno, logged; an older file is then
 * unchanged. To an open file it writes all bytes, and waits for who reads them; SIGPIPE is the
 * caller's. If that fails, some may have been written, and it is logged how many.
 */
int newfile_publish(struct newfile *o);

/* Closes the file; removes it if it was not published. All zero: does nothing. */
void newfile_end(struct newfile *o);

#endif
