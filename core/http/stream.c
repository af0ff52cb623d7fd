/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One transfer, with the owner's side and the network thread's: its life, its bytes, and its log.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/budget.h"
#include "base/failure.h"
#include "http/internal.h"

/* A redirect target is not used in the last part of its life, */
#define MARGIN_PART 10
#define MARGIN_MAX_S 30 /* at most so long */

/* ---- life ---- */

struct http_stream *http_stream_new(struct http *http)
{
	struct http_stream *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->http = http;
	atomic_init(&s->refs, 1);
	pthread_mutex_init(&s->lock, NULL);
	http_header_init(&s->response_header);
	s->kept = buf_init(HTTP_MAX_KEPT_BODY);
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
	free(s->signed_url);
	http_target_finish(&s->target);
	http_header_finish(&s->response_header);
	buf_finish(&s->kept);
	curl_slist_free_all(s->lines);
	pthread_mutex_destroy(&s->lock);
	free(s->ring);
	free(s->failure);
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
	if (error < 0)
		failure_keep(&s->failure);
	failure_forget();
	wake_owner(s);
	pthread_mutex_unlock(&s->lock);
}

void http_stream_plan(struct http_stream *s)
{
	struct budget *b = s->http->budget;

	/* larger than the largest piece that libcurl passes on */
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
	/* an owner that was woken for bytes and has not looked since is not woken again */
	if (first)
		wake_owner(s);
	pthread_mutex_unlock(&s->lock);
	return true;
}

/* ---- the queues: from any thread ---- */

/*
 * The first of the threads with the fewest streams: few streams at once keep to the first threads,
 * and to the connections that these have. Lock held.
 */
static struct http_thread *idlest(struct http *http)
{
	struct http_thread *best = http->threads;

	for (unsigned i = 1; i < http->n_threads; i++)
		if (http->threads[i].streams < best->streams)
			best = &http->threads[i];
	best->streams++;
	return best;
}

int http_stream_post(struct http_stream *s, enum http_action action)
{
	struct http *http = s->http;
	int r = 0;

	pthread_mutex_lock(&http->lock);
	if (http->stopping) {
		r = -ESHUTDOWN;
	} else {
		if (action == HTTP_ACT_START)
			s->thread = idlest(http);
		if (!s->actions) {
			s->queue_next = NULL;
			*s->thread->queue_end = http_stream_ref(s);
			s->thread->queue_end = &s->queue_next;
		}
		s->actions |= action;
		curl_multi_wakeup(s->thread->multi);
	}
	pthread_mutex_unlock(&http->lock);
	return r;
}

struct http_stream *http_next(struct http_thread *t, unsigned *ret_actions)
{
	struct http_stream *s;

	pthread_mutex_lock(&t->http->lock);
	s = t->queue;
	if (s) {
		t->queue = s->queue_next;
		if (!t->queue)
			t->queue_end = &t->queue;
		*ret_actions = s->actions;
		s->actions = 0;
	}
	pthread_mutex_unlock(&t->http->lock);
	return s;
}

/* ---- the owner's side ---- */

static int add_line(struct http_stream *s, const char *name, const char *value)
{
	struct curl_slist *lines;
	char *line;

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
	static const char *const sends[] = { NULL, NULL, "POST", "PUT", "PATCH" };
	const char *const lines[][2] = {
		{ "If-Match", q->if_match },
		{ "If-Range", q->if_range },
		{ "Accept", q->accept },
		{ "If-Unmodified-Since", q->if_unmodified_since },
		{ "Cache-Control", q->no_cache ? "no-cache" : NULL },
		{ "Pragma", q->no_cache ? "no-cache" : NULL },
		{ "Content-Type", q->body.type },
		{ "Content-Range", q->body.range },
	};
	int r = 0;

	if (q->has_range && (q->suffix || q->first > q->last))
		return -EINVAL;
	s->head_only = q->method == HTTP_HEAD;
	s->identity = q->identity || q->undecoded || q->has_range || q->suffix;
	s->undecoded = q->undecoded;
	s->plain = q->plain;
	s->pushes = q->pushes;
	s->raw = q->has_range || q->suffix || q->undecoded;
	s->new_connection = q->new_connection;
	s->trust = q->trust;
	s->logged_once = q->logged_once;
	s->probe = q->probe;
	s->untold = s->token_tried = q->untold;
	s->sends = sends[q->method];
	s->body = q->body;
	if (q->has_range)
		snprintf(s->range, sizeof(s->range), "%" PRIu64 "-%" PRIu64, q->first, q->last);
	else if (q->suffix)
		snprintf(s->range, sizeof(s->range), "-%" PRIu64, q->suffix);
	for (size_t i = 0; i < ARRAY_SIZE(lines) && r == 0; i++)
		r = lines[i][1] ? add_line(s, lines[i][0], lines[i][1]) : 0;
	return r;
}

/* May LINKS have this URL fetched, with the user's login? */
static bool links_may(const struct http *http, const struct scheme *scheme, const char *url)
{
	return http->source_url && scheme_of(http->source_url) == scheme &&
	       scheme->links_may(http->source_url, url);
}

