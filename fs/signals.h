/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SIGINT, SIGTERM and SIGHUP end the loop that serves requests. libfuse's own handlers would do, but for a
 * signal that comes after its main thread has looked whether the loop is over, and before it waits in
 * sem_wait(): nothing would wake it. These handlers repeat the signal until the loop has ended.
 *
 * One session per process; main thread.
 */
#ifndef CARTONFS_SIGNALS_H
#define CARTONFS_SIGNALS_H

struct fuse_session;

/* Also ignores SIGPIPE. A signal that was ignored before stays so. 0 or -errno, not logged. */
int signals_catch(struct fuse_session *se);

/* The loop is over: from now on the signals do nothing, so that they do not disturb the unmount. */
void signals_loop_ended(void);

#endif
