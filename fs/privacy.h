/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hides secrets from other processes: passwords in URLs, credentials in memory.
 */
#ifndef FS_PRIVACY_H
#define FS_PRIVACY_H

/*
 * Overwrites an argument of main() that is a URL with carton_source_label(), because every user can
 * read /proc/PID/cmdline. Copy the URL before.
 */
void privacy_hide_url(char *arg);

/* Turns off core dumps of this process and of its children. */
void privacy_no_core_dumps(void);

#endif