/* The servers of the user's environment: any address of them is allowed. */
static int set_signed_target(struct http_stream *s, const struct scheme *scheme, const char *url,
			     const char **ret_why)
{
	const struct http *http = s->http;
	struct login *login = login_of(http->logins, scheme);
	char *text;
	int r;

	*ret_why = s->sends ? "nothing can be sent there" : scheme->fault(url);
	if (*ret_why)
		return -EINVAL;
	*ret_why = scheme->links_fault;
	if (!login || (s->trust == HTTP_LINKS && !links_may(http, scheme, url)))
		return -EACCES;
	text = scheme->request_url(login, url);
	s->signed_url = strdup(url);
	if (!text || !s->signed_url) {
		free(text);
		return -ENOMEM;
	}
	s->login = login;
	s->trust = HTTP_USER;
	r = http_target_parse(NULL, text, &s->target, ret_why);
	free(text);
	return r;
}

static int set_target(struct http_stream *s, const struct http_request *q, const char **ret_why)
{
	const struct scheme *scheme = scheme_of(q->url);

	if (!q->redirect && scheme && scheme->request_url)
		return set_signed_target(s, scheme, q->url, ret_why);
	if (!q->redirect)
		return http_target_parse(NULL, q->url, &s->target, ret_why);
	s->from_redirect = true;
	s->allowed = q->redirect->allowed;
	s->left_origin = q->redirect->left_origin;
	return http_target_parse(NULL, q->redirect->url, &s->target, ret_why);
}

int http_start_request(struct http *http, const struct http_request *request, http_wake_fn *wake,
		       void *ctx, struct http_stream **ret)
{
	struct http_stream *s = http_stream_new(http);
	const char *why = "a validator or range that makes no sense";
	int r;

	if (!s)
		return -ENOMEM;
	s->wake = wake;
	s->ctx = ctx;
	r = set_request(s, request);
	if (r == 0)
		r = set_target(s, request, &why);
	if (r < 0 && r != -ENOMEM)
		http_log_failure(s, request->url, why);
	if (r == 0)
		r = http_stream_post(s, HTTP_ACT_START);
	if (r < 0) {
		http_stream_unref(s);
		return r;
	}
	*ret = s;
	return 0;
}

/* Returns the error of the stream, and sets its text for this thread. Lock held. */
static int stream_error(const struct http_stream *s)
{
	if (s->error < 0)
		failure_set(s->failure);
	return s->error;
}

int http_answer(struct http_stream *s, struct http_response *ret)
{
	int r = 0;

	pthread_mutex_lock(&s->lock);
	if (s->ready)
		*ret = s->response;
	else
		r = s->done ? stream_error(s) : -EAGAIN;
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
		r = s->done ? stream_error(s) : -EAGAIN;
	}
	pthread_mutex_unlock(&s->lock);
	return r;
}

void http_skip(struct http_stream *s, size_t n)
{
	bool resume;

	pthread_mutex_lock(&s->lock);
	s->tail += n;
	resume = s->paused && s->head - s->tail <= s->ring_size / 2;
	if (resume)
		s->paused = false;
	pthread_mutex_unlock(&s->lock);
	if (resume)
		http_stream_post(s, HTTP_ACT_RESUME);
}

void http_close(struct http_stream *s)
{
	bool done;

	if (!s)
		return;
	pthread_mutex_lock(&s->lock);
	done = s->done;
	s->closed = true;
	pthread_mutex_unlock(&s->lock);
	if (!done)
		http_stream_post(s, HTTP_ACT_CLOSE);
	/* not when it ends, which may be later: the owner's next one is for the same connection */
	pthread_mutex_lock(&s->http->lock);
	s->thread->streams--;
	pthread_mutex_unlock(&s->http->lock);
	http_stream_unref(s);
}

/* ---- redirect targets ---- */

struct http_redirect *http_redirect_of(struct http_stream *s)
{
	struct http_redirect *to = NULL;
	int64_t now = (int64_t)time(NULL), left;

	/* the network thread does not change them after it has published the response */
	pthread_mutex_lock(&s->lock);
	if (s->ready && s->n_seen > 1)
		to = calloc(1, sizeof(*to));
	if (to) {
		atomic_init(&to->refs, 1);
		to->url = strdup(s->target.url);
		to->allowed = s->allowed;
		to->left_origin = s->left_origin;
	}
	pthread_mutex_unlock(&s->lock);
	if (!to || !to->url) {
		free(to);
		return NULL;
	}
	to->expiry = http_url_expiry(to->url);
	left = to->expiry - now;
	/* the clocks differ by more than the life of the URL: only the server knows its end */
	if (left <= 0)
		to->expiry = 0;
	else
		to->expiry -= MIN(left / MARGIN_PART, MARGIN_MAX_S);
	return to;
}

struct http_redirect *http_redirect_ref(struct http_redirect *to)
{
	if (to)
		atomic_fetch_add(&to->refs, 1);
	return to;
}

void http_redirect_unref(struct http_redirect *to)
{
	if (!to || atomic_fetch_sub(&to->refs, 1) != 1)
		return;
	free(to->url);
	free(to);
}

const char *http_redirect_url(const struct http_redirect *to)
{
	return to->url;
}

bool http_redirect_expired(const struct http_redirect *to)
{
	return to->expiry && (int64_t)time(NULL) >= to->expiry;
}
