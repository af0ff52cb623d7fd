/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_TEXT_H
#define FS_TEXT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Decodes the UTF-8 character at `s`, which may be its NUL. Returns its length; 0: it is none. */
size_t utf8_decode(const char *s, uint32_t *ret);

/* Writes `s` as a JSON string. What is not UTF-8 becomes U+FFFD. */
void json_string(FILE *f, const char *s);

/* The same as the value of a Prometheus label, which has no other escapes than \\, \" and \n. */
void json_label(FILE *f, const char *s);

#endif
