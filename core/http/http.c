/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "http/internal.h"

void http_log(enum carton_log_level level, const char *url, const char *fmt, ...)
{
	char subject[HTTP_MAX_URL + 128], text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	carton_log(level, http_url_redact(url, subject, sizeof(subject)), "%s", text);
}

enum carton_log_level http_failure_level(struct http_stream *s)
{
	bool quiet;

	pthread_mutex_lock(&s->lock);
	quiet = s->closed || (s->told && atomic_exchange(s->told, true));
	pthread_mutex_unlock(&s->lock);
	return quiet ? CARTON_LOG_DEBUG : CARTON_LOG_WARNING;
}

/* ---- start and stop ---- */

static void log_codings(void)
{
	const curl_version_info_data *v = curl_version_info(CURLVERSION_NOW);
	bool z = v->features & CURL_VERSION_LIBZ, br = v->features & CURL_VERSION_BROTLI;
	bool zstd = v->features & CURL_VERSION_ZSTD;

	if (!z || !br || !zstd)
		carton_log(CARTON_LOG_WARNING, NULL,
			   "libcurl %s was built without the content codings%s%s%s: "
			   "they are not asked for, and refused when a server sends them",
			   v->version, z ? "" : " gzip deflate", br ? "" : " br",
			   zstd ? "" : " zstd");
}

static int set_origin(struct http *http, const char *url)
{
	const char *why = "out of memory";
	int r = http_target_parse(NULL, url, &http->origin, &why);

	if (r < 0 && r != -ENOMEM) {
		http_log(CARTON_LOG_ERROR, url, "%s", why);
		r = -EINVAL;
	}
	return r;
}

static int set_options(struct http *http, const struct http_options *o)
{
	int r = 0;

	http->connect_timeout_ms = o->connect_timeout_ms > 0 ? o->connect_timeout_ms : 10000;
	http->stall_ms = o->stall_ms > 0 ? o->stall_ms : 10000;
	http->stall_rate = o->stall_rate > 0 ? o->stall_rate : 1024;
	http->max_host_connections = MAX(o->max_host_connections, 0);
	http->private_links = o->private_links;
	if (o->origin_url)
		r = set_origin(http, o->origin_url);
	if (r == 0 && o->header_file)
		r = http_headers_load(o->header_file, &http->headers);
	if (r == 0 && o->cacert) {
		if (access(o->cacert, R_OK) < 0) {
			r = -errno;
			carton_log(CARTON_LOG_ERROR, o->cacert,
				   "the file of trusted authorities cannot be read: %s",
				   strerror(-r));
		} else {
			http->cacert = strdup(o->cacert);
			r = http->cacert ? 0 : -ENOMEM;
		}
	}
	return r < 0 ? r : http_proxies_load(&http->proxies);
}

