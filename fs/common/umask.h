/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The umask decides what others may do with the files and directories that a program makes. What it
 * takes from the owner is given back: we have to enter our own directories, also in later runs.
 */
#ifndef FS_UMASK_H
#define FS_UMASK_H

#include <sys/stat.h>

/* At the start of a program, while it has one thread. */
static inline void umask_keeps_owner(void)
{
	umask(umask(0) & ~(mode_t)S_IRWXU);
}

#endif
