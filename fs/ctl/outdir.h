/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The directory that extract writes to. Other users may write there too, such as in /tmp: no
 * symlink is followed, and what another user has made is not used. Files are written in a temporary
 * directory in it, which is this user's alone, and then renamed.
 */
#ifndef FS_OUTDIR_H
#define FS_OUTDIR_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct stat;

struct outdir {
	const char *path;
	int root, tmp; /* directories; `tmp` is locked */
	bool fresh;    /* the directory was empty */
	uid_t owner;
};

/*
 * Opens the directory, which exists, and makes and locks the temporary one in it. -EBUSY: another
 * process extracts to the directory; -EPERM, logged: another user has made the temporary one; or
 * -errno.
 */
int outdir_open(const char *path, struct outdir *ret);

/* Removes the temporary directory, which is empty. */
void outdir_close(struct outdir *o);

/*
 * May a file that is there be used? Another user may have made the file, and change it later. The
 * owner of the output directory is trusted.
 */
bool outdir_trusts(const struct outdir *o, const struct stat *st);

/*
 * Opens the directory at `path` beneath the output directory (O_PATH); missing directories are
 * made. *ret_made: whether this one was; untouched for "". Errors are those of outdir_parent().
 */
int outdir_directory(const struct outdir *o, const char *path, bool *ret_made);

/* The directory of the last file. The next file is mostly in the same one. */
struct outdir_parent {
	int fd; /* -1: none yet */
	size_t len;
	char path[4096];
};

/*
 * Makes `p` the directory of `path` beneath the output directory; missing directories are made.
 * A path has no "..": it cannot lead out. *ret_name: the last component. 0; -EPERM: another user
 * has made a directory on the way; or -errno.
 */
int outdir_parent(const struct outdir *o, struct outdir_parent *p, const char *path,
		  const char **ret_name);

#endif
