/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_END_FIRST_H
#define FS_END_FIRST_H

/*
 * The start of a program. From now on a write beyond the limit of the size of files (ulimit -f)
 * fails, instead of ending the process.
 *
 * In process 1, lets signals that end other processes end it, too: it may be that of a container,
 * and the kernel drops a signal for which process 1 has no handler. Ignored signals stay ignored.
 */
void signals_begin(void);

/*
 * Ends process 1 with the exit status of that signal. Does nothing in another process. For signal
 * handlers.
 */
void signal_ends_first(int number);

#endif
