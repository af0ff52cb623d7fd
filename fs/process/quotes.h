/* SPDX-License-Identifier: Apache-2.0 */
/* Values of mount options in double quotes, as mount(8) and fstab(5) have them. */
#ifndef FS_QUOTES_H
#define FS_QUOTES_H

/*
 * Copies options for libfuse: NAME="VALUE", in which a comma is a part of the value, becomes
 * NAME=VALUE with a backslash before each comma. Options of the kernel keep their quotes.
 * Malloc'ed; NULL: out of memory.
 */
char *quotes_remove(const char *options);

#endif
