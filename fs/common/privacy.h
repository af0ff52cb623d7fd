/* SPDX-License-Identifier: Apache-2.0 */
/* Hides secrets from other processes: passwords in URLs, credentials in memory. */
#ifndef FS_PRIVACY_H
#define FS_PRIVACY_H

/*
 * Overwrites an argument of main(), because every user can read /proc/PID/cmdline: replaces a URL,
 * and each value in a list of options, by its carton_source_label(). The argument never becomes
 * longer. The caller copies it before.
 */
void privacy_hide(char *arg);

/* Turns off core dumps of this process and of its children. */
void privacy_no_core_dumps(void);

#endif
