/* SPDX-License-Identifier: Apache-2.0 */
/* Landlock: restricts which files this process can open by name. See landlock(7). */
#ifndef FS_LANDLOCK_H
#define FS_LANDLOCK_H

enum landlock_use {
	LANDLOCK_USE_READ,   /* read files and directories, and all beneath them */
	LANDLOCK_USE_WRITE,  /* the same, and make, change, rename and remove all of them */
	LANDLOCK_USE_OUTPUT, /* the same, and make symlinks */
	LANDLOCK_USE_TMP,    /* make unnamed files in a directory */
	LANDLOCK_USE_FILE,   /* read and write an existing file or device */
};

/*
 * A new set of rules, which allows nothing. 0; -ENOSYS: the kernel has no (or a too old) Landlock.
 */
int landlock_new(int *ret_set);

/*
 * Allows a use of the file or directory that is at `path` now; does nothing if there is none. 0 or
 * -errno.
 */
int landlock_allow(int set, const char *path, enum landlock_use use);

/* Applies the rules to this thread and all that it starts, and closes the set. 0 or -errno. */
int landlock_enter(int set);

#endif
