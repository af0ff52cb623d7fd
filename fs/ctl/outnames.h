/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The names of a carton in the directory that extract writes to. Its file system may take two of
 * them for one (without regard to case, to the form of Unicode, to dots at the end), or keep one
 * under another. It is not asked which kind it is: a name that is there when its file is put there,
 * and that no listing had, exactly so, before the run, is another name of the same carton.
 *
 * Threads: outnames_was_there() and outnames_place() by any; the others while no thread extracts.
 */
#ifndef FS_OUTNAMES_H
#define FS_OUTNAMES_H

#include <pthread.h>

#include "ctl/ctl.h"
#include "ctl/outdir.h"

struct outnames {
	const struct outdir *out;
	pthread_mutex_t lock;	/* guards `taken`, and what is placed */
	struct ctl_files dirs;	/* of the chosen files, parents first */
	struct ctl_files taken; /* whose name is taken for another, or changed */
};

/* Chooses a file. False: it was chosen before. */
bool outnames_choose(struct carton_node *file);

/*
 * Makes the directories of the chosen files, and notes which of all these names are there. 0;
 * -EEXIST: some directories are one to the file system; -ENOMEM or -errno. A directory that cannot
 * be made otherwise is left to those who need it.
 */
int outnames_begin(struct outnames *n, const struct ctl_files *files);
void outnames_finish(struct outnames *n);

/* Was exactly this name there before the run? */
bool outnames_was_there(struct carton_node *file);

/*
 * Renames a file of the temporary directory to the name of `file` in `parent`. -EEXIST: that is
 * another name of the carton; or -errno.
 */
int outnames_place(struct outnames *n, const char *temporary, int parent, struct carton_node *file);

/* Are all names listed as they are? 0, -EEXIST or -errno. */
int outnames_check(struct outnames *n, const struct ctl_files *files);

/* Logs the names that could not be had, and for which other the file system takes them. */
void outnames_report(const struct outnames *n);

#endif
