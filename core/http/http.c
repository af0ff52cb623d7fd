/* SPDX-License-Identifier: Apache-2.0 */
/* The thread that drives all transfers: its start, its work, its end. */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

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
		http_log(http_failure_level(s), s->target.url, "%s", why);
	stream_finish(s, error);
}

static void stream_fail_address(struct http_stream *s)
{
	http_log(http_failure_level(s), s->target.url,
		 "refused: %s leads to a %s address; the option -o private_links allows it",
		 s->n_seen > 1 || s->from_redirect ? "a redirect" : "a URL of the carton",
		 http_address_class_name(s->refused_class));
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
	if (!s->http->private_links)
		s->allowed = HTTP_ALLOW(HTTP_ADDRESS_PUBLIC) |
			     (s->trust == HTTP_USER ? HTTP_ALLOW(s->class) : 0);
	http_target_finish(&s->target);
	s->target = next;
	return 0;
}

static void stream_done(struct http_stream *s, CURLcode code)
{
	const char *why = NULL;
	int r;

	if (s->refused && (code == CURLE_COULDNT_CONNECT || code == CURLE_ABORTED_BY_CALLBACK)) {
		stream_fail_address(s);
	} else if (s->fault) {
		stream_fail(s, s->fault, s->fault_why);
	} else if (s->again) {
		http_hop_end(s);
		free(s->seen[--s->n_seen]);
		hop_start(s);
	} else if (s->redirected) {
		http_hop_end(s);
		r = redirect(s, &why);
		if (r < 0)
			stream_fail(s, r, why ? why : "out of memory");
		else
			hop_start(s);
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
	curl_off_t bytes = 0;

	if (!s->connected || s->held) {
		s->n_samples = 0;
		return false;
	}
	curl_easy_getinfo(s->easy, CURLINFO_SIZE_DOWNLOAD_T, &bytes);
	sample.bytes = bytes;
	if (s->n_samples == HTTP_STALL_SAMPLES)
		memmove(s->samples, s->samples + 1, --s->n_samples * sizeof(*s->samples));
	s->samples[s->n_samples++] = sample;
	now -= s->samples[0].when_ms;
	return now >= http->stall_ms &&
	       sample.bytes - s->samples[0].bytes < (int64_t)http->stall_rate * now / 1000;
}

static void check_stalls(struct http *http)
{
	int64_t now = now_ms();
	struct http_stream *next;

	if (now - http->checked_ms < stall_tick(http))
		return;
	http->checked_ms = now;
	for (struct http_stream *s = http->live; s; s = next) {
		next = s->live_next;
		if (stalled(s, now))
			stream_fail(s, -ETIMEDOUT,
				    s->header_done ? "the server has stopped sending" :
						     "the server does not answer");
	}
}

/* ---- the thread ---- */

/* Puts a stream on the list of live ones, until stream_finish(). */
static void adopt(struct http_stream *s)
{
	struct http *http = s->http;

	s->live_next = http->live;
	s->live_link = &http->live;
	if (http->live)
		http->live->live_link = &s->live_next;
	http->live = http_stream_ref(s);
}

static void start(struct http_stream *s)
{
	adopt(s);
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
	if ((actions & HTTP_ACT_START) && !(actions & HTTP_ACT_CLOSE))
		start(s);
	else if (!s->live_link || s->finished)
		return;
	else if (actions & HTTP_ACT_CLOSE)
		stream_finish(s, -ECANCELED);
	else if (actions & HTTP_ACT_RESUME)
		resume(s);
}

static void take_messages(struct http *http)
{
	CURLMsg *message;
	int left;

	while ((message = curl_multi_info_read(http->multi, &left))) {
		CURLcode code = message->data.result;
		struct http_stream *s = NULL;

		if (message->msg != CURLMSG_DONE)
			continue;
		curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&s);
		stream_done(s, code);
	}
}

static void end_all(struct http *http)
{
	struct http_stream *s;
	unsigned actions;

	/* post() of stream.c refuses new actions by now */
	while ((s = http_next(http, &actions))) {
		if (!s->live_link)
			adopt(s); /* so that it is finished below */
		http_stream_unref(s);
	}
	while (http->live)
		stream_finish(http->live, -ESHUTDOWN);
}

