/* SPDX-License-Identifier: Apache-2.0 */
#include "base/budget.h"
#include "base/file_size.h"
#include "cache/file.h"
#include "fetch/fetcher.h"
#include "import/internal.h"

/* bytes of memory for each byte of an answer: one is for its copy, then for texts made of it */
#define ANSWER 2

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

	if (answer->elsewhere && !a->q->anywhere && a->q->quiet)
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

	if (a->q->quiet)
		return;
	if (!a->q->may_lack || (r != -ENOENT && r != -EPROTO))
		a->l->lister->refused(a->im, a->l, answer);
}

static int ask(struct asking *a, struct file *dest, uint64_t *ret_size)
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
	int r;

	route_init(&place.route);
	r = fetch_run(&f, ret_size);
	route_finish(&place.route);
	return r;
}

static int too_long(const struct asking *a)
{
	char shown[256];

	if (a->q->quiet)
		return -EFBIG;
	/* an answer is in a memory file */
	if (file_size_limit() < (a->q->max ? a->q->max : MAX_LISTING_PAGE))
		return log_error(-EFBIG, show(a, shown), "the answer cannot be kept: %s",
				 carton_write_error(-EFBIG));
	if (a->q->max)
		return log_error(-EFBIG, show(a, shown), "the answer is larger than %llu bytes",
				 (unsigned long long)a->q->max);
	return log_error(-EFBIG, show(a, shown), "the answer is larger than %llu MiB",
			 (unsigned long long)(MAX_LISTING_PAGE / MIB));
}

/* Counts memory beside what is counted already. 0 or -EFBIG. */
static int hold(const struct asking *a, uint64_t n)
{
	if (budget_hold(a->im->budget, n))
		return 0;
	return a->q->quiet ? -EFBIG : budget_refuse(a->im->budget, ANSWER * n);
}

/* Copies the answer, and counts what import_forget() gives back. Ends the file. */
static int take(const struct asking *a, struct file *dest, uint64_t size, struct buf *ret)
{
	int r = hold(a, size);
	bool held = r == 0;

	if (r == 0)
		r = buf_reserve(ret, size);
	if (r == 0)
		r = file_read(dest, ret->data, size, 0);
	file_abort(dest, false);
	if (r == 0)
		r = hold(a, size);
	if (r == 0)
		ret->len = size;
	else if (held)
		budget_drop(a->im->budget, size);
	return r;
}

/* Ends the file. Returns what became of an answer that was not fetched, logged. */
static int failed(const struct asking *a, struct file *dest, int r)
{
	bool short_of_memory = r == -ENOMEM && file_is_over(dest);
	uint64_t wanted = file_wanted(dest);

	file_abort(dest, false);
	if (short_of_memory)
		return a->q->quiet ? -EFBIG : budget_refuse(a->im->budget, ANSWER * wanted);
	return r == -ENOSPC || r == -EFBIG ? too_long(a) : r;
}

int import_get(const struct import *im, const struct listing *l, struct import_question *q,
	       struct buf *ret)
{
	const uint64_t max = q->max ? MIN(q->max, MAX_LISTING_PAGE) : MAX_LISTING_PAGE;
	struct asking a = { im, l, q };
	struct file *dest;
	uint64_t size;
	int r = file_memory(max, &dest);

	if (r < 0)
		return r;
	file_count(dest, im->budget);
	*ret = buf_init(max);
	r = ask(&a, dest, &size);
	r = r < 0 ? failed(&a, dest, r) : take(&a, dest, size, ret);
	if (r < 0)
		buf_finish(ret);
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

void import_uncount(const struct import *im, const struct buf *answer)
{
	budget_drop(im->budget, ANSWER * answer->len);
}

void import_forget(const struct import *im, struct buf *answer)
{
	import_uncount(im, answer);
	buf_finish(answer);
}
