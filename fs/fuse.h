/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libfuse, in the one version of its API that this program is written against: 3.12, the newest
 * that all supported distributions have.
 */
#ifndef FS_FUSE_H
#define FS_FUSE_H

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

#endif