static void *run(void *ctx)
{
	struct http *http = ctx;
	struct http_stream *s;
	bool stopping = false;
	unsigned actions;
	int running;

	while (!stopping) {
		while ((s = http_next(http, &actions))) {
			act(s, actions);
			http_stream_unref(s);
		}
		http->served = NULL;
		curl_multi_perform(http->multi, &running);
		take_messages(http);
		check_stalls(http);
		curl_multi_poll(http->multi, NULL, 0, http->live ? (int)stall_tick(http) : 3600000,
				NULL);
		pthread_mutex_lock(&http->lock);
		stopping = http->stopping;
		pthread_mutex_unlock(&http->lock);
	}
	end_all(http);
	return NULL;
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

static int set_source(struct http *http, const char *url)
{
	const struct scheme *scheme = scheme_of(url);
	const char *why = "out of memory";
	int r;

	if (scheme && scheme->request_url) {
		http->source_url = strdup(url);
		return http->source_url ? 0 : -ENOMEM;
	}
	r = http_target_parse(NULL, url, &http->source, &why);
	if (r < 0 && r != -ENOMEM) {
		http_log(CARTON_LOG_ERROR, url, "%s", why);
		r = -EINVAL;
	}
	return r;
}

static const char *header_of(const struct login *l)
{
	while (l && !l->header)
		l = l->next;
	return l ? l->header : NULL;
}

static int set_options(struct http *http, const struct http_options *o)
{
	const char *header = header_of(o->logins);
	int r = 0;

	http->connect_timeout_ms = o->connect_timeout_ms > 0 ? o->connect_timeout_ms : 10000;
	http->stall_ms = o->stall_ms > 0 ? o->stall_ms : 10000;
	http->stall_rate = o->stall_rate > 0 ? o->stall_rate : 1024;
	http->max_host_connections = MAX(o->max_host_connections, 0);
	http->budget = o->budget;
	http->private_links = o->private_links;
	http->logins = o->logins;
	if (o->source_url)
		r = set_source(http, o->source_url);
	if (r == 0 && o->header_file)
		r = http_secrets_load(http, o->header_file);
	else if (r == 0 && header)
		r = http_secrets_add(http, header);
	if (r == 0 && o->cacert) {
		int fd = open(o->cacert, O_RDONLY | O_CLOEXEC);

		if (fd < 0) {
			r = -errno;
			carton_log(CARTON_LOG_ERROR, o->cacert,
				   "the file of trusted authorities cannot be read: %s",
				   strerror(-r));
		} else {
			fd_close(fd);
			http->cacert = strdup(o->cacert);
			r = http->cacert ? 0 : -ENOMEM;
		}
	}
	return r < 0 ? r : http_proxies_load(&http->proxies);
}

static int start_thread(struct http *http)
{
	int r;

	http->multi = curl_multi_init();
	if (!http->multi)
		return -ENOMEM;
	/*
	 * Connections are reused, HTTP/2 ones too, but parallel transfers never share one: a server
	 * that limits the speed of each connection would limit them together.
	 */
	curl_multi_setopt(http->multi, CURLMOPT_PIPELINING, CURLPIPE_NOTHING);
	curl_multi_setopt(http->multi, CURLMOPT_MAXCONNECTS, 32L);
	curl_multi_setopt(http->multi, CURLMOPT_MAX_HOST_CONNECTIONS, http->max_host_connections);
	r = thread_start(&http->thread, run, http);
	http->running = r == 0;
	return r;
}

int http_new(const struct http_options *options, struct http **ret)
{
	struct http *http;
	int r = http_load_curl();

	if (r < 0)
		return r;
	http = calloc(1, sizeof(*http));
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
	http_secrets_finish(http);
	http_target_finish(&http->source);
	free(http->source_url);
	http_proxies_finish(&http->proxies);
	free(http->cacert);
	pthread_mutex_destroy(&http->lock);
	free(http);
	curl_global_cleanup();
}
