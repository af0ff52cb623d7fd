/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Landlock: which files this process can open by name, from now on. See landlock(7).
 */
#ifndef FS_LANDLOCK_H
#define FS_LANDLOCK_H

enum landlock_use {
	LANDLOCK_USE_READ, /* files, directories and what is beneath them */
	LANDLOCK_USE_WRITE, /* that, and make, change, rename and remove files and directories there */
	LANDLOCK_USE_TMP,  /* a directory for unnamed files */
	LANDLOCK_USE_FILE, /* read and write an existing file or device */
};

/* A new set of rules; nothing is allowed yet. 0, or -ENOSYS: the kernel has none that suffices. */
int landlock_new(int *ret_set);

/* Allows a use of what `path` names now; nothing if there is no such file. 0 or -errno. */
int landlock_allow(int set, const char *path, enum landlock_use use);

/* Makes the rules those of this thread and of all that it starts. 0 or -errno. Closes the set. */
int landlock_enter(int set);

#endif
