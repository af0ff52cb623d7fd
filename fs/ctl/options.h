/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of cartonctl, and its --help. */
#ifndef FS_CTL_OPTIONS_H
#define FS_CTL_OPTIONS_H

#include "ctl/ctl.h"

struct ctl_command {
	const char *name;
	const char *args;   /* of the command, for --help; alternatives have a | between them */
	const char *help;   /* a few words */
	ctl_carton_fn *run; /* gets an open carton, and min_paths to max_paths (-1: any) paths */
	ctl_words_fn *run_words; /* or the words after the command */
	int min_paths, max_paths;
	bool writes;	     /* files, as the user who runs it */
	bool opens_none;     /* no carton: most options of all commands have no effect */
	const char *page;    /* the man page, if it is not cartonctl(1) */
	const char *example; /* of arguments; NULL: the first line of --help names the command */
};

const struct ctl_command *ctl_find_command(const struct ctl_command *commands, const char *name);

/* Is `word` one of the alternatives of its arguments, as gc is of cache? */
bool ctl_has_alternative(const struct ctl_command *command, const char *word);

/* --help of a command, or of all (NULL), and --version. */
void ctl_put_help(const struct ctl_command *commands, const struct ctl_command *command);
void ctl_put_version(void);

/*
 * Sets the options of argv, and moves the other words behind them, from argv[optind] on. EXIT_GOOD;
 * or EXIT_USAGE, reported. Exits if the command line asks for help and the like. `commands` ends
 * with one that has no name.
 */
int ctl_parse(int argc, char **argv, const struct ctl_command *commands, struct args *a);

/* Is there an option that the command does not have? EXIT_USAGE, reported, or EXIT_GOOD. */
int ctl_check_options(const struct ctl_command *command, const struct args *a);

#endif
