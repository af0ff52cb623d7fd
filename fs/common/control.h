/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests of cartonctl to a mount: ioctls on its root directory, for root and the user who
 * mounted.
 */
#ifndef FS_CONTROL_H
#define FS_CONTROL_H

#include <sys/ioctl.h>

/* A URL of the same carton, such as one with a new signature, with its NUL. */
struct control_refresh {
	char url[8192];
};

#define CONTROL_REFRESH _IOW('C', 1, struct control_refresh)

#endif
