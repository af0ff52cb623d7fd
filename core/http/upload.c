/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that send a body. */
#include <stdlib.h>

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
	if (text && http_target_parse(&s->target, text, &to, &why) == 0 &&
	    http_same_origin(&s->target, &to))
		url = strdup(to.url);
	http_target_finish(&to);
	free(text);
	return url;
}
