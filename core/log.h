/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One log for the whole process: core reports, the program decides where it goes.
 *
 * core never prints. Every failure is reported here once, where it is understood best, with its
 * subject (a path in the carton, a URL, a file) and one sentence: what was expected, what was found
 * and, if the user can do something, what to do.
 */
#ifndef CARTON_LOG_H
#define CARTON_LOG_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

enum carton_log_level {
	CARTON_LOG_ERROR,   /* something a user asked for does not work */
	CARTON_LOG_WARNING, /* it works, but not as the carton says */
	CARTON_LOG_NOTICE,  /* it works, but a server, the cache or the settings do not help */
	CARTON_LOG_INFO,
	CARTON_LOG_DEBUG
};

/*
 * `subject` and `message` are already safe to print: carton_escape() has escaped what may come from
 * the carton. `subject` may be NULL. Called from any thread. Options are called as in
 * carton_options: "the option cache_dir", or "cache_dir=".
 */
typedef void carton_log_fn(void *ctx, enum carton_log_level level, const char *subject,
			   const char *message);

/* Sends all that follows to `fn`; NULL drops it (the default). Set it before threads start. */
void carton_log_set(carton_log_fn *fn, void *ctx);

/*
 * For a carton_log_fn while it is called: does the message tell that one attempt of several has
 * failed? The next attempt may still succeed. If none does, the request itself fails.
 */
bool carton_log_is_attempt(void);

/* Reports one thing. `subject` may be NULL and may be hostile text. errno is preserved. */
void carton_log(enum carton_log_level level, const char *subject, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/*
 * Why bytes could not be written, -errno as text: as strerror(), but -EFBIG is the limit of the
 * size of files, or that of the file system. Never of another failure with -EFBIG.
 */
const char *carton_write_error(int error);

/* ---- text from outside, as it may be shown ---- */

enum carton_escape {
	CARTON_ESCAPE_TEXT, /* for people, at a terminal or in a log: \xNN for each byte */
	CARTON_ESCAPE_ALL,  /* the same of every character */
	CARTON_ESCAPE_JSON, /* in quotes of JSON: \", \\, \uNNNN; U+FFFD for what is not UTF-8 */
	/* in quotes of a Prometheus label, which has no \u: \", \\, \n and \\xNN */
	CARTON_ESCAPE_LABEL
};

#define CARTON_ESCAPE_SIZE 24 /* of the longest, and a NUL */

/*
 * Writes the character at the start of [s, s+n), n > 0, escaped if a terminal would obey it, if it
 * reorders or ends a line, if it is invisible, or if it is not UTF-8. Returns how many bytes of `s`
 * it took. The result is unambiguous for text without backslashes, such as a path in a carton. Any
 * thread.
 */
size_t carton_escape(enum carton_escape style, const char *s, size_t n,
		     char ret[CARTON_ESCAPE_SIZE]);

/*
 * `s` as a word of a command line, in quotes if it needs them; cut to fit. It is to be escaped yet.
 * Returns `ret`.
 */
char *carton_shell_word(const char *s, char *ret, size_t n);

/*
 * Gives the calling process the name that ps(1) shows, in place of its arguments, and a short one
 * of at most 15 characters. For a process that was forked and does not use its arguments any more;
 * also where there were threads before.
 */
void carton_rename_process(const char *shown, const char *name);

/*
 * Is `a` perhaps a typo of `b`? True if it takes at most 2 edits, fewer than half of the length of
 * `b`.
 */
bool carton_similar(const char *a, const char *b);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop

#endif
