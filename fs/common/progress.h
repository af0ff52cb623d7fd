/* SPDX-License-Identifier: Apache-2.0 */
/* A progress bar on stderr, if that is a terminal. Used from several threads. */
#ifndef FS_PROGRESS_H
#define FS_PROGRESS_H

#include <stdint.h>

/* A carton_progress_fn; `ctx` is the label before the bar. Nothing is shown in the first second. */
void progress_show(void *ctx, uint64_t done, uint64_t total);

/* Erases the bar: before other output, and at the end. */
void progress_clear(void);

#endif
