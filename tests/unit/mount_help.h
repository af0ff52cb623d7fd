/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A mount namespace of the test's own.
 */
#ifndef TESTS_MOUNT_HELP_H
#define TESTS_MOUNT_HELP_H

#include <mntent.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>

/*
 * Enters a new one (and what else `flags` of unshare(2) say); nothing that is mounted in it is seen
 * outside. The FUSE mounts of others are not in it: as long as they were, no daemon of theirs would
 * notice that it was unmounted. False: not allowed.
 */
static inline bool own_mounts(int flags)
{
	struct mntent *m;
	FILE *f;

	if (unshare(flags | CLONE_NEWNS) < 0)
		return false;
	f = setmntent("/proc/self/mounts", "r");
	if (!f || mount("none", "/", "none", MS_REC | MS_PRIVATE, NULL) < 0) {
		if (f)
			endmntent(f);
		return false;
	}
	while ((m = getmntent(f)))
		if (strncmp(m->mnt_type, "fuse", 4) == 0)
			umount2(m->mnt_dir, MNT_DETACH);
	endmntent(f);
	return true;
}

#endif
