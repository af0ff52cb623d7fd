/* SPDX-License-Identifier: Apache-2.0 */
#include "base/budget.h"
#include "cache/file.h"
#include "fetch/fetcher.h"
#include "import/internal.h"

/* an answer, and its copy on the way; then the longest text that it may have */
#define ANSWER (2 * MAX_LISTING_PAGE)

struct asking {
	const struct import *im;
	const struct listing *l;
	struct import_question *q;
};

static char *show(const struct asking *a, char shown[256])
{
	return http_url_redact(a->q->url, shown, 256);
}

/* Called before the body of a good answer. */
static int answered(void *ctx, const struct http_response *answer)
{
	const struct asking *a = ctx;
	char shown[256];

	if (answer->elsewhere && !a->q->anywhere && a->q->mirror)
		return -EACCES;
	if (answer->elsewhere && !a->q->anywhere)
		return log_error(-EACCES, show(a, shown),
				 "redirects to another server, which does not say what %s has",
				 a->l->name);
	a->q->answer = *answer;
	return 0;
}

static void refused(void *ctx, const struct http_response *answer)
{
	const struct asking *a = ctx;
	int r = http_status_errno(answer->status);

	if (a->q->mirror)
		return;
	if (!a->q->may_lack || (r != -ENOENT && r != -EPROTO))
		a->l->lister->refused(a->im, a->l, answer);
}

static int ask(struct asking *a, struct file *dest, struct buf *ret)
{
	struct fetch_place place = { .url = a->q->url, .trust = HTTP_USER, .mirror = a->q->mirror };
	const struct fetch f = {
		.options = a->im->fetch,
		.cancel = a->im->fetch->cancel,
		.what = FETCH_FILE,
		.places = &place,
		.n_places = 1,
		.plain = true,
		.accept = a->q->accept,
		/* a page that comes byte by byte would never end */
		.deadline_ms = now_ms() + a->im->fetch->timeout_ms,
		.dest = dest,
		.answered = answered,
		.refused = refused,
		.ctx = a,
	};
	uint64_t size;
	int r;

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

int import_get(const struct import *im, const struct listing *l, struct import_question *q,
	       struct buf *ret)
{
	struct asking a = { im, l, q };
	struct file *dest;
	char shown[256];
	int r = budget_take(im->budget, ANSWER);

	if (r < 0)
		return r;
	*ret = buf_init(MAX_LISTING_PAGE);
	r = file_memory(MAX_LISTING_PAGE, &dest);
	if (r == 0) {
		r = ask(&a, dest, ret);
		file_abort(dest, false);
	}
	if (r == -ENOSPC || r == -EFBIG)
		r = log_error(-EFBIG, show(&a, shown), "the answer is larger than %llu MiB",
			      (unsigned long long)(MAX_LISTING_PAGE / MIB));
	if (r < 0) {
		buf_finish(ret);
		budget_give(im->budget, ANSWER);
	}
	return r;
}

int import_ask(const struct import *im, const struct listing *l, const char *url, struct buf *ret,
	       char ret_next[HTTP_MAX_NEXT])
{
	struct import_question q = { .url = url };
	int r = import_get(im, l, &q, ret);

	memcpy(ret_next, q.answer.next, sizeof(q.answer.next));
	return r;
}

void import_forget(const struct import *im, struct buf *answer)
{
	if (answer->data)
		budget_give(im->budget, ANSWER);
	buf_finish(answer);
}
