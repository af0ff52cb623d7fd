/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a mount tells its user: messages of the library and of libfuse go to stderr (for the journal
 * with their priority), to syslog once the daemon has left its terminal, to error_file, to the
 * status of the unit, and to status.json.
 */
#ifndef FS_REPORT_H
#define FS_REPORT_H

#include <pthread.h>
#include <stdatomic.h>

#include "mount/status.h"
#include "process/mounter.h"

struct report {
	const struct options *options;
	struct status *status;
	const struct mounter *mounter; /* writes to syslog */
	atomic_bool opening;	       /* messages without a subject are about the carton */
	double began;		       /* progress_now() when that was set */
	atomic_bool detached;	       /* the daemon has closed its stderr */
	bool journal;		       /* stderr goes to the journal */
	pthread_mutex_t lock;	       /* guards `held` */
	/*
	 * The last message of an open, which may be why nothing is mounted: then one line says
	 * both. Or NULL
	 */
	struct held *held;
};

/*
 * Begins to take the messages of this process; the first three fields are set. False, reported:
 * error_file cannot be opened, or another user has made it.
 */
bool report_begin(struct report *t);

/*
 * The open begins: from now on, the last message is held. A progress callback, report_progress(),
 * writes it after a second all the same, where no bar shows that the open goes on.
 */
void report_opening(struct report *t);
void report_progress(void *report, uint64_t done, uint64_t total);

/*
 * The carton is open, or cannot be opened, so that messages without a subject are not about it any
 * more. Before the carton is closed.
 */
void report_opened(struct report *t, bool good);

/*
 * Says that nothing is mounted, in one line, and why: the failure that was held, or else what is
 * given, without the carton's label and a colon before it.
 */
void report_not_mounted(struct report *t, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* Warns of what the mount covers: no error of the mount, so its status does not count it. */
void report_covered(struct report *t, const char *message);

/*
 * Starts a thread for stderr and one for error_file, so that nobody else has to wait for a pipe
 * that is not read, or a disk that is stuck. Call it once the process is confined: a thread
 * that is older would not be. If a thread cannot be started, lines are written as before.
 */
void report_serving(struct report *t);

/*
 * Writes the exit status to error_file, for supervisors that do not see it. Returns the status. The
 * process has to end then; what is logged from now on is lost.
 */
int report_status(struct report *t, int status);

/* Reports a system call that was denied, as a line of the log. Safe in a signal handler. */
void report_denied(const char *line);

#endif
