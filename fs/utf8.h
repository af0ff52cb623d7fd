/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_UTF8_H
#define FS_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Decodes the UTF-8 character at `s`, which may be its NUL. Returns its length; 0: it is none. */
size_t utf8_decode(const char *s, uint32_t *ret);

#endif
