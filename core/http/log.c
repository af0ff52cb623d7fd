/* SPDX-License-Identifier: Apache-2.0 */
/* Logs messages about URLs. Credentials are left out of the URLs. */
#include <stdio.h>

#include "http/internal.h"

#define MAX_SHOWN (HTTP_MAX_URL + 128)

void http_log(enum carton_log_level level, const char *url, const char *fmt, ...)
{
	char subject[MAX_SHOWN], text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	carton_log(level, http_url_redact(url, subject, sizeof(subject)), "%s", text);
}

void http_log_failure(struct http_stream *s, const char *url, const char *why)
{
	char subject[MAX_SHOWN];
	bool quiet;

	pthread_mutex_lock(&s->lock);
	quiet = s->closed || (s->logged_once && atomic_exchange(s->logged_once, true));
	pthread_mutex_unlock(&s->lock);
	log_attempt(quiet ? CARTON_LOG_DEBUG : CARTON_LOG_WARNING,
		    http_url_redact(url, subject, sizeof(subject)), "%s", why);
}
