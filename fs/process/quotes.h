/* SPDX-License-Identifier: Apache-2.0 */
/* Mount options whose values are in double quotes, as in mount(8) and fstab(5). */
#ifndef FS_QUOTES_H
#define FS_QUOTES_H

/*
 * Translates options, perhaps behind "-o", for libfuse, which knows no quotes: NAME="VALUE" becomes
 * NAME=VALUE, with a backslash before each comma in the value. Options of SELinux keep the quotes,
 * as the kernel reads them. Returns a malloc'ed copy; NULL: out of memory.
 */
char *quotes_remove(const char *options);

#endif
