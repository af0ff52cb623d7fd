/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of one directory looked up side by side. Else the kernel holds a lock on the directory while
 * one request for it waits, and all others wait for that lock, where nothing can interrupt them.
 */
#ifndef FS_DIROPS_H
#define FS_DIROPS_H

#include "ops.h"

/* Asks the kernel for it, in the answer to INIT: when the session is mounted, and not served yet. */
void dirops_parallel(struct mount *m);

#endif
