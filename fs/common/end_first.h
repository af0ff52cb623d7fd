/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_END_FIRST_H
#define FS_END_FIRST_H

/*
 * The kernel ignores signals to process 1, that of a container, which has no handler for them:
 * makes those end it that end other processes. Does nothing in another process, and with signals
 * that are ignored.
 */
void signals_end_first(void);

/* Ends process 1 with the status of that signal. Returns in another process. In a handler. */
void signal_ends_first(int number);

#endif
