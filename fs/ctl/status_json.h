/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads status.json, which has one member, or one element of a list, a line, as fs/mount/status.c
 * writes it. A result points into the text.
 */
#ifndef FS_CTL_STATUS_JSON_H
#define FS_CTL_STATUS_JSON_H

#include <stdint.h>

/* The value of a member, or NULL. */
const char *json_member(const char *json, const char *key);

/* The same as a number; 0: there is none. */
uint64_t json_number_of(const char *json, const char *key);

/* The value of a member of an element of a list, or NULL. */
const char *json_in_element(const char *element, const char *key);

/*
 * Returns the next element of a list of objects, malloc'ed, and moves *at behind it. For the first
 * element, *at is the list, as json_member() gives it. NULL: the list has ended, or out of memory.
 */
char *json_next_element(const char **at);

#endif
