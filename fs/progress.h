/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A progress bar on stderr for what takes long; nothing where stderr is no terminal.
 */
#ifndef FS_PROGRESS_H
#define FS_PROGRESS_H

#include <stdint.h>

/* A carton_progress_fn; `ctx` is the word in front of the bar. Shows after the first second. */
void progress_show(void *ctx, uint64_t done, uint64_t total);

/* Removes the bar, to write something else or because it is over. */
void progress_clear(void);

#endif
