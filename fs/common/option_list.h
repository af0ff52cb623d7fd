/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The options of the table (option_table.h), listed for people and for the completions of shells.
 */
#ifndef FS_OPTION_LIST_H
#define FS_OPTION_LIST_H

#include <stdio.h>

#include "common/option_table.h"

/* The name as `taker` has it: "cache_dir" behind -o, "--cache-dir", "-0". */
#define OPTION_NAME 32
void option_name(const struct option_spec *spec, const char *taker, char ret[OPTION_NAME]);

/*
 * Copies a message of the library to `ret`, cut to `n` bytes, and spells options as cartonctl does:
 * "cache_dir=" becomes "--cache-dir=". A word counts as an option if it is the name of one, and
 * stands behind "option" or before "=", or has a "_". Returns `ret`.
 */
char *option_spell(const char *message, char *ret, size_t n);

/*
 * The listed option of `taker` that the first `n` bytes of `typed` are perhaps a typo of, or NULL.
 * Dashes before it do not count, and - is _.
 */
const struct option_spec *option_near(const char *typed, size_t n, const char *taker);

/* The columns of a terminal that --help is for. */
#define OPTION_COLUMNS 80

/*
 * Prints the options of `taker`, each with a few words: those of the command line (`line`), or the
 * others. Two to a line where they fit. Those of cartonfs without the rare ones. Returns how many.
 */
unsigned option_put_help(FILE *f, const char *taker, bool line);

/*
 * Prints what a shell may complete for `taker`, a word and what it means with a tab between them:
 * "offline", "verify=auto", or "cache_dir=DIR" where the user has to go on. Not what `without`, if
 * that is not NULL, takes as well.
 */
void option_put_words(FILE *f, const char *taker, const char *without);

#endif
