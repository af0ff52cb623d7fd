/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waits for what http.h reports, for tests: one thread reads one stream, with a deadline and a
 * switch that ends the waiting.
 */
#ifndef HTTP_READER_H
#define HTTP_READER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/util.h"
#include "http/http.h"
#include "../must.h"

struct http_reader;

static inline void http_reader_close(struct http_reader *r);

/* Ends the waiting of every reader opened with it. */
struct http_cancel {
	pthread_mutex_t lock;
	atomic_bool fired;
	struct http_reader *readers; /* guarded by lock */
};

struct http_reader {
	struct http_stream *stream;
	struct http_cancel *cancel;
	struct http_reader *next; /* guarded by cancel->lock */
	char url[256];
	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t changed;
	unsigned n_wakes;
	int64_t deadline_ms;
	bool overdue;
	atomic_bool *logged_once;
};

static inline int http_cancel_init(struct http_cancel *cancel)
{
	atomic_init(&cancel->fired, false);
	cancel->readers = NULL;
	return -pthread_mutex_init(&cancel->lock, NULL);
}

static inline void http_cancel_destroy(struct http_cancel *cancel)
{
	pthread_mutex_destroy(&cancel->lock);
}

static inline void wake(void *ctx)
{
	struct http_reader *r = ctx;

	pthread_mutex_lock(&r->lock);
	r->n_wakes++;
	pthread_cond_broadcast(&r->changed);
	pthread_mutex_unlock(&r->lock);
}

static inline void http_cancel_fire(struct http_cancel *cancel)
{
	atomic_store(&cancel->fired, true);
	pthread_mutex_lock(&cancel->lock);
	for (struct http_reader *r = cancel->readers; r; r = r->next)
		wake(r);
	pthread_mutex_unlock(&cancel->lock);
}

static inline bool cancelled(const struct http_reader *r)
{
	return r->cancel && atomic_load(&r->cancel->fired);
}

/* Waits for another wake than number `seen`. */
static inline int wait_wake(struct http_reader *r, unsigned seen, const char *late)
{
	bool report = false;
	int result = 0;

	pthread_mutex_lock(&r->lock);
	while (result == 0 && r->n_wakes == seen && !cancelled(r)) {
		int64_t deadline = r->deadline_ms;
		struct timespec ts = { .tv_sec = deadline / 1000,
				       .tv_nsec = deadline % 1000 * 1000000 };

		if (!deadline) {
			pthread_cond_wait(&r->changed, &r->lock);
		} else if (deadline > now_ms()) {
			pthread_cond_timedwait(&r->changed, &r->lock, &ts);
		} else {
			report = !r->overdue;
			r->overdue = true;
			result = -ETIMEDOUT;
		}
	}
	pthread_mutex_unlock(&r->lock);
	if (report && !(r->logged_once && atomic_exchange(r->logged_once, true)))
		carton_log(CARTON_LOG_WARNING, r->url, "%s", late);
	return cancelled(r) ? -ECANCELED : result;
}

static inline unsigned wakes(struct http_reader *r)
{
	unsigned n;

	pthread_mutex_lock(&r->lock);
	n = r->n_wakes;
	pthread_mutex_unlock(&r->lock);
	return n;
}

static inline int http_open(struct http *http, const struct http_request *request,
			    int64_t deadline_ms, struct http_cancel *cancel,
			    struct http_reader **ret, struct http_response *ret_response)
{
	struct http_reader *r = must(calloc(1, sizeof(*r)));
	pthread_condattr_t attr;
	int result;

	if (!r)
		return -ENOMEM;
	pthread_mutex_init(&r->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&r->changed, &attr);
	pthread_condattr_destroy(&attr);
	r->deadline_ms = deadline_ms;
	r->logged_once = request->logged_once;
	r->cancel = cancel;
	http_url_redact(request->url, r->url, sizeof(r->url));
	if (cancel) {
		pthread_mutex_lock(&cancel->lock);
		r->next = cancel->readers;
		cancel->readers = r;
		pthread_mutex_unlock(&cancel->lock);
	}
	result = http_start_request(http, request, wake, r, &r->stream);
	while (result == 0) {
		unsigned seen = wakes(r);

		result = http_answer(r->stream, ret_response);
		if (result != -EAGAIN)
			break;
		result = wait_wake(r, seen, "no answer before the deadline");
	}
	if (result == 0 && cancelled(r))
		result = -ECANCELED;
	if (result < 0) {
		http_reader_close(r);
		return result;
	}
	*ret = r;
	return 0;
}

static inline ssize_t http_read(struct http_reader *r, void *ret_buf, size_t n)
{
	const char *data;
	ssize_t got = 0;

	while (n > 0) {
		unsigned seen = wakes(r);

		got = cancelled(r) ? -ECANCELED : http_peek(r->stream, &data);
		if (got != -EAGAIN)
			break;
		got = wait_wake(r, seen, "the body did not end before the deadline");
		if (got < 0)
			return got;
	}
	if (n == 0 || got <= 0)
		return n == 0 ? 0 : got;
	n = MIN(n, (size_t)got);
	memcpy(ret_buf, data, n);
	http_skip(r->stream, n);
	return (ssize_t)n;
}

static inline void http_set_deadline(struct http_reader *r, int64_t deadline_ms)
{
	pthread_mutex_lock(&r->lock);
	r->deadline_ms = deadline_ms;
	r->overdue = false;
	r->n_wakes++;
	pthread_cond_broadcast(&r->changed);
	pthread_mutex_unlock(&r->lock);
}

static inline void http_reader_close(struct http_reader *r)
{
	if (!r)
		return;
	if (r->cancel) {
		struct http_reader **link = &r->cancel->readers;

		pthread_mutex_lock(&r->cancel->lock);
		while (*link && *link != r)
			link = &(*link)->next;
		if (*link)
			*link = r->next;
		pthread_mutex_unlock(&r->cancel->lock);
	}
	http_close(r->stream);
	pthread_cond_destroy(&r->changed);
	pthread_mutex_destroy(&r->lock);
	free(r);
}

#endif
