/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers that people write on a command line.
 */
#ifndef FS_NUMBERS_H
#define FS_NUMBERS_H

#include <stdbool.h>
#include <stdint.h>

/* A whole number from 0 to `max`, with nothing around it. False, and *ret untouched: it is none. */
bool parse_number(const char *text, int base, unsigned long max, unsigned long *ret);

/* The same from 1 on. */
bool parse_count(const char *text, unsigned max, unsigned *ret);

/* Bytes, with an optional binary unit: "500M", "20G", "0". */
bool parse_size(const char *text, uint64_t *ret);

#endif
