/* SPDX-License-Identifier: Apache-2.0 */
/* One request, with its answer. */
#include <semaphore.h>
#include <stdlib.h>

#include "http/http.h"
#include "push/internal.h"

struct asking {
	struct push *p;
	struct http_stream *stream;
	struct cancel_hook hook;
	sem_t news;
	const struct http_body *body;
	_Atomic uint64_t sent; /* bytes of the body */
};

static void on_news(void *ctx)
{
	struct asking *a = ctx;

	sem_post(&a->news);
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
		struct timespec until = ms_to_timespec(now_ms() + p->c->fetch.timeout_ms);
		int r;

		seen = atomic_load(&a->sent);
		while ((r = sem_clockwait(&a->news, CLOCK_MONOTONIC, &until)) < 0 && errno == EINTR)
			;
		if (cancel_fired(&p->cancel))
			return -ECANCELED;
		if (r == 0)
			return 0;
	} while (atomic_load(&a->sent) > seen);
	if (!atomic_exchange(&p->logged, true))
		carton_log(CARTON_LOG_WARNING, p->to->name,
			   "the registry %s has not answered for too long", p->host);
	return -ETIMEDOUT;
}

static int read_answer(struct asking *a, struct push_answer *ret)
{
	char body[HTTP_MAX_REDIRECT_BODY];
	size_t n = 0;
	ssize_t got;
	int r;

	while ((r = http_answer(a->stream, &ret->head)) == -EAGAIN)
		if ((r = await(a)) < 0)
			return r;
	if (r < 0)
		return r;
	ret->location = http_location(a->stream);
	/* to its end, so that the connection can be used again */
	while (n < sizeof(body)) {
		const char *data;

		got = http_peek(a->stream, &data);
		if (got == -EAGAIN && (r = await(a)) < 0)
			return r;
		if (got == -EAGAIN)
			continue;
		if (got <= 0)
			break;
		got = (ssize_t)MIN((size_t)got, sizeof(body) - n);
		memcpy(body + n, data, (size_t)got);
		http_skip(a->stream, (size_t)got);
		n += (size_t)got;
	}
	if (ret->head.status >= 400) {
		push_reason(body, n, ret->why);
		atomic_store(&a->p->retry_after_s, ret->head.retry_after_s);
	}
	return 0;
}

int push_ask(struct push *p, const struct http_request *q, struct push_answer *ret)
{
	struct asking a = { .p = p, .body = &q->body, .hook.fire = on_cancel };
	struct http_request request = *q;
	int r;

	memset(ret, 0, sizeof(*ret));
	request.identity = true;
	request.trust = HTTP_USER;
	request.logged_once = &p->logged;
	if (q->body.size) {
		request.body.read = read_body;
		request.body.ctx = &a;
	}
	sem_init(&a.news, 0, 0);
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
	sem_destroy(&a.news);
	return r;
}
