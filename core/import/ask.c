/* SPDX-License-Identifier: Apache-2.0 */
#include "base/budget.h"
#include "cache/file.h"
#include "fetch/fetcher.h"
#include "import/internal.h"

/* an answer, and its copy on the way; then the longest text that it may have */
#define ANSWER (2 * MAX_LISTING_PAGE)

struct question {
	const struct import *im;
	const struct listing *l;
	const char *url;
	char *next; /* HTTP_MAX_NEXT bytes */
};

static char *show(const struct question *q, char shown[256])
{
	return http_url_redact(q->url, shown, 256);
}

/* Called before the body of a good answer: keeps the URL of the next page. */
static int answered(void *ctx, const struct http_response *a)
{
	const struct question *q = ctx;
	char shown[256];

	if (a->elsewhere)
		return log_error(-EACCES, show(q, shown),
				 "redirects to another server, which does not say what %s has",
				 q->l->name);
	memcpy(q->next, a->next, sizeof(a->next));
	return 0;
}

static void refused(void *ctx, const struct http_response *a)
{
	const struct question *q = ctx;

	q->l->lister->refused(q->im, q->l, a);
}

static int ask(struct question *q, struct file *dest, struct buf *ret)
{
	struct fetch_place place = { .url = q->url, .trust = HTTP_USER };
	const struct fetch f = {
		.options = q->im->fetch,
		.cancel = q->im->fetch->cancel,
		.what = FETCH_FILE,
		.places = &place,
		.n_places = 1,
		.plain = true,
		/* a page that comes byte by byte would never end */
		.deadline_ms = now_ms() + q->im->fetch->timeout_ms,
		.dest = dest,
		.answered = answered,
		.refused = refused,
		.ctx = q,
	};
	uint64_t size;
	int r;

	q->next[0] = '\0';
	route_init(&place.route);
	r = fetch_run(&f, &size);
	route_finish(&place.route);
	if (r == 0)
		r = buf_reserve(ret, size);
	if (r == 0)
		r = file_read(dest, ret->data, size, 0);
	if (r == 0)
		ret->len = size;
	return r;
}

int import_ask(const struct import *im, const struct listing *l, const char *url, struct buf *ret,
	       char ret_next[HTTP_MAX_NEXT])
{
	struct question q = { im, l, url, ret_next };
	struct file *dest;
	char shown[256];
	int r = budget_take(im->budget, ANSWER);

	if (r < 0)
		return r;
	*ret = buf_init(MAX_LISTING_PAGE);
	r = file_memory(MAX_LISTING_PAGE, &dest);
	if (r == 0) {
		r = ask(&q, dest, ret);
		file_abort(dest, false);
	}
	if (r == -ENOSPC || r == -EFBIG)
		r = log_error(-EFBIG, show(&q, shown), "the hub's answer is larger than %llu MiB",
			      (unsigned long long)(MAX_LISTING_PAGE / MIB));
	if (r < 0) {
		buf_finish(ret);
		budget_give(im->budget, ANSWER);
	}
	return r;
}

void import_forget(const struct import *im, struct buf *answer)
{
	if (answer->data)
		budget_give(im->budget, ANSWER);
	buf_finish(answer);
}
