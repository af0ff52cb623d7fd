/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of cartonctl. */
#ifndef FS_CTL_H
#define FS_CTL_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "carton.h"
#include "common/exit_status.h"
#include "common/json_writer.h"
#include "common/option_table.h"
#include "process/sandbox.h"

/* The command line, after the command. */
struct args {
	struct option_values values;
	bool given[OPTION_MAX]; /* of the table: it was given */
	char *source;		/* malloc'ed */
	char **paths;
	int n_paths;
	struct sandbox_helper sandbox;
	char *signature; /* what SOURCE.sig has; malloc'ed; or NULL */
	size_t signature_len;
};

/* The output of log messages: stderr or, for the problems that verify finds, stdout. */
struct ctl_log {
	pthread_mutex_t lock;	  /* guards problems, source, opening and the output */
	size_t problems;	  /* errors and warnings; verify leaves out failed attempts */
	bool tried;		  /* an attempt has failed */
	bool collect;		  /* print them as problems, */
	struct json_writer *json; /* as JSON objects; NULL: as text */
	const char *source;	  /* the subject of messages without one; or NULL */
	bool opening;		  /* the carton is not open yet: all messages name the source */
};

/* Sets `source` and `opening`. Any thread may log meanwhile. */
void ctl_log_source(struct ctl_log *log, const char *source, bool opening);

/* A carton_log_fn; its context is a struct ctl_log. */
void ctl_on_log(void *log, enum carton_log_level level, const char *subject, const char *message);

/* Prints a usage error, and where help is. Both return EXIT_USAGE. */
int ctl_usage(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
int ctl_try_help(void);

/* From now on, that is the help of this command; NULL: of all. */
void ctl_help_is_of(const char *command);

/*
 * An argument as messages may show it (carton_source_label()), cut; valid until the next call. One
 * thread.
 */
const char *ctl_shown(const char *arg);

/* Flushes stdout. Returns `status`, or EXIT_BAD if it could not be written. */
int ctl_flush(int status);

/* The status of two parts together: it is EXIT_LATER if nothing else is wrong with either. */
static inline int ctl_both(int a, int b)
{
	return a == EXIT_GOOD || b == EXIT_BAD ? b : a;
}

/*
 * Print `what` and why it failed: a sentence, or an -errno. They return EXIT_BAD, and the second
 * EXIT_LATER where that says so.
 */
int ctl_refuse(const char *what, const char *why);
int ctl_failed(const char *what, int r);

/*
 * Makes room for one more item of `size` bytes in an array that has `n`. Returns the array, which
 * may have moved; NULL: out of memory, and it is unchanged.
 */
void *ctl_grow(void *array, size_t *cap, size_t n, size_t size);

/* A list of nodes. */
struct ctl_files {
	struct carton_node **list;
	size_t n, cap;
	bool no_memory; /* the list is not complete */
};
void ctl_add_file(struct ctl_files *files, struct carton_node *node);

/*
 * "7 files, 383 MiB" that only LINKS has, or "7 files; sizes not known". `bytes`: of those whose
 * size is known; `unsized`: how many others.
 */
void ctl_linked(uint64_t files, uint64_t bytes, uint64_t unsized, char *ret, size_t n);

/* "10 files, 1 symlink", which is not one of the files. Returns `ret`, of 2 * TERM_COUNT. */
char *ctl_count(uint64_t files, uint64_t links, char *ret);

/* "SIGNER, until 2027-03-01"; "not checked" if `by` is "". `ends`: seconds since 1970; 0: never */
#define CTL_SIGNED (CARTON_SIGNER + 32)
void ctl_signed(const char *by, int64_t ends, char ret[CTL_SIGNED]);

/* The last part of a path or URL, or all of it if it ends with a slash. */
const char *ctl_last_part(const char *source);

bool ctl_is_directory(const char *path);

/* Waits until a thread ends, or until its bar is to be drawn again: false, it still runs. */
bool ctl_join(pthread_t thread);

/* The root, once its children are there: 0, or as carton_list(). */
int ctl_root(struct carton *c, struct carton_node **ret);

/*
 * The node at a path of the command line, which may have ./ in front: EXIT_GOOD; else reported,
 * with the path that was perhaps meant.
 */
int ctl_resolve(struct carton *c, const struct args *a, const char *path, struct carton_node **ret);

/* Calls `fn` for all files and symlinks of a directory and below, or for one file. */
typedef void ctl_node_fn(void *ctx, struct carton_node *node);
void ctl_walk(struct carton_node *top, ctl_node_fn *fn, void *ctx);

/* Compares two paths, as strcmp(): a walk comes to the lesser one first. */
int ctl_compare_paths(const struct carton_node *a, const struct carton_node *b);

/* Splits NAME[@VERSION] in place. An exit status. */
int ctl_parse_runner(char *text, struct carton_runner *ret);

/*
 * A carton_progress_fn of commands that write cartons: draws a bar at a terminal. Elsewhere prints
 * a line at each tenth, if the carton is large.
 */
struct ctl_lines {
	const char *label; /* the command */
	unsigned tenth;	   /* shown last */
};
void ctl_show_lines(void *lines, uint64_t done, uint64_t total);

/*
 * From now on an open with these options draws a bar at a terminal while it waits for servers.
 * Elsewhere it prints one line, once that has taken a second.
 */
struct ctl_opening {
	const char *word;    /* before the bar */
	const char *label;   /* the source */
	struct ctl_log *log; /* what it has written makes the line needless */
	double started;	     /* 0: not yet */
	bool told;
};
void ctl_show_opens(struct carton_options *options, struct ctl_opening *opening);

/* ---- commands: each returns an exit status ---- */

/* Commands that read an open carton. */
typedef int ctl_carton_fn(struct carton *c, const struct args *a);
ctl_carton_fn ctl_extract, ctl_fetch, ctl_info, ctl_info_bare, ctl_ls, ctl_push, ctl_tree;
ctl_carton_fn ctl_verify;

/*
 * If `path` leads to a file below a mount of cartonfs: describes the file. If it leads to a
 * directory below the mountpoint: says that info takes no directory. Returns false, and prints
 * nothing, for any other path.
 */
bool ctl_info_mounted(const char *path, const struct args *a, int *ret_status);

/* Makes the directory of ctl_extract(), which the sandbox then allows: 0 or -errno, reported. */
int ctl_extract_prepare(struct args *a);

/* If SOURCE is a mount: logs which files of a hub's repository the mount leaves out. */
void ctl_ls_prepare(const struct args *a);

/* Reads SOURCE.sig, if that is there. 0 or -errno, reported. */
int ctl_push_prepare(struct args *a);

/* The other commands get the `n` words after the command. */
typedef int ctl_words_fn(char **words, int n, const struct args *a);
ctl_words_fn ctl_cache, ctl_diff, ctl_refresh, ctl_status, ctl_stop;
ctl_words_fn ctl_init, ctl_pack, ctl_repack, ctl_link, ctl_embed, ctl_import, ctl_sign;

#endif
