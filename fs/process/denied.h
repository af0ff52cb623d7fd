/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The signal handler for system calls that the filters of syscalls.h trap. The kernel has not
 * executed the call: the handler logs it, and ends the process or makes the call fail.
 */
#ifndef FS_DENIED_H
#define FS_DENIED_H

#include "process/syscalls.h"

/*
 * The processors whose registers the handler knows. On others, a denied call fails without a line
 * of the log.
 */
#if defined(__x86_64__) || defined(__aarch64__)
#define DENIED_TRAPS 1
#endif

/* Before the first filter, which forbids to replace the handler. 0 or -errno. */
int denied_catch(syscalls_report_fn *report);

#endif
