/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokens, as OCI registries want them. A 401 says where to get one: it is asked for, without
 * credentials, and the request is sent again with it. It is kept until it
 * expires, and sent to the origin of that 401 only, and not behind a redirect; and there to the
 * URLs of the repository that its scope names, or to those in the directory of the URL that wanted
 * it. What lies elsewhere may want another, or what the user has for this origin.
 *
 * A server that may be anybody's says where the token server is. So that is reached by the rules of
 * a redirect: it gets a GET, at an address that a redirect may lead to; the token that it gives can
 * be had by whoever sent us there.
 *
 * Many requests may be refused when a token ends: one of them asks for the next, the others wait.
 *
 * A token is asked for with the scopes of the challenge, and with the one that the request needs:
 * some registries name no scope, or that of another repository. If the token server refuses, it is
 * asked once more for the needed scope alone.
 *
 * What the user has for a registry (scheme.h) goes to the server that this registry names, or to
 * itself, where it asks for a password in place of a token; and only for URLs that the user has
 * named. A token that was got so is not for what LINKS names there.
 */
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "http/challenge.h"
#include "http/internal.h"
#include "http/reference.h"
#include "http/registries.h"

struct http_token {
	struct http_token *next;
	unsigned id;		   /* from 1; the same token may be kept for several areas */
	struct http_target target; /* of a request that has wanted it: */
	size_t area;		   /* the URLs that begin with so much of its URL get it */
	struct challenge challenge;
	struct login *login; /* with which it was got: it is for the user's URLs only; or NULL */
	char *line;	     /* to send */
	int64_t expiry_ms;   /* by now_ms() */
};

struct http_token_request {
	struct challenge challenge;
	bool more;		   /* the challenge has scopes besides the one that is needed */
	struct login *login;	   /* to ask with; or NULL */
	struct http_target target; /* of the token server; while that is asked, of the request */
	unsigned allowed;	   /* its addresses, likewise */
};

/* ---- tokens that are kept; http->secrets is held ---- */

static void token_free(struct http_token *t)
{
	http_target_finish(&t->target);
	if (t->line)
		explicit_bzero(t->line, strlen(t->line));
	free(t->line);
	free(t);
}

