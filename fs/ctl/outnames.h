/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The names of a carton in the directory that extract writes to. Its file system may take two names
 * for one (without regard to case, to the form of Unicode, to dots at the end), or change a name.
 * Nothing asks of which kind the file system is. Instead, the directories are listed before the
 * run: a name that is found when its file is put there, but was not listed exactly so, is taken for
 * another name of the carton.
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
	struct ctl_files taken; /* files whose names are taken for others, or changed */
};

/* Chooses a file to be extracted. False: it was chosen before. */
bool outnames_choose(struct carton_node *file);

/*
 * Makes the directories of the chosen files, and notes which names of the carton are in them. 0;
 * -EEXIST: the file system takes some directories for one; or -errno. A directory that cannot be
 * made for another reason is no error: its files will report the reason.
 */
int outnames_begin(struct outnames *n, const struct ctl_files *files);
void outnames_finish(struct outnames *n);

/* Was exactly this name there before the run? */
bool outnames_was_there(struct carton_node *file);

/*
 * Renames a file of the temporary directory to the name of `file` in `parent`. 0; -EEXIST: the file
 * system takes this name for another one of the carton; or -errno.
 */
int outnames_place(struct outnames *n, const char *temporary, int parent, struct carton_node *file);

/* Compares listings with the names of all files. 0; -EEXIST: some names are changed; or -errno. */
int outnames_check(struct outnames *n, const struct ctl_files *files);

/* Logs the names in `taken`, each with the other name that the file system takes it for. */
void outnames_report(const struct outnames *n);

#endif
