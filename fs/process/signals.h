/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SIGINT, SIGTERM and SIGHUP end the loop that serves requests. With libfuse's own handlers, a
 * signal is lost if it comes after the main thread has checked whether the loop has ended, but
 * before it waits in sem_wait(). These handlers repeat the signal until the loop has ended.
 *
 * One session per process; main thread.
 */
#ifndef CARTONFS_SIGNALS_H
#define CARTONFS_SIGNALS_H

#include <stdbool.h>

struct fuse_session;

/* Also ignores SIGPIPE. A signal that was ignored before stays ignored. 0 or -errno, not logged. */
int signals_catch(struct fuse_session *se);

/* Has one of these signals come? */
bool signals_came(void);

/*
 * The loop has ended: from now on these signals are ignored, so that they do not disturb the
 * unmount.
 */
void signals_loop_ended(void);

#endif
