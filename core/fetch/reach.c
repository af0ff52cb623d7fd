/* SPDX-License-Identifier: Apache-2.0 */
#include "fetch/reach.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/cancel.h"
#include "base/semaphore.h"
#include "base/util.h"
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

/* Waits for an answer, whatever it is: 0, or why there is none. */
static int ask(const struct fetch_options *o, const char *url)
{
	/* whoever asks next logs what fails */
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
	int r;

	semaphore_init(&x.news, 0);
	r = http_start_request(o->http, &q, on_news, &x, &stream);
	if (r == 0) {
		cancel_hook_add(o->cancel, &x.hook);
		while ((r = http_answer(stream, &answer)) == -EAGAIN)
			if (cancel_fired(o->cancel) || !semaphore_wait(&x.news, until))
				break;
		http_close(stream);
		cancel_hook_remove(o->cancel, &x.hook);
	}
	semaphore_finish(&x.news);
	return cancel_fired(o->cancel) ? -ECANCELED : r;
}

int fetch_reach(const struct fetch_options *o, struct repository *repo)
{
	char *url;
	int r;

	if (!repo->plain || strncmp(repo->server, "https:", 6) != 0)
		return 0;
	if (asprintf(&url, "%s/v2/", repo->server) < 0)
		return -ENOMEM;
	r = ask(o, url);
	free(url);
	if (r == -ECONNREFUSED || r == -EPROTONOSUPPORT)
		repository_by_http(repo, true);
	return r == -ECANCELED || r == -ENOMEM ? r : 0;
}
