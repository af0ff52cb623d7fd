/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens resolver files such as /etc/resolv.conf for a confined process. The kernel reports each open(2) of
 * that process (seccomp_unotify(2)). Listed files are opened here; for all others its own rules apply.
 */
#ifndef FS_ETC_FILES_H
#define FS_ETC_FILES_H

#include <stdbool.h>

/* Is it a listener, as etc_files_answer() needs it? */
bool etc_files_is_listener(int fd);

/* Answers one open(2), when `listener` is readable; `memory` is /proc/PID/mem of the confined process. */
void etc_files_answer(int listener, int memory);

#endif
