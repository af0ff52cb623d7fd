/* SPDX-License-Identifier: Apache-2.0 */
/* What `cartonctl verify` prints, and its exit status. One thread. */
#ifndef FS_CTL_VERIFY_H
#define FS_CTL_VERIFY_H

#include "ctl/ctl.h"
#include "ctl/options.h"

/* The start of the output, before the carton is opened; `json`: NULL for text. */
void verify_begin(const struct args *a, struct json_writer *json);

/* Its end: the sum, or the end of the JSON object. `c`: NULL: not open. Returns the exit status. */
int verify_end(struct carton *c, const struct args *a, const struct ctl_log *log, int status);

/* The exit status where the carton could not be opened because of `error`, -errno. */
int verify_status(int error);

/*
 * Runs the command for a->source and then each of a->paths, each in a process of its own. Returns
 * the worst exit status.
 */
int verify_several(const struct ctl_command *command, struct args *a,
		   int (*run)(const struct ctl_command *, struct args *));

#endif
