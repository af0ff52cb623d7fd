/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text for a terminal, a log, JSON or a metric: carton_escape() escapes all text that may come from
 * outside.
 */
#ifndef FS_TEXT_H
#define FS_TEXT_H

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

/* Formats a text, escaped and cut to fit. Returns `ret`. */
char *text_format(char *ret, size_t n, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/*
 * Closes a file of open_memstream(), which may leave *text NULL without an error. 0; or -ENOMEM,
 * and *text is freed and NULL.
 */
int text_close(FILE *memory, char **text);

/* Writes a line: the text, escaped, and a newline. Without memory, writes its beginning only. */
void text_line(FILE *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void text_vline(FILE *f, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));

/* The same line, malloc'ed; NULL: out of memory. */
char *text_new_line(const char *fmt, va_list ap) __attribute__((format(printf, 1, 0)));

/* Writes `s` as a JSON string. Invalid UTF-8 becomes U+FFFD. */
void json_string(FILE *f, const char *s);

/* The same as the value of a Prometheus label. */
void json_label(FILE *f, const char *s);

/* Writes a JSON text that another program may have made, with the same meaning and safe to show. */
void json_document(FILE *f, const char *s);

/*
 * Decodes the JSON string at `at`, which may be NULL, into `ret`, as far as it fits. Other
 * characters than ASCII need a locale of UTF-8.
 */
void json_decode(const char *at, char *ret, size_t n);

#endif
