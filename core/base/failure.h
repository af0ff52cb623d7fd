/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why a call has failed: the text that carton_error() shows, one for each thread.
 *
 * log.c sets it with each error. Functions of carton.h begin without a text, and so do jobs of
 * workers. Code that passes an error to another thread passes the text as well.
 */
#ifndef CARTON_BASE_FAILURE_H
#define CARTON_BASE_FAILURE_H

/* From now on the thread has no text. */
void failure_forget(void);

/* Sets the text, cut to fit; `text` is safe to print. NULL: leaves the text as it is. */
void failure_set(const char *text);

/* A copy of the text, which the caller frees; NULL: there is none, or no memory. */
char *failure_copy(void);

/* Replaces *text (NULL, or on the heap) with a copy of the text, if the thread has one. */
void failure_keep(char **text);

#endif
