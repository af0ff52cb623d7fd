/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drops capabilities and restricts files and system calls before a carton is read, to limit what a
 * bug in a parser can do. SECURITY in cartonfs(7) has the list.
 */
#ifndef FS_SANDBOX_H
#define FS_SANDBOX_H

#include "carton.h"

struct sandbox_helper {
	/*
	 * Lets another process open files for this one (opener.h) that may be replaced while it
	 * runs. The caller keeps both descriptors. 0 or -errno. NULL: there is none.
	 */
	int (*open_for_me)(void *ctx, int listener, int memory);
	void *ctx;
	/* Logs a system call that was denied; in a signal handler (syscalls.h). NULL: to stderr */
	void (*denied)(const char *line);
	const char *input;  /* one more file or directory to read; NULL: none */
	const char *output; /* a directory, in which files of all kinds may be made; NULL: none */
};

/*
 * A carton_confine_fn; its context is a struct sandbox_helper, or NULL. Features that the kernel
 * lacks are logged and left out; other failures are errors. Call it before any thread is started.
 */
int sandbox_enter(void *helper, const struct carton_paths *paths);

/*
 * The carton is open: denies all threads the calls that are not needed any more. 0 or -errno,
 * logged.
 */
int sandbox_opened(bool fetches);

#endif
