/* SPDX-License-Identifier: Apache-2.0 */
/* A bar of progress at a terminal, drawn the same way by both programs. */
#ifndef FS_BAR_H
#define FS_BAR_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Writes a bar of `width` columns, filled for `part` of `whole`; `utf8`: in eighths of a column. */
void bar_put(FILE *f, uint64_t part, uint64_t whole, unsigned width, bool utf8);

#endif
