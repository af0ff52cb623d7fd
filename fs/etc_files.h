/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens the files that names are resolved with for a confined process, which may not: the kernel
 * tells of each file that it opens (seccomp_unotify(2)), those listed are opened here, and for all
 * others its own rules decide.
 */
#ifndef FS_ETC_FILES_H
#define FS_ETC_FILES_H

/* Answers one file, once `listener` is readable; `memory` is /proc/PID/mem of the confined process. */
void etc_files_answer(int listener, int memory);

#endif
