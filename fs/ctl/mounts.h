/* SPDX-License-Identifier: Apache-2.0 */
/* The mounts of cartonfs that this user has made; from /proc/self/mountinfo. */
#ifndef FS_CTL_MOUNTS_H
#define FS_CTL_MOUNTS_H

#include <stdbool.h>
#include <stddef.h>

#include "ctl/ask.h"

struct ctl_mount {
	char *path;
	char device[32]; /* of the file system, as "0:57" */
	bool own;	 /* this user has made it */
};

/*
 * Lists the mounts of this user, or the one at `path`, of any user: 0, -ENOMEM or the -errno of
 * reading the list.
 */
int ctl_mounts(const char *path, struct ctl_mount **ret, size_t *ret_n);

void ctl_mounts_free(struct ctl_mount *list, size_t n);

/*
 * Returns the mountpoint of the cartonfs mount that contains `path`, malloc'ed; NULL: none does, or
 * the path is the mountpoint. Takes at most CTL_ANSWER_MS.
 */
char *ctl_mount_above(const char *path);

/* Reports that `path` does not exist, is in a mount of cartonfs, or in none. Returns EXIT_BAD. */
int ctl_refuse_no_mount(const char *path);

/*
 * Asks each mount for a file of its .cartonfs/. ret[i] gets the text, or `r`: -ETIMEDOUT, -ENOTCONN
 * for a dead mount, -errno. Takes at most CTL_ANSWER_MS.
 */
enum ctl_mount_file { CTL_STATUS, CTL_METRICS };
void ctl_mounts_ask(const struct ctl_mount *list, size_t n, enum ctl_mount_file file,
		    struct ctl_question *ret);

/* Prints the metrics of all these mounts, see metrics.c. Returns an exit status. */
int ctl_status_metrics(const struct ctl_mount *list, size_t n);

#endif
