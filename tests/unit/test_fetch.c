/* SPDX-License-Identifier: Apache-2.0 */
/* Fetches: whose fault it is when what came cannot be checked. */
#include "fetch/fetcher.h"

#include <semaphore.h>

#include "http_help.h"

#define SIZE 300000

struct fixture {
	struct fetch_options options;
	atomic_uint extra;
	char urls[2][URL_MAX];
	struct version remotes[2];
	struct route routes[2];
	unsigned checks;
	int verdict, result;
	sem_t over;
};

static int check(void *ctx, const char *url)
{
	struct fixture *f = ctx;

	(void)url;
	f->checks++;
	return f->verdict;
}

static void done(void *ctx, int result, uint64_t size)
{
	struct fixture *f = ctx;

	(void)size;
	f->result = result;
	sem_post(&f->over);
}

static void fixture_init(struct fixture *f)
{
	*f = (struct fixture){
		.options = { .http = start_default(), .timeout_ms = 20000, .connections = 2 }
	};
	f->options.extra = &f->extra;
	sem_init(&f->over, 0, 0);
	assert_int_equal(workers_new(&f->options.workers), 0);
	assert_int_equal(events_new(f->options.workers, &f->options.events), 0);
	for (size_t i = 0; i < 2; i++) {
		url_of(&main_server, f->urls[i], "/size=%d/%zu", SIZE, i);
		route_init(&f->routes[i]);
		f->remotes[i] = (struct version){
			.url = f->urls[i], .route = &f->routes[i], .trust = HTTP_USER, .size = SIZE
		};
	}
	f->remotes[0].other = &f->remotes[1];
}

static void fixture_end(struct fixture *f)
{
	http_stop(f->options.http);
	workers_free(f->options.workers);
	events_free(f->options.events);
	http_free(f->options.http);
	for (size_t i = 0; i < 2; i++)
		route_finish(&f->routes[i]);
}

/*
 * Fetches all of it as a part, or a range, of which check() says `verdict`; how often it is asked.
 */
static unsigned fetch_checked(struct fixture *f, enum fetch_what what, int verdict)
{
	char *urls[] = { f->urls[0], f->urls[1] };
	struct fetch fetch = {
		.options = &f->options,
		.what = what,
		.trust = HTTP_USER,
		.n = SIZE,
		.size = SIZE,
		.check = check,
		.done = done,
		.ctx = f,
	};

	if (what == FETCH_RANGE) {
		fetch.version = &f->remotes[0];
	} else {
		fetch.urls = urls;
		fetch.n_urls = 2;
	}
	f->checks = 0;
	f->verdict = verdict;
	assert_int_equal(dest_memory(SIZE, &fetch.dest), 0);
	assert_int_equal(fetch_start(&fetch), 0);
	sem_wait(&f->over);
	assert_int_equal(f->result, verdict);
	dest_abort(fetch.dest, false);
	return f->checks;
}

static void test_failed_check(void **state)
{
	static const int mine[] = { -EFBIG, -EIO, -ENOMEM };
	struct fixture f;

	(void)state;
	fixture_init(&f);
	assert_int_equal(fetch_checked(&f, FETCH_PART, 0), 1);
	assert_int_equal(fetch_checked(&f, FETCH_RANGE, 0), 1);
	/* no server can help: none is asked again, and none is left for later fetches */
	for (size_t i = 0; i < ARRAY_SIZE(mine); i++) {
		assert_int_equal(fetch_checked(&f, FETCH_PART, mine[i]), 1);
		assert_int_equal(fetch_checked(&f, FETCH_RANGE, mine[i]), 1);
		assert_false(f.remotes[0].gone);
	}
	/* wrong bytes are the server's fault */
	assert_int_equal(fetch_checked(&f, FETCH_RANGE, -EBADMSG), 1);
	assert_true(f.remotes[0].gone);
	fixture_end(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_failed_check),
	};

	carton_log_set(log_keep, NULL);
	return cmocka_run_group_tests_name("fetch", tests, main_setup, main_teardown);
}
