/* SPDX-License-Identifier: Apache-2.0 */
/* How long a file may be that a server sends: the least of what is known, and never without end. */
#include "base/util.h"
#include "fetch/internal.h"

static uint64_t bound_of(const struct fetcher *x)
{
	uint64_t max = x->f.options->max_size;

	if (!max)
		max = x->f.max || x->announced >= 0 ? MAX_FETCHED : MAX_FETCHED_UNSAID;
	return x->f.max ? MIN(x->f.max, max) : max;
}

static bool announced_more(const struct fetcher *x)
{
	return x->announced >= 0 && (uint64_t)x->announced > x->bound;
}

int bound_answer(struct fetcher *x, const struct http_response *a)
{
	if (x->f.what != FETCH_FILE)
		return 0;
	/* a coded body becomes longer */
	x->announced = a->coding[0] ? -1 : a->status == 206 ? a->range_total : a->length;
	if (x->f.announced && x->announced > 0)
		x->f.announced(x->f.arrived_ctx, (uint64_t)(x->announced - MAX(a->range_first, 0)));
	x->bound = bound_of(x);
	file_limit(x->f.dest, x->bound);
	return announced_more(x) ? -EFBIG : 0;
}

static void log_wrong_size(const struct fetcher *x, const char *shown)
{
	enum carton_log_level level = x->u->bad_hash ? CARTON_LOG_DEBUG : CARTON_LOG_ERROR;

	if (x->announced >= 0)
		carton_log(level, shown, "the carton says that it has %llu bytes, but it has %llu",
			   (unsigned long long)x->bound, (unsigned long long)x->announced);
	else
		carton_log(level, shown, "the carton says that it has %llu bytes, but it has more",
			   (unsigned long long)x->bound);
}

static void log_too_large(const struct fetcher *x, const char *shown)
{
	if (x->announced >= 0)
		carton_log(CARTON_LOG_ERROR, shown,
			   "refused: it has %llu bytes, more than %llu; the option -o max_size "
			   "allows it",
			   (unsigned long long)x->announced, (unsigned long long)x->bound);
	else
		carton_log(CARTON_LOG_ERROR, shown,
			   "stopped after %llu bytes: the server does not say how long it is; the "
			   "option -o max_size allows more",
			   (unsigned long long)x->bound);
}

int bound_passed(struct fetcher *x)
{
	bool known = x->f.max && x->bound == x->f.max;
	char shown[256];

	if (!x->bound || (!announced_more(x) && !file_is_over(x->f.dest)))
		return -EFBIG;
	http_url_redact(x->u->url, shown, sizeof(shown));
	if (known)
		log_wrong_size(x, shown);
	else
		log_too_large(x, shown);
	/* nothing of it can be used */
	file_restart(x->f.dest, NULL);
	x->u->too_large = !known;
	return known ? -EBADMSG : -EFBIG;
}
