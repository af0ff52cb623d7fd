/* SPDX-License-Identifier: Apache-2.0 */
/* One request, with its answer; and when it is sent again. */
#include <stdlib.h>

#include "base/semaphore.h"
#include "fetch/server.h"
#include "http/http.h"
#include "push/internal.h"

struct asking {
	struct push *p;
	struct http_stream *stream;
	struct cancel_hook hook;
	struct semaphore news;
	const struct http_body *body;
	_Atomic uint64_t sent; /* bytes of the body */
};

static void on_news(void *ctx)
{
	struct asking *a = ctx;

	semaphore_post(&a->news);
}

static void on_cancel(struct cancel_hook *hook)
{
	on_news(container_of(hook, struct asking, hook));
}

/* Counts what is sent; what is sent again counts once. */
static ssize_t read_body(void *ctx, void *ret, size_t n, uint64_t off)
{
	struct asking *a = ctx;
	ssize_t got = a->body->read(a->body->ctx, ret, n, off);
	uint64_t before = atomic_load(&a->sent);

	if (got > 0 && off + (uint64_t)got > before) {
		atomic_fetch_add(&a->p->done, off + (uint64_t)got - before);
		atomic_store(&a->sent, off + (uint64_t)got);
	}
	return got;
}

/*
 * Waits for news. 0; -ECANCELED; -ETIMEDOUT: nothing was sent, and nothing came, for too long.
 * Registries may hash a blob once more, or move it, before they answer.
 */
static int await(struct asking *a)
{
	struct push *p = a->p;
	uint64_t seen;

	do {
		bool news;

		seen = atomic_load(&a->sent);
		news = semaphore_wait(&a->news, now_ms() + p->c->fetch.timeout_ms);
		if (cancel_fired(&p->cancel))
			return -ECANCELED;
		if (news)
			return 0;
	} while (atomic_load(&a->sent) > seen);
	if (!atomic_exchange(&p->logged, true))
		carton_log(CARTON_LOG_WARNING, p->to->name,
			   "the registry %s has not answered for too long", p->host);
	return -ETIMEDOUT;
}

/* Reads the body to its end, so that the connection can be used again, unless it is too long. */
static int read_text(struct asking *a, struct buf *ret)
{
	for (;;) {
		const char *data;
		ssize_t got = http_peek(a->stream, &data);
		int r;

		if (got == -EAGAIN) {
			r = await(a);
			if (r < 0)
				return r;
			continue;
		}
		if (got <= 0)
			return (int)got;
		r = buf_add(ret, data, (size_t)got);
		if (r < 0)
			return r;
		http_skip(a->stream, (size_t)got);
	}
}

static int read_answer(struct asking *a, struct push_answer *ret)
{
	struct buf text = buf_init(HTTP_MAX_REDIRECT_BODY);
	int r;

	while ((r = http_answer(a->stream, &ret->head)) == -EAGAIN)
		if ((r = await(a)) < 0)
			return r;
	if (r < 0)
		return r;
	ret->location = http_location(a->stream);
	if (ret->body && ret->head.status < 300)
		return read_text(a, ret->body);
	r = read_text(a, &text);
	if (ret->head.status >= 400) {
		push_reason(text.data ? text.data : "", text.len, ret->why);
		atomic_store(&a->p->retry_after_s, ret->head.retry_after_s);
	}
	buf_finish(&text);
	return r == -ECANCELED || r == -ETIMEDOUT ? r : 0;
}

int push_ask(struct push *p, const struct http_request *q, struct push_answer *ret)
{
	struct asking a = { .p = p, .body = &q->body, .hook.fire = on_cancel };
	struct http_request request = *q;
	int r;

	request.identity = true;
	request.pushes = true;
	request.trust = HTTP_USER;
	request.logged_once = &p->logged;
	if (q->body.size) {
		request.body.read = read_body;
		request.body.ctx = &a;
	}
	semaphore_init(&a.news, 0);
	r = http_start_request(p->c->fetch.http, &request, on_news, &a, &a.stream);
	if (r == 0) {
		cancel_hook_add(&p->cancel, &a.hook);
		r = read_answer(&a, ret);
		http_close(a.stream);
		cancel_hook_remove(&p->cancel, &a.hook);
	}
	/* what is not there after all is sent again */
	if (r < 0 || http_status_errno(ret->head.status) < 0)
		atomic_fetch_sub(&p->done, atomic_load(&a.sent));
	if (r < 0) {
		free(ret->location);
		ret->location = NULL;
	}
	semaphore_finish(&a.news);
	return r;
}

int push_try_again(struct push *p, int r, unsigned attempt)
{
	int64_t pause = server_pause(attempt, atomic_load(&p->retry_after_s));

	if (r >= 0 || !error_passes(r) || cancel_fired(&p->cancel))
		return r;
	/* that it is not reached was logged */
	if (attempt == MAX_FETCH_ATTEMPTS)
		return r != -EAGAIN && r != -EBUSY ?
			       r :
			       log_error(-EREMOTEIO, p->to->name,
					 "the registry %s is overloaded, or fails; try again later",
					 p->host);
	cancel_sleep(&p->cancel, MIN(pause, p->c->fetch.timeout_ms));
	return -EINPROGRESS;
}