/* Removes and frees the token at *at. */
static void drop(struct http_token **at)
{
	struct http_token *t = *at;

	*at = t->next;
	token_free(t);
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

bool http_is_overheard(const struct http_stream *s)
{
	return s->proxied && !s->target.https;
}

/*
 * What the user has for the server of the stream, if the stream is for a URL that the user has
 * named; or NULL.
 */
static struct login *login_for(const struct http_stream *s)
{
	const struct http_target *t = &s->target;
	bool may = s->trust == HTTP_USER && !s->left_origin && !http_is_overheard(s);
	struct login *l = may ? s->http->logins : NULL;

	/* a read may go on without one that was refused, but nothing is pushed so */
	while (l && !(l->host && l->ports[t->https] == t->port && (!l->refused || s->sends) &&
		      strcasecmp(l->host, t->host) == 0))
		l = l->next;
	return l;
}

/* The token for what a server has asked for; NULL: there is none. Drops those that have expired. */
static struct http_token *find(const struct http_stream *s, const struct http_token_request *q)
{
	struct http_token **at = &s->http->tokens;
	int64_t now = now_ms();

	while (*at) {
		if ((*at)->expiry_ms <= now)
			drop(at);
		else if ((*at)->login == q->login && http_same_origin(&(*at)->target, &s->target) &&
			 same_challenge(&(*at)->challenge, &q->challenge))
			return *at;
		else
			at = &(*at)->next;
	}
	return NULL;
}

static size_t common(const char *a, const char *b)
{
	size_t n = 0;

	while (a[n] && a[n] == b[n])
		n++;
	return n;
}

static bool is_for(const struct http_token *t, const struct http_target *target)
{
	return http_same_origin(&t->target, target) &&
	       common(t->target.url, target->url) >= t->area;
}

/* The length of a URL up to and with /NAME/, of at most `n` bytes; 0: it has no /NAME/. */
static size_t behind_name(const char *url, size_t n, const char *name, size_t name_n)
{
	for (size_t i = 0; name_n > 0 && i + name_n + 1 < n; i++)
		if (url[i] == '/' && url[i + name_n + 1] == '/' &&
		    strncmp(url + i + 1, name, name_n) == 0)
			return i + name_n + 2;
	return 0;
}

/* Where the area of a URL ends: behind the repository of a scope `repository:NAME:ACTIONS`. */
static size_t area_of(const char *url, const struct challenge *c)
{
	size_t n = strcspn(url, "?"), len;

	for (const char *p = c->scope; *(p += strspn(p, " ")); p += len) {
		const char *name = strchr(p, ':'), *end;
		size_t area;

		len = strcspn(p, " ");
		end = memrchr(p, ':', len);
		area = end && end > name ? behind_name(url, n, name + 1, (size_t)(end - name - 1)) :
					   0;
		if (area)
			return area;
	}
	while (url[n - 1] != '/')
		n--;
	return n;
}

/* Takes a token over, which replaces older ones for the same. */
static void add(struct http *http, struct http_token *t)
{
	struct http_token **at = &http->tokens;
	unsigned n = 1;

	while (*at) {
		if (n == HTTP_MAX_TOKENS ||
		    ((*at)->login == t->login && http_same_origin(&(*at)->target, &t->target) &&
		     same_challenge(&(*at)->challenge, &t->challenge) &&
		     ((*at)->id != t->id || is_for(*at, &t->target))))
			drop(at);
		else
			at = &(*at)->next, n++;
	}
	t->next = http->tokens;
	http->tokens = t;
}

/* Keeps a copy of a token for the stream's target, and has the stream send it. 0 or -ENOMEM. */
static int keep(struct http_stream *s, const struct http_token *like)
{
	struct http_token *t = malloc(sizeof(*t));
	const char *why;

	if (!t)
		return -ENOMEM;
	*t = *like;
	t->target = (struct http_target){ 0 };
	t->line = strdup(like->line);
	if (!t->line || http_target_parse(NULL, s->target.url, &t->target, &why) < 0) {
		token_free(t);
		return -ENOMEM;
	}
	t->area = area_of(t->target.url, &t->challenge);
	s->token = t->id;
	add(s->http, t);
	return 0;
}

static int send_login(struct http_stream *s, struct login *l)
{
	const char *line = l->scheme->line(l);

	s->login_sent = line ? l->version : 0;
	return line ? http_add_line(&s->sent, line) : 0;
}

int http_token_set(struct http_stream *s)
{
	struct login *login = login_for(s);
	struct http_token *best = NULL;
	size_t longest = 0;

	for (struct http_token *t = s->http->tokens; t; t = t->next) {
		size_t n = t->id == s->token ? SIZE_MAX : common(t->target.url, s->target.url);

		if (t->login == login && is_for(t, &s->target) && t->expiry_ms > now_ms() &&
		    n > longest) {
			best = t;
			longest = n;
		}
	}
	s->token = best ? best->id : 0;
	if (!best)
		return login && login->asked ? send_login(s, login) : 0;
	return http_add_line(&s->sent, best->line);
}

int http_token_sign(struct http_stream *s)
{
	struct login *l = http_is_overheard(s) ? NULL : s->token_request->login;

	return l ? send_login(s, l) : 0;
}

bool http_token_renews(struct http_stream *s)
{
	int status = s->response_header.response.status;
	struct login *l = s->asks ? s->token_request->login : login_for(s);
	bool again;

	if (!l || !s->login_sent || (status != 401 && status != 403))
		return false;
	pthread_mutex_lock(&s->http->secrets);
	again = l->scheme->renew(l, s->login_sent);
	pthread_mutex_unlock(&s->http->secrets);
	return again;
}

/* ---- the way to a new one ---- */

static void request_free(struct http_token_request *q)
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
	/* the user has named this host, in plain_http */
	if (s->trust == HTTP_USER &&
	    registries_named(s->http->registries, q->target.host, q->target.port)) {
		q->allowed = HTTP_ALLOW_ALL;
		return 0;
	}
	/* the token could be read on the way */
	q->allowed &= HTTP_ALLOW(HTTP_ADDRESS_LOOPBACK);
	return !s->target.https && http_host_class(q->target.host) == HTTP_ADDRESS_LOOPBACK ?
		       0 :
		       -EACCES;
}

