/* SPDX-License-Identifier: Apache-2.0 */
#include "fetch/reach.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/cancel.h"
#include "base/semaphore.h"
#include "base/util.h"
#include "fetch/mirrors.h"
#include "http/http.h"

struct reaching {
	struct semaphore news;
	struct cancel_hook hook;
};

static void on_news(void *ctx)
{
	struct reaching *x = ctx;

	semaphore_post(&x->news);
}

static void on_cancel(struct cancel_hook *hook)
{
	on_news(container_of(hook, struct reaching, hook));
}

/* Sends a request, and waits for the answer: 0, whatever the status; or why there is none. */
static int ask(const struct fetch_options *o, const char *url)
{
	/* a failure is logged by the next request, not here */
	atomic_bool logged = true;
	const struct http_request q = { .url = url,
					.trust = HTTP_USER,
					.identity = true,
					.untold = true,
					.logged_once = &logged };
	struct reaching x = { .hook.fire = on_cancel };
	int64_t until = now_ms() + o->timeout_ms;
	struct http_stream *stream;
	struct http_response answer;
	char *to;
	int r;

	semaphore_init(&x.news, 0);
	r = http_start_request(o->http, &q, on_news, &x, &stream);
	if (r == 0) {
		cancel_hook_add(o->cancel, &x.hook);
		while ((r = http_answer(stream, &answer)) == -EAGAIN)
			if (cancel_fired(o->cancel) || !semaphore_wait(&x.news, until))
				break;
		/* it has answered by https, even if its redirect leads to a failure */
		to = http_answered_by(stream);
		if (r < 0 && to)
			r = 0;
		free(to);
		http_close(stream);
		cancel_hook_remove(o->cancel, &x.hook);
	}
	semaphore_finish(&x.news);
	return cancel_fired(o->cancel) ? -ECANCELED : r;
}

/* Asks an https server, a URL without a path. 1: it has no https; 0: it has, or may; -errno. */
static int lacks_https(const struct fetch_options *o, const char *server)
{
	char *url;
	int r;

	if (asprintf(&url, "%s/v2/", server) < 0)
		return -ENOMEM;
	r = ask(o, url);
	free(url);
	if (r == -ECONNREFUSED || r == -EPROTONOSUPPORT)
		return 1;
	return r == -ECANCELED || r == -ENOMEM ? r : 0;
}

int fetch_reach(const struct fetch_options *o, struct repository *repo)
{
	int r;

	if (!repo->plain || strncmp(repo->server, "https:", 6) != 0)
		return 0;
	r = lacks_https(o, repo->server);
	if (r > 0)
		repository_by_http(repo, true);
	return r < 0 ? r : 0;
}

static int use_http(struct registry_mirror *m, struct mirrors *templates)
{
	char *text;
	int r;

	if (asprintf(&text, "http%s", m->base + strlen("https")) < 0)
		return -ENOMEM;
	r = mirrors_replace(templates, m->base, text);
	free(m->base);
	m->base = text;
	m->plain = false;
	return r;
}

int fetch_reach_mirrors(const struct fetch_options *o, struct registry_mirror *list, size_t n,
			struct mirrors *templates)
{
	int r = 0;

	for (size_t i = 0; i < n && r >= 0; i++) {
		char *server;

		if (!list[i].plain)
			continue;
		server = strndup(list[i].base,
				 (size_t)(strstr(list[i].base, "/v2/") - list[i].base));
		r = server ? lacks_https(o, server) : -ENOMEM;
		free(server);
		if (r > 0)
			r = use_http(&list[i], templates);
	}
	return r < 0 ? r : 0;
}
