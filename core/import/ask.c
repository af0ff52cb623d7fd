/* SPDX-License-Identifier: Apache-2.0 */
#include "base/budget.h"
#include "cache/file.h"
#include "fetch/fetcher.h"
#include "import/internal.h"

/* Called before the body of a good answer: keeps the URL of the next page. */
static int answered(void *ctx, const struct http_response *a)
{
	memcpy(ctx, a->next, sizeof(a->next));
	return 0;
}

static int ask(const struct import *im, const char *url, struct file *dest, struct buf *ret,
	       char ret_next[HTTP_MAX_NEXT])
{
	struct fetch_place place = { .url = url, .trust = HTTP_USER };
	const struct fetch f = {
		.options = im->fetch,
		.cancel = im->fetch->cancel,
		.what = FETCH_FILE,
		.places = &place,
		.n_places = 1,
		.plain = true,
		.dest = dest,
		.answered = answered,
		.ctx = ret_next,
	};
	uint64_t size;
	int r;

	ret_next[0] = '\0';
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

int import_ask(const struct import *im, const char *url, struct buf *ret,
	       char ret_next[HTTP_MAX_NEXT])
{
	struct file *dest;
	char shown[256];
	int r = budget_take(im->budget, 2 * MAX_LISTING_PAGE);

	if (r < 0)
		return r;
	*ret = buf_init(MAX_LISTING_PAGE);
	r = file_memory(MAX_LISTING_PAGE, &dest);
	if (r == 0) {
		r = ask(im, url, dest, ret, ret_next);
		file_abort(dest, false);
	}
	if (r == -ENOSPC || r == -EFBIG)
		r = log_error(-EFBIG, http_url_redact(url, shown, sizeof(shown)),
			      "the hub's answer is larger than %llu MiB",
			      (unsigned long long)(MAX_LISTING_PAGE / MIB));
	budget_give(im->budget, 2 * MAX_LISTING_PAGE);
	return r;
}
