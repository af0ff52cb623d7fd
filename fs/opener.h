/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens resolver files such as /etc/resolv.conf for a confined process. The kernel reports each open(2) of
 * that process (seccomp_unotify(2)). Listed files are opened here; for all others its own rules apply.
 */
#ifndef FS_OPENER_H
#define FS_OPENER_H

#include <stdbool.h>

/* Is it a listener, as opener_answer() needs it? */
bool opener_is_listener(int fd);

/* Answers one open(2), when `listener` is readable; `memory` is /proc/PID/mem of the confined process. */
void opener_answer(int listener, int memory);

#endif
