/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of cartonctl share.
 */
#ifndef FS_CTL_H
#define FS_CTL_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "carton.h"

enum { EXIT_GOOD = 0, EXIT_BAD = 1, EXIT_WRONG_USAGE = 2 };

/* The command line, behind the command. */
struct args {
	struct carton_options carton;
	const char *source;
	char **paths;
	int n_paths;
	bool json;
};

/* The log of a command: to stderr, or counted and shown as the problems that verify finds. */
struct ctl_log {
	pthread_mutex_t lock;
	size_t problems;
	bool collect, json;
};

/* A carton_log_fn; its context is a struct ctl_log. */
void ctl_on_log(void *log, enum carton_log_level level, const char *subject, const char *message);

/* Writes `s` to stdout as a JSON string. */
void ctl_print_json(const char *s);

/* Says that `what` (and `value`, unless NULL) is wrong with the command line: EXIT_WRONG_USAGE. */
int ctl_usage(const char *what, const char *value);

/* `status`, or EXIT_BAD when stdout could not be written. */
int ctl_finish(int status);

/* `cartonctl cache …`: `words` are the `n` words behind it. */
int ctl_cache(char **words, int n, const struct args *a);

#endif
