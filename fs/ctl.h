/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the files of cartonctl.
 */
#ifndef FS_CTL_H
#define FS_CTL_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "carton.h"

/* EXIT_BAD: the command failed or found problems. */
enum { EXIT_GOOD = 0, EXIT_BAD = 1, EXIT_USAGE = 1 };

/* The command line, after the command. */
struct args {
	struct carton_options carton;
	char *source; /* malloc'ed */
	char **paths;
	int n_paths;
	bool json;
};

/* Where log messages go: to stderr or, as the problems that verify finds, to stdout. */
struct ctl_log {
	pthread_mutex_t lock; /* guards `problems` and the output: any thread may log */
	size_t problems;      /* errors and warnings so far */
	bool collect, json;   /* print them as problems, as JSON objects */
};

/* A carton_log_fn; its context is a struct ctl_log. */
void ctl_on_log(void *log, enum carton_log_level level, const char *subject, const char *message);

/* Writes `s` to stdout as a JSON string. */
void ctl_print_json(const char *s);

/* Prints a usage error, and where help is. Both return EXIT_USAGE. */
int ctl_usage(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
int ctl_try_help(void);

/* Flushes stdout. Returns `status`, or EXIT_BAD if it could not be written. */
int ctl_finish(int status);

/* `cartonctl cache …`: runs the command in `words`, of which there are `n`. An exit status. */
int ctl_cache(char **words, int n, const struct args *a);

#endif