/*
 * The name of the repository in a URL of a registry's API, within that; NULL: it is no such URL.
 * *ret_actions: what the request needs; all of a push needs the same, so that one token will do.
 */
static const char *repository_of(const struct http_stream *s, const char *url, size_t *ret_n,
				 const char **ret_actions)
{
	static const char *const whats[] = { "/manifests/", "/blobs/", "/referrers/", "/tags/" };
	struct http_url_parts p;
	const char *name, *end = NULL;

	if (!http_url_split(url, &p) || strncmp(url + p.path, "/v2/", 4) != 0)
		return NULL;
	name = url + p.path + 4;
	for (size_t i = 0; i < ARRAY_SIZE(whats) && !end; i++)
		end = memmem(name, (size_t)(url + p.query - name), whats[i], strlen(whats[i]));
	if (!end || !reference_is_name(name, (size_t)(end - name)))
		return NULL;
	*ret_n = (size_t)(end - name);
	*ret_actions = s->pushes ? "pull,push" : "pull";
	return name;
}

/* Adds the scope that the request needs to the challenge; `alone`: in place of those it has. */
static void add_need(struct http_stream *s, struct http_token_request *q, const char *url,
		     bool alone)
{
	const char *actions, *name;
	size_t n;

	name = repository_of(s, url, &n, &actions);
	q->more = name && challenge_need(&q->challenge, name, n, actions, alone) && !alone;
}

/* Logs once that the server wants a login which the user has, but which is not sent by http. */
static void log_unsent(struct http_stream *s)
{
	const struct http_target *t = &s->target;
	struct login *l = s->trust == HTTP_USER && !t->https ? s->http->logins : NULL;
	bool first;

	while (l && !(l->host && !l->refused && strcasecmp(l->host, t->host) == 0))
		l = l->next;
	if (!l)
		return;
	pthread_mutex_lock(&s->http->secrets);
	first = !s->http->unsent_logged;
	s->http->unsent_logged = true;
	pthread_mutex_unlock(&s->http->secrets);
	if (!first)
		return;
	http_log(CARTON_LOG_NOTICE, t->url,
		 "wants a login, which is not sent by http: plain_http=%s:%u allows it", t->host,
		 t->port);
}

bool http_token_wanted(struct http_stream *s)
{
	const char *text = s->response_header.challenge;
	struct login *login = login_for(s);
	struct http_token_request *q;

	if (s->response_header.response.status != 401 || !text || s->token_tried ||
	    s->left_origin || s->login || s->headers_sent)
		return false;
	if (!login)
		log_unsent(s);
	if (login && challenge_is_basic(text)) {
		pthread_mutex_lock(&s->http->secrets);
		login->asked = true;
		pthread_mutex_unlock(&s->http->secrets);
		s->token_tried = true;
		return true;
	}
	q = calloc(1, sizeof(*q));
	if (q)
		q->login = login;
	if (!q || challenge_parse(text, &q->challenge) < 0) {
		request_free(q);
		return false;
	}
	add_need(s, q, s->target.url, false);
	if (find_server(s, q) < 0) {
		request_free(q);
		return false;
	}
	s->token_tried = true;
	s->token_request = q;
	return true;
}

/* A login from a file was refused: no read uses it. True: the request is made without it. */
static bool forget_login(struct http_stream *s, struct login *l)
{
	unsigned port = l->ports[1] ? l->ports[1] : l->ports[0];
	char text[300];
	bool first = !atomic_exchange(&l->refused, true);

	snprintf(text, sizeof(text), port == 443 || port == 80 ? "%s" : "%s:%u", l->host, port);
	if (first)
		carton_log(CARTON_LOG_NOTICE, l->file,
			   "the login for %s is refused, and may have ended: docker login %s or "
			   "podman login %s saves another",
			   text, text, text);
	return !s->sends;
}

