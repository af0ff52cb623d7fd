/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "http/internal.h"

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
	int r;

	if (s3_is_url(url)) {
		http->s3_origin = strdup(url);
		return http->s3_origin ? 0 : -ENOMEM;
	}
	r = http_target_parse(NULL, url, &http->origin, &why);

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
	http->budget = o->budget;
	http->private_links = o->private_links;
	http->s3 = o->s3;
	if (o->origin_url)
		r = set_origin(http, o->origin_url);
	if (r == 0 && o->header_file)
		r = http_secrets_load(http, o->header_file);
	else if (r == 0 && o->header)
		r = http_secrets_add(http, o->header);
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
	r = thread_start(&http->thread, http_thread, http);
	http->running = r == 0;
	return r;
}

int http_start(const struct http_options *options, struct http **ret)
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
	http_secrets_free(http);
	http_target_free(&http->origin);
	free(http->s3_origin);
	http_proxies_free(&http->proxies);
	free(http->cacert);
	pthread_mutex_destroy(&http->lock);
	free(http);
	curl_global_cleanup();
}

/* ---- streams ---- */

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
	s->logged_once = q->logged_once;
	s->probe = q->probe;
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

/* The object store of the user's environment: any address of it is allowed. */
static int set_s3_target(struct http_stream *s, const char *url, const char **ret_why)
{
	const struct http *http = s->http;
	char *text;
	int r;

	*ret_why = s3_url_fault(url);
	if (*ret_why)
		return -EINVAL;
	*ret_why = "refused: LINKS may lead to the bucket of an s3 carton only";
	if (!http->s3 ||
	    (s->trust == HTTP_LINKS && (!http->s3_origin || !s3_same_bucket(url, http->s3_origin))))
		return -EACCES;
	text = s3_http_url(http->s3, url);
	if (!text)
		return -ENOMEM;
	s->s3 = true;
	s->trust = HTTP_USER;
	r = http_target_parse(NULL, text, &s->target, ret_why);
	free(text);
	return r;
}

static int set_target(struct http_stream *s, const struct http_request *q, const char **ret_why)
{
	if (!q->landing && s3_is_url(q->url))
		return set_s3_target(s, q->url, ret_why);
	if (!q->landing)
		return http_target_parse(NULL, q->url, &s->target, ret_why);
	s->landed = true;
	s->allowed = q->landing->allowed;
	s->left_origin = q->landing->left_origin;
	return http_target_parse(NULL, q->landing->url, &s->target, ret_why);
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
		http_log(http_failure_level(s), request->url, "%s", why);
	if (r == 0)
		r = http_post(s, HTTP_ACT_START);
	if (r < 0) {
		http_stream_unref(s);
		return r;
	}
	*ret = s;
	return 0;
}

void http_skip(struct http_stream *s, size_t n)
{
	if (http_stream_skip(s, n))
		http_post(s, HTTP_ACT_RESUME);
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
		http_post(s, HTTP_ACT_CLOSE);
	http_stream_unref(s);
}
