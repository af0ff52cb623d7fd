/* SPDX-License-Identifier: Apache-2.0 */
/* The exit status of cartonfs. */
#ifndef FS_EXIT_STATUS_H
#define FS_EXIT_STATUS_H

/* The same as those of mount(8), and one more. */
enum exit_status {
	EXIT_OK = 0,
	EXIT_USAGE = 1,
	EXIT_SYSTEM = 2,
	EXIT_MOUNT = 32,
	EXIT_LATER = 75, /* a server cannot be reached now (EX_TEMPFAIL) */
};

#endif
