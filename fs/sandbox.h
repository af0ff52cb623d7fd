/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the process gives up before it reads a carton, so that a fault in a parser harms nothing
 * else: capabilities, files, system calls. SECURITY in cartonfs(1) has the list.
 */
#ifndef FS_SANDBOX_H
#define FS_SANDBOX_H

#include "carton.h"

/*
 * Opens files for this process that are replaced while it runs: by etc_files.h, in another process.
 * Both descriptors stay the caller's. 0 or -errno.
 */
struct sandbox_helper {
	int (*open_for_me)(void *ctx, int listener, int memory);
	void *ctx;
};

/*
 * A carton_confine_fn; its context is a struct sandbox_helper, or NULL. What the kernel does not have is logged and left out; whatever else fails is an
 * error. Before any thread is started.
 */
int sandbox_enter(void *helper, const struct carton_paths *paths);

/* Takes the network away, from all threads: nothing is to be fetched. 0 or -errno, logged. */
int sandbox_cut_network(void);

#endif
