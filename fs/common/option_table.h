/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one table of all options of cartonfs and cartonctl. The parsers of both programs, --help
 * (option_list.h), the completions of shells and the tests read it; only the man pages say more.
 */
#ifndef FS_OPTION_TABLE_H
#define FS_OPTION_TABLE_H

#include <stdbool.h>
#include <stddef.h>

#include "carton.h"

/* When the bytes of a file are verified: the words of verify= in the table; see cartonfs(1). */
enum verify { VERIFY_AUTO, VERIFY_OPEN, VERIFY_MOUNT, VERIFY_BACKGROUND, VERIFY_OFF };

/* The values of all options as they were given; 0 is the default, unless a caller sets another. */
struct option_values {
	struct carton_options carton;
	bool help, version, complete;
	/* of cartonfs */
	unsigned verify; /* enum verify */
	unsigned dates;	 /* enum dates */
	bool foreground, debug, nochunks, noahead, noviews, passthrough, nosandbox, mount_only;
	char *views, *fsname, *error_file;
	unsigned uid, gid, umask;
	unsigned max_read; /* bytes of one READ */
	int mkdir_mode;	   /* of a mountpoint to create if it is missing; -1: create none */
	/* of commands of cartonctl */
	bool json, is_long, nul, tensors, watch, metrics, chunk_index, dereference;
	char *compress, *objects, *name, *runner, *framework, *mount_from;
	char *key, *cert, *passphrase_file, *output;
	unsigned align, jobs;
	unsigned sort, depth, top; /* sort 1: by size; others 0: no limit */
	uint64_t min_size;
	char **urls, **also, **exclude;
};

enum dates {
	DATES_CONTENT,
	DATES_MOUNT,
};

enum option_kind {
	OPTION_FLAG,   /* bool; takes no value */
	OPTION_UNLESS, /* bool; true for the second of two words, false for the first */
	OPTION_CHOICE, /* unsigned: which of the words in `value` */
	OPTION_TEXT,   /* char *, malloc'ed; empty only if `expected` is NULL */
	OPTION_SIZE,   /* uint64_t: bytes, at least 1, with an optional unit */
	OPTION_BYTES,  /* the same, or 0 */
	OPTION_COUNT,  /* unsigned: 1 to max */
	OPTION_POWER,  /* unsigned: a power of two, at most max */
	OPTION_NUMBER, /* unsigned: 0 to max */
	OPTION_OCTAL,  /* unsigned: 0 to max, in octal digits */
	OPTION_MODE,   /* int: 0 to 0777 in octal digits */
	OPTION_LIST,   /* char **, malloc'ed, ends with NULL; each value is added, at most max */
	OPTION_PASSED, /* no field: libfuse or the kernel knows it */
};

struct option_spec {
	/* "cache_dir" is `-o cache_dir`, and `--cache-dir` of cartonctl; "--help" is so in both */
	const char *name; /* NULL ends the table */
	char letter;	  /* -j is the same; 0: none */
	/* who takes it: "cartonfs", "cartonctl" (all commands), or names of commands */
	const char *takers;
	enum option_kind kind;
	size_t offset;	   /* of the field in struct option_values */
	const char *value; /* the words that it may be, "on|off", or what it is, "DIR"; or NULL */
	const char *expected; /* for the error text; NULL: see option_expected() */
	unsigned max;
	const char *help;   /* a few words; NULL: not listed, an old or another name */
	bool rare;	    /* not in the --help of cartonfs, which has no room for it */
	const char *unsaid; /* the value if none is given; NULL: there has to be one */
};

#define OPTION_MAX 128 /* rows */
extern const struct option_spec option_table[];

/* Does `taker` have the option? */
bool option_is_for(const struct option_spec *spec, const char *taker);

/* The option of cartonfs called by the first `n` bytes of `name`, as -o has it; or NULL. */
const struct option_spec *option_find(const char *name, size_t n);

/* The option of cartonfs that is `word` on its command line, "-f" or "--help"; or NULL. */
const struct option_spec *option_find_word(const char *word);

/*
 * Sets the field. `value` is NULL if none was given. 0; -EINVAL for an invalid value; or -ENOMEM.
 */
int option_set(const struct option_spec *spec, struct option_values *values, const char *value);

/* What the value has to be, for the error text. Returns `ret`. */
#define OPTION_EXPECTED 80
const char *option_expected(const struct option_spec *spec, char ret[OPTION_EXPECTED]);

/* The word of an OPTION_CHOICE called `name`. Returns `ret`. */
#define OPTION_WORD 16
const char *option_word(const char *name, unsigned choice, char ret[OPTION_WORD]);

/* Frees the texts. */
void option_finish(struct option_values *values);

#endif
