/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that send a body. */
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "http/internal.h"

#define SEND_BUFFER (256 * KIB)

/* ---- libcurl's callbacks ---- */

/* The owner may not close the stream meanwhile: the body is its own. */
static size_t on_send(char *to, size_t size, size_t n, void *ctx)
{
	struct http_stream *s = ctx;
	ssize_t got = -ECANCELED;

	n = (size_t)MIN(size * n, s->body.size - s->sent_body);
	if (n == 0)
		return 0;
	pthread_mutex_lock(&s->lock);
	if (!s->closed)
		got = s->body.read(s->body.ctx, to, n, s->sent_body);
	pthread_mutex_unlock(&s->lock);
	if (got <= 0) {
		s->fault = got < 0 ? (int)got : -EIO;
		s->fault_why = "what is to be sent there cannot be read";
		return CURL_READFUNC_ABORT;
	}
	s->sent_body += (uint64_t)got;
	return (size_t)got;
}

/* A connection that was kept has ended before the server got anything. */
static int on_seek(void *ctx, curl_off_t off, int origin)
{
	struct http_stream *s = ctx;

	if (origin != SEEK_SET || off < 0 || (uint64_t)off > s->body.size)
		return CURL_SEEKFUNC_FAIL;
	s->sent_body = (uint64_t)off;
	return CURL_SEEKFUNC_OK;
}

int http_upload_set(struct http_stream *s)
{
	CURL *e = s->easy;
	int r = 0;

	s->sent_body = 0;
	r |= (int)curl_easy_setopt(e, CURLOPT_UPLOAD, 1L);
	r |= (int)curl_easy_setopt(e, CURLOPT_CUSTOMREQUEST, s->sends);
	r |= (int)curl_easy_setopt(e, CURLOPT_INFILESIZE_LARGE, (curl_off_t)s->body.size);
	r |= (int)curl_easy_setopt(e, CURLOPT_UPLOAD_BUFFERSIZE, (long)SEND_BUFFER);
	r |= (int)curl_easy_setopt(e, CURLOPT_READFUNCTION, on_send);
	r |= (int)curl_easy_setopt(e, CURLOPT_READDATA, s);
	r |= (int)curl_easy_setopt(e, CURLOPT_SEEKFUNCTION, on_seek);
	r |= (int)curl_easy_setopt(e, CURLOPT_SEEKDATA, s);
	return r;
}

bool http_upload_over(const struct http_stream *s)
{
	return s->sends && !s->asks && s->sent_body == s->body.size && !s->header_done;
}

/* ---- the owner's side ---- */

/*
 * The path and query of `to` at the origin `from`, which has answered. A server behind a proxy for
 * TLS does not know the scheme and the port that its client asks. malloc'ed; NULL: `to` has another
 * host, or a port that is neither that of `from` nor the default.
 */
static char *at_same_host(const struct http_target *from, const struct http_target *to)
{
	bool named = to->port == from->port || to->port == (to->https ? 443 : 80);
	struct http_url_parts a, b;
	char *url;

	if (strcasecmp(from->host, to->host) != 0 || !named || (to->https && !from->https) ||
	    !http_url_split(from->url, &a) || !http_url_split(to->url, &b) ||
	    asprintf(&url, "%.*s%s", (int)a.path, from->url, to->url + b.path) < 0)
		return NULL;
	return url;
}

char *http_location(struct http_stream *s)
{
	struct http_target to = { 0 };
	char *text = NULL, *url = NULL;
	const char *why;

	/* the network thread does not change them after it has published the response */
	pthread_mutex_lock(&s->lock);
	if (s->ready && s->response_header.location)
		text = strdup(s->response_header.location);
	pthread_mutex_unlock(&s->lock);
	if (text && http_target_parse(&s->target, text, &to, &why) == 0)
		url = at_same_host(&s->target, &to);
	http_target_finish(&to);
	free(text);
	return url;
}
