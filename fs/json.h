/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_JSON_H
#define FS_JSON_H

#include <stdio.h>

/* Writes `s` as a JSON string. */
void json_string(FILE *f, const char *s);

#endif
