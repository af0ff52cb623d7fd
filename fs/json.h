/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_JSON_H
#define FS_JSON_H

#include <stdio.h>

/* Writes `s` as a JSON string. What is not UTF-8 becomes U+FFFD. */
void json_string(FILE *f, const char *s);

/* The same as the value of a Prometheus label, which has no other escapes than \\, \" and \n. */
void json_label(FILE *f, const char *s);

#endif
