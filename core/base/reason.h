/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why an input was refused: a text that a parser returns together with the -errno.
 *
 * A parser sets it where it finds the fault and logs nothing; its caller, which knows the file,
 * logs it.
 */
#ifndef CARTON_BASE_REASON_H
#define CARTON_BASE_REASON_H

#include <stddef.h>

struct reason {
	size_t line;	/* from 1; 0: not about a line */
	char text[256]; /* one sentence, may quote hostile text; "": the -errno says why */
};

/* Sets the text, cut to fit, and returns `r`. NULL-safe. */
int reason_set(struct reason *reason, int r, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

#endif
