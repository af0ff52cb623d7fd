/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hides secrets from other processes: passwords in URLs, credentials in memory.
 */
#ifndef FS_PRIVACY_H
#define FS_PRIVACY_H

/*
 * Overwrites an argument of main(), because every user can read /proc/PID/cmdline: a URL with its
 * carton_source_label(), and so each value in a list of options. It may become shorter, or be cut. Copy it before.
 */
void privacy_hide(char *arg);

/* Turns off core dumps of this process and of its children. */
void privacy_no_core_dumps(void);

#endif
