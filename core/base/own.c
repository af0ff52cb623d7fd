/* SPDX-License-Identifier: Apache-2.0 */
#include "base/own.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int own_check(int fd, bool root, char ret_why[OWN_WHY])
{
	struct stat st;
	int r = fstat(fd, &st) < 0 ? -errno : 0;

	if (r < 0) {
		snprintf(ret_why, OWN_WHY, "cannot be examined: %s", strerror(-r));
		return r;
	}
	if (st.st_uid != geteuid() && !(root && st.st_uid == 0)) {
		snprintf(ret_why, OWN_WHY, "belongs to uid %u, not to uid %u of this process",
			 (unsigned)st.st_uid, (unsigned)geteuid());
		return -EPERM;
	}
	if (st.st_mode & (S_IWGRP | S_IWOTH)) {
		snprintf(ret_why, OWN_WHY, "has mode %04o, so others may write to it",
			 (unsigned)(st.st_mode & 07777));
		return -EPERM;
	}
	return 0;
}
