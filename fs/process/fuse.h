/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Includes libfuse. The program uses version 3.12 of its API, which all supported distributions
 * have.
 */
#ifndef FS_FUSE_H
#define FS_FUSE_H

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

#endif
