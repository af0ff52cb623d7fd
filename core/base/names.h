/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names for one line of a message: the first ones, and how many more there are. Zeroed to start
 * with.
 *
 * Threads: one at a time.
 */
#ifndef CARTON_BASE_NAMES_H
#define CARTON_BASE_NAMES_H

#include <stddef.h>

#define NAMES_TEXT 160

struct names {
	char text[NAMES_TEXT]; /* "a, b" */
	size_t shown, n;       /* in the text, in all */
};

void names_add(struct names *names, const char *name);

/* "a, b and 3 more"; call it once, after the last name. Returns names->text. */
const char *names_end(struct names *names);

#endif