bool http_token_forgoes(struct http_stream *s)
{
	struct http_token_request *q = s->token_request;
	int status = s->response_header.response.status;
	struct login *l = s->asks ? q->login : login_for(s);
	bool ended = l && l->file && s->login_sent;
	struct http_target next;
	const char *why;
	char *url;
	int r;

	if (!s->asks)
		return ended && status == 401 && forget_login(s, l);
	/* 407 is about a proxy; of a login that has ended ghcr.io says 403, others 400 or 422 */
	if (status < 400 || status == 407 || status > 499 ||
	    error_passes(http_status_errno(status)))
		return false;
	/* who may not push may still read: the login stays */
	if (!q->more && !(ended && !s->sends && forget_login(s, l)))
		return false;
	/* other streams look whether this one asks for the token that they want */
	pthread_mutex_lock(&s->http->secrets);
	if (q->more)
		add_need(s, q, q->target.url, true);
	else
		q->login = NULL;
	pthread_mutex_unlock(&s->http->secrets);
	url = challenge_url(&q->challenge);
	r = url ? http_target_parse(NULL, url, &next, &why) : -ENOMEM;
	free(url);
	if (r < 0)
		return false;
	http_target_finish(&s->target);
	s->target = next;
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

/* Is the token that `s` wants asked for by another stream? Lock held. */
static bool is_asked_for(const struct http_stream *s)
{
	const struct http_token_request *q = s->token_request, *other;

	for (const struct http_stream *o = s->http->asking; o; o = o->asking_next) {
		other = o->token_request;
		if (o != s && o->asks && other->login == q->login &&
		    http_same_origin(&other->target, &s->target) &&
		    same_challenge(&other->challenge, &q->challenge))
			return true;
	}
	return false;
}

/* Leaves those that ask or wait; these look again. Lock held. */
static void leave(struct http_stream *s)
{
	struct http_stream **at = &s->http->asking;

	while (*at && *at != s)
		at = &(*at)->asking_next;
	if (!*at)
		return;
	*at = s->asking_next;
	for (struct http_stream *o = s->http->asking; o && s->asks; o = o->asking_next)
		if (o->token_waits)
			http_stream_post(o, HTTP_ACT_RESUME);
	s->token_waits = false;
}

static void end_request(struct http_stream *s)
{
	request_free(s->token_request);
	s->token_request = NULL;
}

bool http_token_begin(struct http_stream *s)
{
	struct http_token *t;
	bool waits = false;

	/* the login is what was wanted */
	if (!s->token_request)
		return true;
	pthread_mutex_lock(&s->http->secrets);
	leave(s);
	t = find(s, s->token_request);
	/* another request has got it, for another area or since this was sent */
	if (t && t->id != s->token && keep(s, t) == 0) {
		end_request(s);
	} else {
		waits = is_asked_for(s);
		s->token_waits = waits;
		if (!waits)
			swap(s);
		s->asking_next = s->http->asking;
		s->http->asking = s;
	}
	pthread_mutex_unlock(&s->http->secrets);
	/* it has no connection meanwhile that could stall */
	s->connected = false;
	return !waits;
}

void http_token_leave(struct http_stream *s)
{
	if (!s->token_request)
		return;
	pthread_mutex_lock(&s->http->secrets);
	leave(s);
	pthread_mutex_unlock(&s->http->secrets);
	end_request(s);
}

int http_token_end(struct http_stream *s, const char **ret_why)
{
	struct http_token t = { .challenge = s->token_request->challenge,
				.login = s->token_request->login };
	char *text = NULL;
	int64_t seconds;
	int r = token_parse(s->kept.data ? s->kept.data : "", s->kept.len, &text, &seconds);

	if (s->kept.data)
		explicit_bzero(s->kept.data, s->kept.cap);
	s->kept.len = 0;
	*ret_why = r == -EBADMSG ? "the token server sends no token" : "out of memory";
	if (r == 0 && asprintf(&t.line, "Authorization: Bearer %s", text) < 0)
		r = -ENOMEM;
	if (text)
		explicit_bzero(text, strlen(text));
	free(text);
	if (r < 0)
		return r == -ENOMEM ? r : -EACCES;
	pthread_mutex_lock(&s->http->secrets);
	leave(s);
	swap(s);
	end_request(s);
	t.id = ++s->http->last_token;
	t.expiry_ms = now_ms() + seconds * 1000;
	r = keep(s, &t);
	pthread_mutex_unlock(&s->http->secrets);
	explicit_bzero(t.line, strlen(t.line));
	free(t.line);
	return r;
}
