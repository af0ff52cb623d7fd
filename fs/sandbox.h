/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the process gives up before it reads a carton, so that a fault in a parser harms nothing
 * else: capabilities, files, system calls. SECURITY in cartonfs(1) has the list.
 */
#ifndef FS_SANDBOX_H
#define FS_SANDBOX_H

#include "carton.h"

/*
 * A carton_confine_fn. What the kernel does not have is logged and left out; whatever else fails is an
 * error. Before any thread is started.
 */
int sandbox_enter(const struct carton_paths *paths);

/* Takes the network away, from all threads: nothing is to be fetched. 0 or -errno, logged. */
int sandbox_cut_network(void);

#endif
