/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The system calls that a confined process may make, each with the feature and the phases that need
 * it, and the arguments that it may have. syscalls.h says what happens to all other calls.
 */
#ifndef FS_SYSCALL_TABLE_H
#define FS_SYSCALL_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "process/syscalls.h"

/* Ends the process, instead of an errno. */
#define DENIED_ENDS 0

enum syscall_phase {
	PHASE_OPEN = 1,	 /* until the carton is open */
	PHASE_FETCH = 2, /* the carton is open, and content may have to be fetched */
	PHASE_LOCAL = 4, /* the carton is open, and all content is local */
	PHASE_ANY = 7,
};

/* A rule for one argument: it must be `is` in the bits of `mask`. */
struct syscall_argument {
	unsigned index;
	uint64_t mask, is;
};

struct syscall_row {
	const char *names;    /* separated by single spaces */
	unsigned features;    /* any of enum syscall_feature; 0: all processes need it */
	unsigned phases;      /* of enum syscall_phase; the same in all rows of a call */
	int denied;	      /* the errno for other arguments or phases, or DENIED_ENDS */
	unsigned n_arguments; /* all of these must be right */
	struct syscall_argument arguments[2];
	const uint32_t *values; /* NULL, or what the int in argument `value_index` may be */
	unsigned n_values, value_index;
};

extern const struct syscall_row syscall_table[];
extern const size_t syscall_table_size;

/* Of system calls that are not in the table, these end the process; others fail with ENOSYS. */
extern const char *const syscalls_that_end[];
extern const size_t n_syscalls_that_end;

/* The names of this processor's calls by number; NULL: it has none. Made by the Makefile. */
extern const char *const syscall_names[];
extern const size_t n_syscall_names;

/* The next name of a row, of which *at is the rest; its length, or 0 at the end. */
size_t syscall_name_next(const char **at);

/*
 * The result of a call that the filters do not allow: an errno, or DENIED_ENDS. Safe in a signal
 * handler.
 */
int syscall_denied(const char *name);

#endif
