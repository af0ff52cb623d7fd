/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_END_FIRST_H
#define FS_END_FIRST_H

/*
 * Lets signals that end other processes end process 1, too: it may be that of a container, and the
 * kernel drops a signal for which process 1 has no handler. Ignored signals stay ignored. Does
 * nothing in another process.
 */
void signals_end_first(void);

/*
 * Ends process 1 with the exit status of that signal. Does nothing in another process. For signal
 * handlers.
 */
void signal_ends_first(int number);

#endif
