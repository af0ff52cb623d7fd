/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parallel lookups in one directory. Without them, the kernel holds the directory's lock during a LOOKUP,
 * and all other lookups in it wait uninterruptibly.
 */
#ifndef FS_DIROPS_H
#define FS_DIROPS_H

#include "ops.h"

/* Turns on FUSE_PARALLEL_DIROPS in the reply to INIT. Call it between mounting and serving. */
void dirops_parallel(struct mount *m);

#endif
