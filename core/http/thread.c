/* SPDX-License-Identifier: Apache-2.0 */
/* A thread that drives transfers: from request to request, until they end. */
#include <stdlib.h>

#include "http/internal.h"

/* ---- the end of a transfer ---- */

/* The last thing done to a stream on this thread. The owner sees `error` after all bytes. */
static void stream_finish(struct http_stream *s, int error)
{
	/*
	 * libcurl keeps a connection of HTTP/2 when one of its streams ends early, even if the
	 * server is silent
	 */
	if (error < 0 && s->easy)
		curl_easy_setopt(s->easy, CURLOPT_FORBID_REUSE, 1L);
	http_hop_end(s);
	http_token_leave(s);
	s->finished = true;
	*s->live_link = s->live_next;
	if (s->live_next)
		s->live_next->live_link = s->live_link;
	http_stream_end(s, error);
	http_stream_unref(s);
}

static void stream_fail(struct http_stream *s, int error, const char *why)
{
	if (!s->probe || error != -EOPNOTSUPP)
		http_log_failure(s, s->target.url, why);
	stream_finish(s, error);
}

static void stream_fail_address(struct http_stream *s)
{
	char why[256];

	snprintf(why, sizeof(why),
		 "refused: %s leads to a %s address; the option private_links allows it",
		 s->n_seen > 1 || s->from_redirect ? "a redirect" : "a URL of the carton",
		 http_address_class_name(s->refused_class));
	http_log_failure(s, s->target.url, why);
	stream_finish(s, -EACCES);
}

/* ---- from hop to hop ---- */

static void hop_start(struct http_stream *s)
{
	const char *why;
	int r = http_hop_begin(s, &why);

	if (r < 0 && !why)
		stream_fail_address(s);
	else if (r < 0)
		stream_fail(s, r, why);
}

/* Follows a redirect: checks it and replaces the target. 0, or -errno with `ret_why`. */
static int redirect(struct http_stream *s, const char **ret_why)
{
	struct http_target next;
	const char *to = http_header_redirect(&s->response_header);
	int r = http_target_parse(&s->target, to, &next, ret_why);

	if (r < 0)
		return r == -EINVAL ? -EPROTO : r;
	for (unsigned i = 0; r == 0 && i < s->n_seen; i++)
		r = strcmp(next.url, s->seen[i]) ? 0 : -ELOOP;
	*ret_why = "refused: the redirects go in a circle";
	if (r == 0 && s->n_seen > HTTP_MAX_REDIRECTS) {
		*ret_why = "refused: too many redirects";
		r = -ELOOP;
	}
	if (r == 0 && s->target.https && !next.https) {
		*ret_why = "refused: a redirect from https to http";
		r = -EACCES;
	}
	if (r < 0) {
		http_target_finish(&next);
		return r;
	}
	s->left_origin |= !http_same_origin(&s->target, &next);
	s->allowed = http_allowed_next(s);
	http_target_finish(&s->target);
	s->target = next;
	return 0;
}

/* Asks the URL that the scheme makes of a refusal, once for each stream. False: there is none. */
static bool move(struct http_stream *s)
{
	const struct scheme *scheme = s->login->scheme;
	struct http_target next;
	const char *why;
	char *url = s->moved || !scheme->moved ? NULL : scheme->moved(s->login, s, s->kept.data);
	bool moved = url && http_target_parse(NULL, url, &next, &why) == 0;

	free(url);
	if (!moved)
		return false;
	s->moved = true;
	http_hop_end(s);
	free(s->seen[--s->n_seen]);
	http_target_finish(&s->target);
	s->target = next;
	buf_finish(&s->kept);
	s->kept = buf_init(HTTP_MAX_KEPT_BODY);
	hop_start(s);
	return true;
}

static void stream_done(struct http_stream *s, CURLcode code)
{
	const char *why = NULL;
	bool ready;
	int r;

	if (s->refused && (code == CURLE_COULDNT_CONNECT || code == CURLE_ABORTED_BY_CALLBACK)) {
		stream_fail_address(s);
	} else if (s->name == HTTP_LOOKED_UP && code == CURLE_COULDNT_CONNECT) {
		http_hop_end(s);
		free(s->seen[--s->n_seen]);
		hop_start(s);
	} else if (s->fault) {
		stream_fail(s, s->fault, s->fault_why);
	} else if (s->again || s->token_wanted || s->recode || (s->asks && code == CURLE_OK)) {
		http_hop_end(s);
		r = s->asks && !s->again ? http_token_end(s, &why) : 0;
		ready = !s->token_wanted || http_token_begin(s);
		free(s->seen[--s->n_seen]);
		if (r < 0)
			stream_fail(s, r, why);
		else if (ready)
			hop_start(s);
	} else if (s->redirected) {
		http_hop_end(s);
		r = redirect(s, &why);
		if (r < 0)
			stream_fail(s, r, why ? why : "out of memory");
		else
			hop_start(s);
	} else if (s->keeps) {
		if (move(s))
			return;
		http_hop_refused(s);
		stream_finish(s, code == CURLE_OK ? 0 : -ECONNRESET);
	} else if (code != CURLE_OK) {
		r = http_hop_error(s, code, &why);
		stream_fail(s, r, why);
	} else if (!s->header_done) {
		stream_fail(s, -ECONNRESET, "the connection ended before the answer's headers");
	} else if (s->expected >= 0 && s->received < (uint64_t)s->expected) {
		stream_fail(s, -EPROTO, "the body is shorter than announced");
	} else {
		stream_finish(s, 0);
	}
}

