/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokens for anonymous requests, as OCI registries want them. A 401 says where to get one: it is
 * asked for, without credentials, and the request is sent again with it. It is kept until it
 * expires, and sent to the origin of that 401 only, and not behind a redirect.
 *
 * A server that may be anybody's says where the token server is. So that is reached by the rules of
 * a redirect: it gets a GET, at an address that a redirect may lead to; the token that it gives can
 * be had by whoever sent us there.
 */
#include <stdio.h>
#include <stdlib.h>

#include "http/challenge.h"
#include "http/internal.h"

struct http_token {
	struct http_token *next;
	unsigned id;		   /* from 1 */
	struct http_target target; /* of the request for which it was asked */
	struct challenge challenge;
	char *line;	   /* to send */
	int64_t expiry_ms; /* by now_ms() */
};

struct http_token_request {
	struct challenge challenge;
	struct http_target target; /* of the token server; while that is asked, of the request */
	unsigned allowed;	   /* its addresses, likewise */
};

/* ---- tokens that are kept; http->secrets is held ---- */

/* Removes and frees the token at *at. */
static void drop(struct http_token **at)
{
	struct http_token *t = *at;

	*at = t->next;
	http_target_finish(&t->target);
	explicit_bzero(t->line, strlen(t->line));
	free(t->line);
	free(t);
}

void http_tokens_finish(struct http *http)
{
	while (http->tokens)
		drop(&http->tokens);
}

static bool same_challenge(const struct challenge *a, const struct challenge *b)
{
	return strcmp(a->realm, b->realm) == 0 && strcmp(a->service, b->service) == 0 &&
	       strcmp(a->scope, b->scope) == 0;
}

/* The token for what a server has asked for; NULL: there is none. Drops those that have expired. */
static struct http_token *find(struct http *http, const struct http_target *target,
			       const struct challenge *c)
{
	struct http_token **at = &http->tokens;
	int64_t now = now_ms();

	while (*at) {
		if ((*at)->expiry_ms <= now)
			drop(at);
		else if (http_same_origin(&(*at)->target, target) &&
			 same_challenge(&(*at)->challenge, c))
			return *at;
		else
			at = &(*at)->next;
	}
	return NULL;
}

/* Adds a token, which has no id yet, in the place of the one that was for the same. */
static void keep(struct http *http, struct http_token *t)
{
	struct http_token *old = find(http, &t->target, &t->challenge), **at = &http->tokens;
	unsigned n = 0;

	t->id = ++http->last_token;
	t->next = http->tokens;
	http->tokens = t;
	while (*at) {
		if (*at == old || n == HTTP_MAX_TOKENS)
			drop(at);
		else
			at = &(*at)->next, n++;
	}
}

static size_t common(const char *a, const char *b)
{
	size_t n = 0;

	while (a[n] && a[n] == b[n])
		n++;
	return n;
}

int http_token_set(struct http_stream *s)
{
	struct http_token *best = NULL;
	size_t longest = 0;

	for (struct http_token *t = s->http->tokens; t; t = t->next) {
		size_t n = t->id == s->token ? SIZE_MAX : common(t->target.url, s->target.url);

		if (http_same_origin(&t->target, &s->target) && t->expiry_ms > now_ms() &&
		    n > longest) {
			best = t;
			longest = n;
		}
	}
	s->token = best ? best->id : 0;
	return best ? http_add_line(&s->sent, best->line) : 0;
}

/* ---- the way to a new one ---- */

void http_token_request_free(struct http_token_request *q)
{
	if (q)
		http_target_finish(&q->target);
	free(q);
}

/* Where to ask. 0; -EACCES: not there. */
static int find_server(const struct http_stream *s, struct http_token_request *q)
{
	char *url = challenge_url(&q->challenge);
	const char *why;
	int r = url ? http_target_parse(NULL, url, &q->target, &why) : -ENOMEM;

	free(url);
	if (r < 0)
		return r;
	q->allowed = http_allowed_next(s);
	if (q->target.https)
		return 0;
	/* the token could be read on the way */
	q->allowed &= HTTP_ALLOW(HTTP_ADDRESS_LOOPBACK);
	return !s->target.https && http_host_class(q->target.host) == HTTP_ADDRESS_LOOPBACK ?
		       0 :
		       -EACCES;
}

bool http_token_wanted(struct http_stream *s)
{
	const char *text = s->response_header.challenge;
	struct http_token_request *q;

	if (s->response_header.response.status != 401 || !text || s->token_tried ||
	    s->left_origin || s->login || s->headers_sent)
		return false;
	q = calloc(1, sizeof(*q));
	if (!q || challenge_parse(text, &q->challenge) < 0 || find_server(s, q) < 0) {
		http_token_request_free(q);
		return false;
	}
	s->token_tried = true;
	s->token_request = q;
	return true;
}

/* Puts the stream's own request aside for that of a token, or takes it up again. */
static void swap(struct http_stream *s)
{
	struct http_token_request *q = s->token_request;
	struct http_target target = s->target;
	unsigned allowed = s->allowed;

	s->target = q->target;
	s->allowed = q->allowed;
	q->target = target;
	q->allowed = allowed;
	s->asks = !s->asks;
}

static void end_request(struct http_stream *s)
{
	http_token_request_free(s->token_request);
	s->token_request = NULL;
}

void http_token_begin(struct http_stream *s)
{
	struct http_token *t;
	bool there;

	pthread_mutex_lock(&s->http->secrets);
	t = find(s->http, &s->target, &s->token_request->challenge);
	/* another request has got a new one since this was sent */
	there = t && t->id != s->token;
	if (there)
		s->token = t->id;
	pthread_mutex_unlock(&s->http->secrets);
	if (there)
		end_request(s);
	else
		swap(s);
}

int http_token_end(struct http_stream *s, const char **ret_why)
{
	struct http_token *t = calloc(1, sizeof(*t));
	char *text = NULL;
	const char *why;
	int64_t seconds;
	int r = t ? token_parse(s->kept.data ? s->kept.data : "", s->kept.len, &text, &seconds) :
		    -ENOMEM;

	if (s->kept.data)
		explicit_bzero(s->kept.data, s->kept.cap);
	s->kept.len = 0;
	*ret_why = r == -EBADMSG ? "the token server sends no token" : "out of memory";
	if (r == 0)
		r = http_target_parse(NULL, s->token_request->target.url, &t->target, &why);
	if (r == 0 && asprintf(&t->line, "Authorization: Bearer %s", text) < 0)
		r = -ENOMEM;
	if (text)
		explicit_bzero(text, strlen(text));
	free(text);
	if (r < 0) {
		if (t)
			http_target_finish(&t->target);
		free(t);
		return r == -ENOMEM ? r : -EACCES;
	}
	t->challenge = s->token_request->challenge;
	t->expiry_ms = now_ms() + seconds * 1000;
	swap(s);
	end_request(s);
	pthread_mutex_lock(&s->http->secrets);
	keep(s->http, t);
	s->token = t->id;
	pthread_mutex_unlock(&s->http->secrets);
	return 0;
}
