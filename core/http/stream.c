/* SPDX-License-Identifier: Apache-2.0 */
/* One transfer as both sides see it: its life, its bytes, and what is logged of it. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/budget.h"
#include "http/internal.h"

/* ---- log ---- */

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
	quiet = s->closed || (s->logged_once && atomic_exchange(s->logged_once, true));
	pthread_mutex_unlock(&s->lock);
	return quiet ? CARTON_LOG_DEBUG : CARTON_LOG_WARNING;
}

/* ---- life ---- */

struct http_stream *http_stream_new(struct http *http)
{
	struct http_stream *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->http = http;
	atomic_init(&s->refs, 1);
	pthread_mutex_init(&s->lock, NULL);
	http_head_init(&s->response_head);
	return s;
}

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
	http_target_free(&s->target);
	http_head_free(&s->response_head);
	curl_slist_free_all(s->lines);
	pthread_mutex_destroy(&s->lock);
	free(s->ring);
	budget_drop(s->http->budget, s->ring_size + s->read_size);
	free(s);
}

/* ---- the network thread's side ---- */

/* Tells the owner, unless it has closed the stream. Lock held: http_close() waits for it. */
static void wake_owner(struct http_stream *s)
{
	if (!s->closed)
		s->wake(s->ctx);
}

void http_stream_publish(struct http_stream *s, const struct http_response *response)
{
	pthread_mutex_lock(&s->lock);
	s->response = *response;
	s->ready = true;
	wake_owner(s);
	pthread_mutex_unlock(&s->lock);
}

void http_stream_end(struct http_stream *s, int error)
{
	pthread_mutex_lock(&s->lock);
	s->done = true;
	s->error = error;
	wake_owner(s);
	pthread_mutex_unlock(&s->lock);
}

void http_stream_plan(struct http_stream *s)
{
	struct budget *b = s->http->budget;

	/* larger than what libcurl passes on at once */
	_Static_assert(HTTP_SMALL_BUFFER >= 2 * CURL_MAX_WRITE_SIZE, "it would wait for ever");
	if (s->ring_size)
		return;
	s->ring_size = HTTP_STREAM_BUFFER;
	s->read_size = s->identity ? 256 * KIB : 32 * KIB;
	if (budget_left(b) < BUDGET_RESERVE || !budget_keep(b, s->ring_size + s->read_size)) {
		s->ring_size = HTTP_SMALL_BUFFER;
		s->read_size = 32 * KIB;
		budget_charge(b, s->ring_size + s->read_size);
	}
}

bool http_stream_put(struct http_stream *s, const char *data, size_t n)
{
	size_t at, part;
	bool room, first;

	pthread_mutex_lock(&s->lock);
	room = s->ring_size - (s->head - s->tail) >= n;
	s->paused = !room;
	pthread_mutex_unlock(&s->lock);
	if (!room)
		return false;
	at = s->head % s->ring_size; /* only this thread writes head */
	part = MIN(n, s->ring_size - at);
	memcpy(s->ring + at, data, part);
	memcpy(s->ring, data + part, n - part);
	pthread_mutex_lock(&s->lock);
	first = s->head == s->seen_head;
	s->head += n;
	/* an owner that was told of bytes and has not looked since need not be told again */
	if (first)
		wake_owner(s);
	pthread_mutex_unlock(&s->lock);
	return true;
}

/* ---- the owner's side ---- */

int http_answer(struct http_stream *s, struct http_response *ret)
{
	int r = 0;

	pthread_mutex_lock(&s->lock);
	if (s->ready)
		*ret = s->response;
	else
		r = s->done ? s->error : -EAGAIN;
	pthread_mutex_unlock(&s->lock);
	return r;
}

ssize_t http_peek(struct http_stream *s, const char **ret)
{
	ssize_t r;

	pthread_mutex_lock(&s->lock);
	s->seen_head = s->head;
	if (s->head != s->tail) {
		size_t at = s->tail % s->ring_size;

		*ret = s->ring + at;
		r = (ssize_t)MIN(s->head - s->tail, s->ring_size - at);
	} else {
		r = s->done ? s->error : -EAGAIN;
	}
	pthread_mutex_unlock(&s->lock);
	return r;
}

bool http_stream_skip(struct http_stream *s, size_t n)
{
	bool resume;

	pthread_mutex_lock(&s->lock);
	s->tail += n;
	resume = s->paused && s->head - s->tail <= s->ring_size / 2;
	if (resume)
		s->paused = false;
	pthread_mutex_unlock(&s->lock);
	return resume;
}