/* ---- stalls ---- */

static long stall_tick(const struct http *http)
{
	return MAX(http->stall_ms / (HTTP_STALL_SAMPLES - 1), 5);
}

/* Has this transfer been too slow for stall_ms? Pauses made by its owner do not count. */
static bool stalled(struct http_stream *s, int64_t now)
{
	const struct http *http = s->http;
	struct http_sample sample = { .when_ms = now };
	curl_off_t bytes = 0, sent = 0;

	/* once the body is sent, the owner of the stream decides how long the server may take */
	if (!s->connected || s->held || http_upload_over(s)) {
		s->n_samples = 0;
		return false;
	}
	curl_easy_getinfo(s->easy, CURLINFO_SIZE_DOWNLOAD_T, &bytes);
	curl_easy_getinfo(s->easy, CURLINFO_SIZE_UPLOAD_T, &sent);
	sample.bytes = bytes + sent;
	if (s->n_samples == HTTP_STALL_SAMPLES)
		memmove(s->samples, s->samples + 1, --s->n_samples * sizeof(*s->samples));
	s->samples[s->n_samples++] = sample;
	now -= s->samples[0].when_ms;
	return now >= http->stall_ms &&
	       sample.bytes - s->samples[0].bytes < (int64_t)http->stall_rate * now / 1000;
}

static void check_stalls(struct http_thread *t)
{
	int64_t now = now_ms();
	struct http_stream *next;

	if (now - t->checked_ms < stall_tick(t->http))
		return;
	t->checked_ms = now;
	for (struct http_stream *s = t->live; s; s = next) {
		next = s->live_next;
		if (!stalled(s, now))
			continue;
		if (s->keeps)
			stream_done(s, CURLE_OPERATION_TIMEDOUT);
		else
			stream_fail(s, -ETIMEDOUT,
				    s->header_done ? "the server has stopped sending" :
						     "the server does not answer");
	}
}

/* ---- the thread ---- */

/* Puts a stream on the list of live ones, until stream_finish(). */
static void adopt(struct http_stream *s)
{
	struct http_thread *t = s->thread;

	s->live_next = t->live;
	s->live_link = &t->live;
	if (t->live)
		t->live->live_link = &s->live_next;
	t->live = http_stream_ref(s);
}

static void start(struct http_stream *s)
{
	s->expected = -1;
	if (!s->from_redirect)
		s->allowed = s->trust == HTTP_USER || s->http->private_links ?
				     HTTP_ALLOW_ALL :
				     HTTP_ALLOW(HTTP_ADDRESS_PUBLIC);
	hop_start(s);
}

static void resume(struct http_stream *s)
{
	const char *why;
	CURLcode code;
	int r;

	if (s->token_waits && http_token_begin(s))
		hop_start(s);
	if (!s->held)
		return;
	s->held = false;
	code = curl_easy_pause(s->easy, CURLPAUSE_CONT);
	/* libcurl reports this failure here only */
	if (code == CURLE_OK)
		return;
	r = s->fault ? s->fault : http_hop_error(s, code, &why);
	stream_fail(s, r, s->fault ? s->fault_why : why);
}

static void act(struct http_stream *s, unsigned actions)
{
	if (actions & HTTP_ACT_START)
		adopt(s);
	else if (s->finished)
		return;
	if (actions & HTTP_ACT_CLOSE)
		stream_finish(s, -ECANCELED);
	else if (actions & HTTP_ACT_START)
		start(s);
	else if (actions & HTTP_ACT_RESUME)
		resume(s);
}

static void take_messages(struct http_thread *t)
{
	CURLMsg *message;
	int left;

	while ((message = curl_multi_info_read(t->multi, &left))) {
		CURLcode code = message->data.result;
		struct http_stream *s = NULL;

		if (message->msg != CURLMSG_DONE)
			continue;
		curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&s);
		stream_done(s, code);
	}
}

static void end_all(struct http_thread *t)
{
	struct http_stream *s;
	unsigned actions;

	/* http_stream_post() refuses new actions by now */
	while ((s = http_next(t, &actions))) {
		if (!s->live_link)
			adopt(s); /* so that it is finished below */
		http_stream_unref(s);
	}
	while (t->live)
		stream_finish(t->live, -ESHUTDOWN);
}

/* libcurl sets no timer for the share that one of several addresses has of the time to connect */
static int longest_wait(const struct http_thread *t)
{
	long share = MAX(t->http->connect_timeout_ms / 8, 5);

	return t->live ? (int)MIN(stall_tick(t->http), share) : 3600000;
}

void *http_run(void *ctx)
{
	struct http_thread *t = ctx;
	struct http *http = t->http;
	struct http_stream *s;
	bool stopping = false;
	unsigned actions;
	int running;

	while (!stopping) {
		while ((s = http_next(t, &actions))) {
			act(s, actions);
			http_stream_unref(s);
		}
		t->served = NULL;
		curl_multi_perform(t->multi, &running);
		take_messages(t);
		check_stalls(t);
		curl_multi_poll(t->multi, NULL, 0, longest_wait(t), NULL);
		pthread_mutex_lock(&http->lock);
		stopping = http->stopping;
		pthread_mutex_unlock(&http->lock);
	}
	end_all(t);
	return NULL;
}
