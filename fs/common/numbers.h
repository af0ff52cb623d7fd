/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers as people write and read them. A parse function returns false, with *ret untouched, for
 * anything else.
 */
#ifndef FS_NUMBERS_H
#define FS_NUMBERS_H

#include <stdbool.h>
#include <stdint.h>

/* A number from 0 to `max`: digits only, no sign and no spaces. */
bool parse_number(const char *text, int base, unsigned long max, unsigned long *ret);

/* Bytes, with an optional binary unit: "500M", "20G", "0". */
bool parse_size(const char *text, uint64_t *ret);

/* Bytes with a binary unit: "968 B", "1.4 MiB". Returns `ret`. */
#define SIZE_TEXT 16
char *format_size(uint64_t bytes, char ret[SIZE_TEXT]);

/* "0.4 s", "31 s", "4 min 12 s", "2 h 5 min". Returns `ret`. */
#define DURATION_TEXT 32
char *format_duration(double seconds, char ret[DURATION_TEXT]);

#endif
