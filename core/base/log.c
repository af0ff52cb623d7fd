/* SPDX-License-Identifier: Apache-2.0 */
#include "log.h"

#include <stdio.h>

#include "base/failure.h"
#include "base/util.h"

/* The only global: set before threads start, read-only after. */
static struct {
	carton_log_fn *fn;
	void *ctx;
} logger;

/* what this thread is just logging */
static _Thread_local bool is_attempt;

void carton_log_set(carton_log_fn *fn, void *ctx)
{
	logger.fn = fn;
	logger.ctx = ctx;
}

bool carton_log_is_attempt(void)
{
	return is_attempt;
}

/* Copies text, escaped so that it cannot trick a terminal or syslog, and cut to fit. */
static void escape(const char *s, char *out, size_t n)
{
	char shown[CARTON_ESCAPE_SIZE];
	size_t used = 0;

	while (*s) {
		size_t step = carton_escape(CARTON_ESCAPE_TEXT, s, strnlen(s, 4), shown);
		size_t len = strlen(shown);

		if (used + len + 1 > n)
			break;
		memcpy(out + used, shown, len);
		used += len;
		s += step;
	}
	out[used] = '\0';
}

/* Sets the text of the thread's failure. A long subject is cut, so that the message still fits. */
static void keep(const char *subject, const char *message)
{
	char text[2048];

	if (subject)
		snprintf(text, sizeof(text), "%.1024s: %.1000s", subject, message);
	failure_set(subject ? text : message);
}

/* `fails`: the message becomes the text of the thread's failure. */
__attribute__((format(printf, 4, 0))) static void report(enum carton_log_level level, bool fails,
							 const char *subject, const char *fmt,
							 va_list ap)
{
	char text[2048], safe_text[4096], safe_subject[4 * (MAX_PATH_LEN + 1)];
	int saved = errno;

	if (!logger.fn && !fails)
		return;
	vsnprintf(text, sizeof(text), fmt, ap);
	escape(text, safe_text, sizeof(safe_text));
	if (subject)
		escape(subject, safe_subject, sizeof(safe_subject));
	if (fails)
		keep(subject ? safe_subject : NULL, safe_text);
	if (logger.fn)
		logger.fn(logger.ctx, level, subject ? safe_subject : NULL, safe_text);
	errno = saved;
}

void carton_log(enum carton_log_level level, const char *subject, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	report(level, level == CARTON_LOG_ERROR, subject, fmt, ap);
	va_end(ap);
}

void log_attempt(enum carton_log_level level, const char *subject, const char *fmt, ...)
{
	va_list ap;

	is_attempt = true;
	va_start(ap, fmt);
	report(level, true, subject, fmt, ap);
	va_end(ap);
	is_attempt = false;
}

int log_error(int r, const char *subject, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	report(CARTON_LOG_ERROR, true, subject, fmt, ap);
	va_end(ap);
	return r;
}

int error_again(int r, const char *subject, const char *text)
{
	char safe_subject[2048], safe_text[1024];

	escape(subject, safe_subject, sizeof(safe_subject));
	escape(text, safe_text, sizeof(safe_text));
	keep(safe_subject, safe_text);
	return r;
}

int reason_set(struct reason *reason, int r, const char *fmt, ...)
{
	va_list args;

	if (!reason)
		return r;
	va_start(args, fmt);
	vsnprintf(reason->text, sizeof(reason->text), fmt, args);
	va_end(args);
	return r;
}
