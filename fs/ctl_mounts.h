/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mounts of cartonfs that this user has made; from /proc/self/mountinfo.
 */
#ifndef FS_CTL_MOUNTS_H
#define FS_CTL_MOUNTS_H

#include <stdbool.h>
#include <stddef.h>

struct ctl_mount {
	char *path;
	bool own; /* this user has made it */
};

/* Those mounts, or the one at `path`, of any user: 0, -ENOMEM or why the list cannot be read. */
int ctl_mounts(const char *path, struct ctl_mount **ret, size_t *ret_n);
void ctl_mounts_free(struct ctl_mount *list, size_t n);

/* The text of its .cartonfs/status.json: 0 and a malloc'ed string, -ENOTCONN for a dead mount, -errno. */
int ctl_mount_status(const struct ctl_mount *m, char **ret);

#endif
