/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One log for the whole process: core reports, the program decides where it goes.
 *
 * core never prints. Every failure is reported here once, where it is understood best, with the
 * thing it is about (`subject`: a path in the carton, a URL, a file) and one sentence that says
 * what was expected, what was found and, where there is something to do, what to do.
 */
#ifndef CARTON_LOG_H
#define CARTON_LOG_H

#include <stdarg.h>

#pragma GCC visibility push(default)

enum carton_log_level {
	CARTON_LOG_ERROR,   /* something a user asked for does not work */
	CARTON_LOG_WARNING, /* it works, but not as the carton says */
	CARTON_LOG_INFO,
	CARTON_LOG_DEBUG,
};

/*
 * `subject` and `message` are already safe to print: control characters and invalid UTF-8, which
 * may come from the carton, are escaped. `subject` may be NULL. Called from any thread.
 */
typedef void carton_log_fn(void *ctx, enum carton_log_level level, const char *subject,
			   const char *message);

/* Sends all that follows to `fn`; NULL drops it (the default). Set it before threads start. */
void carton_log_set(carton_log_fn *fn, void *ctx);

/* Reports one thing. `subject` may be NULL and may be hostile text. errno is preserved. */
void carton_log(enum carton_log_level level, const char *subject, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

#pragma GCC visibility pop

#endif
