/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Landlock: restricts which files this process can open by name. See landlock(7).
 */
#ifndef FS_LANDLOCK_H
#define FS_LANDLOCK_H

enum landlock_use {
	LANDLOCK_USE_READ, /* files, directories and what is beneath them */
	LANDLOCK_USE_WRITE, /* that, and make, change, rename and remove files and directories there */
	LANDLOCK_USE_OUTPUT, /* and make symlinks */
	LANDLOCK_USE_TMP,    /* a directory for unnamed files */
	LANDLOCK_USE_FILE,   /* read and write an existing file or device */
};

/*
 * A new set of rules, which allows nothing. 0; -ENOSYS: the kernel has no (or a too old) Landlock.
 */
int landlock_new(int *ret_set);

/* Allows a use of the file or directory that is at `path` now, if there is one. 0 or -errno. */
int landlock_allow(int set, const char *path, enum landlock_use use);

/* Applies the rules to this thread and all that it starts, and closes the set. 0 or -errno. */
int landlock_enter(int set);

#endif