static int start_thread(struct http *http)
{
	sigset_t all, old;
	int r;

	http->multi = curl_multi_init();
	if (!http->multi)
		return -ENOMEM;
	/*
	 * Connections are kept and used again, HTTP/2 ones too, but parallel transfers never share
	 * one: a server that limits the speed of a connection would limit them all.
	 */
	curl_multi_setopt(http->multi, CURLMOPT_PIPELINING, CURLPIPE_NOTHING);
	curl_multi_setopt(http->multi, CURLMOPT_MAXCONNECTS, 32L);
	curl_multi_setopt(http->multi, CURLMOPT_MAX_HOST_CONNECTIONS, http->max_host_connections);
	/* Signals are the program's business; TLS may raise SIGPIPE here. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(&http->thread, NULL, http_thread, http);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	http->running = r == 0;
	return -r;
}

int http_start(const struct http_options *options, struct http **ret)
{
	struct http *http = calloc(1, sizeof(*http));
	int r;

	if (!http)
		return -ENOMEM;
	if (curl_global_init(CURL_GLOBAL_DEFAULT)) {
		free(http);
		return -ENOMEM;
	}
	pthread_mutex_init(&http->lock, NULL);
	http->queue_end = &http->queue;
	r = set_options(http, options);
	if (r == 0)
		r = start_thread(http);
	if (r < 0) {
		http_free(http);
		return r;
	}
	log_codings();
	*ret = http;
	return 0;
}

void http_stop(struct http *http)
{
	if (!http->running)
		return;
	pthread_mutex_lock(&http->lock);
	http->stopping = true;
	curl_multi_wakeup(http->multi);
	pthread_mutex_unlock(&http->lock);
	pthread_join(http->thread, NULL);
	http->running = false;
}

void http_free(struct http *http)
{
	if (!http)
		return;
	http_stop(http);
	if (http->multi)
		curl_multi_cleanup(http->multi);
	http_headers_free(http->headers);
	http_target_free(&http->origin);
	http_proxies_free(&http->proxies);
	free(http->cacert);
	pthread_mutex_destroy(&http->lock);
	free(http);
	curl_global_cleanup();
}

/* ---- cancelling ---- */

int http_cancel_init(struct http_cancel *cancel)
{
	atomic_init(&cancel->fired, false);
	cancel->streams = NULL;
	return -pthread_mutex_init(&cancel->lock, NULL);
}

void http_cancel_destroy(struct http_cancel *cancel)
{
	pthread_mutex_destroy(&cancel->lock);
}

void http_cancel_fire(struct http_cancel *cancel)
{
	atomic_store(&cancel->fired, true);
	pthread_mutex_lock(&cancel->lock);
	for (struct http_stream *s = cancel->streams; s; s = s->cancel_next) {
		/* Under its lock, so that it is not between looking and waiting. */
		pthread_mutex_lock(&s->lock);
		pthread_cond_broadcast(&s->changed);
		pthread_mutex_unlock(&s->lock);
	}
	pthread_mutex_unlock(&cancel->lock);
}

static void cancel_add(struct http_stream *s)
{
	if (!s->cancel)
		return;
	pthread_mutex_lock(&s->cancel->lock);
	s->cancel_next = s->cancel->streams;
	s->cancel->streams = s;
	pthread_mutex_unlock(&s->cancel->lock);
}

static void cancel_remove(struct http_stream *s)
{
	struct http_stream **link;

	if (!s->cancel)
		return;
	pthread_mutex_lock(&s->cancel->lock);
	for (link = &s->cancel->streams; *link; link = &(*link)->cancel_next) {
		if (*link == s) {
			*link = s->cancel_next;
			break;
		}
	}
	pthread_mutex_unlock(&s->cancel->lock);
}

/* ---- streams ---- */

struct http_stream *http_stream_ref(struct http_stream *s)
{
	atomic_fetch_add(&s->refs, 1);
	return s;
}

void http_stream_unref(struct http_stream *s)
{
	if (atomic_fetch_sub(&s->refs, 1) != 1)
		return;
	for (unsigned i = 0; i < s->n_seen; i++)
		free(s->seen[i]);
	free(s->start_url);
	http_target_free(&s->target);
	http_head_free(&s->response_head);
	curl_slist_free_all(s->lines);
	pthread_mutex_destroy(&s->lock);
	pthread_cond_destroy(&s->changed);
	free(s->ring);
	free(s);
}

static struct http_stream *stream_new(struct http *http, struct http_cancel *cancel)
{
	struct http_stream *s = calloc(1, sizeof(*s));
	pthread_condattr_t attr;

	if (!s)
		return NULL;
	s->http = http;
	s->cancel = cancel;
	atomic_init(&s->refs, 1);
	pthread_mutex_init(&s->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&s->changed, &attr);
	pthread_condattr_destroy(&attr);
	http_head_init(&s->response_head);
	return s;
}

static int add_line(struct http_stream *s, const char *name, const char *value)
{
	struct curl_slist *lines;
	char *line;

	if (!value)
		return 0;
	if (!http_header_value_ok(value))
		return -EINVAL;
	if (asprintf(&line, "%s: %s", name, value) < 0)
		return -ENOMEM;
	lines = curl_slist_append(s->lines, line);
	free(line);
	if (!lines)
		return -ENOMEM;
	s->lines = lines;
	return 0;
}

static int set_request(struct http_stream *s, const struct http_request *q)
{
	int r;

	if (q->has_range && (q->suffix || q->first > q->last))
		return -EINVAL;
	s->head_only = q->method == HTTP_HEAD;
	s->identity = q->identity || q->undecoded || q->has_range || q->suffix;
	s->undecoded = q->undecoded;
	s->trust = q->trust;
	s->deadline_ms = q->deadline_ms;
	s->told = q->told;
	if (q->has_range)
		snprintf(s->range, sizeof(s->range), "%" PRIu64 "-%" PRIu64, q->first, q->last);
	else if (q->suffix)
		snprintf(s->range, sizeof(s->range), "-%" PRIu64, q->suffix);
	r = add_line(s, "If-Match", q->if_match);
	if (r == 0)
		r = add_line(s, "If-Range", q->if_range);
	if (r == 0)
		r = add_line(s, "If-Unmodified-Since", q->if_unmodified_since);
	if (r == 0)
		r = add_line(s, "Cache-Control", q->no_cache ? "no-cache" : NULL);
	if (r == 0)
		r = add_line(s, "Pragma", q->no_cache ? "no-cache" : NULL);
	return r;
}

static bool cancelled(const struct http_stream *s)
{
	return s->cancel && atomic_load(&s->cancel->fired);
}

/*
 * Waits for a change, with the stream's lock held. 0 when there may be one, else why there is no
 * more waiting; `ret_report` becomes true when that should be logged.
 */
static int stream_wait(struct http_stream *s, bool *ret_report)
{
	int64_t deadline = s->deadline_ms;
	struct timespec ts = { .tv_sec = deadline / 1000, .tv_nsec = deadline % 1000 * 1000000 };

	if (cancelled(s))
		return -ECANCELED;
	if (!deadline) {
		pthread_cond_wait(&s->changed, &s->lock);
	} else if (deadline > now_ms()) {
		pthread_cond_timedwait(&s->changed, &s->lock, &ts);
	} else {
		*ret_report = !s->overdue;
		s->overdue = true;
		return -ETIMEDOUT;
	}
	return 0;
}

static int wait_for_response(struct http_stream *s, struct http_response *ret)
{
	bool report = false;
	int r = 0;

	pthread_mutex_lock(&s->lock);
	while (r == 0 && !s->ready && !s->done)
		r = stream_wait(s, &report);
	if (r == 0 && cancelled(s))
		r = -ECANCELED;
	if (r == 0 && !s->ready)
		r = s->error;
	if (r == 0)
		*ret = s->response;
	pthread_mutex_unlock(&s->lock);
	if (report)
		http_log(http_failure_level(s), s->start_url, "no answer before the deadline");
	return r;
}

int http_open(struct http *http, const struct http_request *request, struct http_cancel *cancel,
	      struct http_stream **ret, struct http_response *ret_response)
{
	struct http_stream *s = stream_new(http, cancel);
	const char *why = "a validator or range that makes no sense";
	int r;

	if (!s)
		return -ENOMEM;
	r = set_request(s, request);
	if (r == 0)
		r = http_target_parse(NULL, request->url, &s->target, &why);
	if (r == 0)
		r = (s->start_url = strdup(s->target.url)) ? 0 : -ENOMEM;
	if (r < 0) {
		if (r != -ENOMEM)
			http_log(http_failure_level(s), request->url, "%s", why);
		http_stream_unref(s);
		return r;
	}
	cancel_add(s);
	r = http_post(s, HTTP_ACT_START);
	if (r == 0)
		r = wait_for_response(s, ret_response);
	if (r < 0) {
		http_close(s);
		return r;
	}
	*ret = s;
	return 0;
}

/* Takes what is there, with the lock held; it is let go while bytes are copied. */
static size_t take(struct http_stream *s, char *to, size_t n)
{
	size_t at = s->tail % HTTP_STREAM_BUFFER, part;
	bool resume;

	n = MIN(n, s->head - s->tail);
	pthread_mutex_unlock(&s->lock);
	part = MIN(n, HTTP_STREAM_BUFFER - at);
	memcpy(to, s->ring + at, part);
	memcpy(to + part, s->ring, n - part);
	pthread_mutex_lock(&s->lock);
	s->tail += n;
	resume = s->paused && s->head - s->tail <= HTTP_STREAM_BUFFER / 2;
	if (resume) {
		s->paused = false;
		pthread_mutex_unlock(&s->lock);
		http_post(s, HTTP_ACT_RESUME);
		pthread_mutex_lock(&s->lock);
	}
	return n;
}

ssize_t http_read(struct http_stream *s, void *ret_buf, size_t n)
{
	bool report = false;
	ssize_t r = 0;

	pthread_mutex_lock(&s->lock);
	while (r == 0 && s->head == s->tail && !s->done && n > 0)
		r = stream_wait(s, &report);
	if (cancelled(s))
		r = -ECANCELED;
	else if (r == 0 && n > 0)
		r = s->head != s->tail ? (ssize_t)take(s, ret_buf, MIN(n, (size_t)SSIZE_MAX)) :
					 s->error;
	pthread_mutex_unlock(&s->lock);
	if (report && r != -ECANCELED)
		http_log(http_failure_level(s), s->start_url,
			 "the body did not end before the deadline");
	return r;
}

void http_set_deadline(struct http_stream *s, int64_t deadline_ms)
{
	pthread_mutex_lock(&s->lock);
	s->deadline_ms = deadline_ms;
	s->overdue = false;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
}

void http_close(struct http_stream *s)
{
	bool done;

	if (!s)
		return;
	cancel_remove(s);
	pthread_mutex_lock(&s->lock);
	done = s->done;
	s->closed = true;
	pthread_mutex_unlock(&s->lock);
	if (!done)
		http_post(s, HTTP_ACT_CLOSE);
	http_stream_unref(s);
}
