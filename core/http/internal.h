/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the two halves of HTTP share: http.c is called by the readers' threads; http_multi.c, with
 * http_hop.c, is the one thread that drives libcurl. They meet in a stream's lock (its bytes and
 * its outcome) and in http's lock (the queue of things the thread shall do). The one place that
 * includes libcurl's headers.
 */
#ifndef CARTON_HTTP_INTERNAL_H
#define CARTON_HTTP_INTERNAL_H

#include <curl/curl.h>

#include "http/http.h"
#include "http/policy.h"
#include "http/response.h"
#include "base/util.h"

#if LIBCURL_VERSION_NUM < 0x075700
#error "libcurl 7.87 or newer is needed"
#endif

enum http_action {
	HTTP_ACT_START = 1,
	HTTP_ACT_RESUME = 2,
	HTTP_ACT_CLOSE = 4,
};

#define HTTP_STALL_SAMPLES 11 /* ten intervals */

struct http_sample {
	int64_t when_ms;
	int64_t bytes;
};

struct http {
	/* constant after http_start */
	long connect_timeout_ms, stall_ms, stall_rate, max_host_connections;
	bool private_links;
	char *cacert;
	char **headers;
	struct http_target origin;
	struct http_proxies proxies;
	CURLM *multi;
	pthread_t thread;
	bool running; /* the thread is there; of http_start and http_stop */

	pthread_mutex_t lock;
	bool stopping;				/* guarded by lock, as is multi's wakeup */
	struct http_stream *queue, **queue_end; /* guarded by lock; holds a reference to each */

	/* the thread's */
	struct http_stream *live; /* holds a reference to each */
	bool userinfo_told;	  /* that it is not sent */
};

struct http_stream {
	struct http *http;
	atomic_uint refs;
	struct http_cancel *cancel;
	struct http_stream *cancel_next; /* guarded by cancel->lock */

	/* the request, constant after http_open */
	bool head_only, identity, undecoded;
	enum http_trust trust;
	char range[48];
	char *start_url;
	struct curl_slist *lines;

	pthread_mutex_t lock;
	pthread_cond_t changed;
	/* guarded by lock; what is between tail and head is the reader's, the rest the thread's */
	char *ring;
	uint64_t head, tail;
	bool ready;	     /* response is there */
	bool done;	     /* nothing more comes */
	bool paused;	     /* the thread waits for room */
	int64_t deadline_ms; /* 0: none */
	bool overdue;	     /* the deadline has been reported */
	bool closed;	     /* its reader is gone, and `told` may be */
	atomic_bool *told;
	int error; /* with done: 0 or -errno */
	struct http_response response;

	/* guarded by http->lock */
	unsigned actions;
	struct http_stream *queue_next;

	/* the thread's own (http_open fills target before it hands the stream over) */
	struct http_stream *live_next, **live_link;
	CURL *easy;
	struct curl_slist *sent;
	struct http_target target;
	char *seen[HTTP_MAX_REDIRECTS + 1];
	unsigned n_seen;
	bool strayed; /* has left the origin: no credentials any more */
	bool proxied, connected, held, head_done, redirected, refused, finished;
	unsigned allowed; /* address classes, HTTP_ALLOW */
	enum http_address_class class, refused_class;
	struct http_head response_head;
	uint64_t received, discarded;
	int64_t expected; /* bytes that must be received; -1: unknown */
	int fault;	  /* why a callback ended the transfer */
	const char *fault_why;
	struct http_sample samples[HTTP_STALL_SAMPLES];
	unsigned n_samples;
	char error_text[CURL_ERROR_SIZE];
};

/* http.c */
struct http_stream *http_stream_ref(struct http_stream *stream);
void http_stream_unref(struct http_stream *stream);

/*
 * http_hop.c: one request for s->target. begin returns 0, or -errno with the reason in `ret_why`,
 * NULL when it is an address (see refused). end is for any time.
 */
int http_hop_begin(struct http_stream *stream, const char **ret_why);
void http_hop_end(struct http_stream *stream);

/* http_multi.c: the thread, and the wake-up of it. -ESHUTDOWN once http_stop was called. */
void *http_thread(void *http);
int http_post(struct http_stream *stream, enum http_action action);

/* Logs, without what must stay private in a URL. */
void http_log(enum carton_log_level level, const char *url, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Where a failure of the stream belongs, which is then said to be told. Takes the stream's lock. */
enum carton_log_level http_failure_level(struct http_stream *stream);

#endif
