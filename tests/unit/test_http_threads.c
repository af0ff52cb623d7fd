/* SPDX-License-Identifier: Apache-2.0 */
/* Several network threads: which of them gets a request, and what they share. */
#include "http_help.h"
#include "http/internal.h"

#define THREADS 4

static struct http *start_threads(void)
{
	return start_with(&(struct http_options){ .threads = THREADS });
}

static void no_wake(void *ctx)
{
	(void)ctx;
}

static struct http_stream *begin(struct http *http, const char *path)
{
	struct http_stream *s = NULL;
	char url[URL_MAX];

	url_of(&main_server, url, "%s", path);
	assert_int_equal(
		http_start_request(http, &(struct http_request){ .url = url }, no_wake, NULL, &s),
		0);
	return s;
}

static unsigned thread_of(const struct http_stream *s)
{
	return (unsigned)(s->thread - s->http->threads);
}

static unsigned streams(struct http *http, unsigned thread)
{
	unsigned n;

	pthread_mutex_lock(&http->lock);
	n = http->threads[thread].streams;
	pthread_mutex_unlock(&http->lock);
	return n;
}

/* The thread notices a close later. */
static void wait_for_streams(struct http *http, unsigned thread, unsigned n)
{
	int64_t end = now_ms() + LATE;

	while (streams(http, thread) != n)
		assert_true(now_ms() < end);
}

/* One at a time stays on one thread, and its connection. */
static void test_one_at_a_time(void **state)
{
	struct http *http = start_threads();
	unsigned before = server_connections(&main_server);

	(void)state;
	for (int i = 0; i < 8; i++) {
		assert_int_equal(get_path(http, "/size=100000/x"), 100000);
		wait_for_streams(http, 0, 0);
	}
	assert_int_equal(server_connections(&main_server) - before, 1);
	http_free(http);
}

static void test_spread(void **state)
{
	struct http *http = start_threads();
	struct http_stream *s[2 * THREADS];

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(s); i++) {
		s[i] = begin(http, "/size=9/silent/x");
		assert_int_equal(thread_of(s[i]), i % THREADS);
	}
	/* the next one goes where one has ended: started or not, by a close or an answer */
	http_close(s[2]);
	wait_for_streams(http, 2, 1);
	s[2] = begin(http, "/size=9/silent/x");
	assert_int_equal(thread_of(s[2]), 2);
	http_close(s[5]);
	wait_for_streams(http, 1, 1);
	assert_int_equal(get_path(http, "/size=100000/x"), 100000);
	wait_for_streams(http, 1, 1);
	s[5] = begin(http, "/size=9/silent/x");
	assert_int_equal(thread_of(s[5]), 1);
	for (unsigned i = 0; i < ARRAY_SIZE(s); i++)
		http_close(s[i]);
	for (unsigned i = 0; i < THREADS; i++)
		wait_for_streams(http, i, 0);
	http_free(http);
}

/* The end reaches the streams of all threads, those that were just begun too. */
static void test_stop(void **state)
{
	struct http *http = start_threads();
	struct http_stream *s[3 * THREADS];
	struct http_response response;

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(s); i++)
		s[i] = begin(http, "/size=9/silent/x");
	http_stop(http);
	for (unsigned i = 0; i < ARRAY_SIZE(s); i++) {
		assert_int_equal(http_answer(s[i], &response), -ESHUTDOWN);
		http_close(s[i]);
	}
	for (unsigned i = 0; i < THREADS; i++)
		assert_int_equal(streams(http, i), 0);
	http_free(http);
	assert_int_equal(log_count(), 0);
}

/* As many as there are processors, and one at least; never more than the limit. */
static void test_number(void **state)
{
	struct http *http = start_default();

	(void)state;
	assert_in_range(http->n_threads, 1, MIN(sysconf(_SC_NPROCESSORS_ONLN), HTTP_MAX_THREADS));
	http_free(http);
	http = start_with(&(struct http_options){ .threads = 1000 });
	assert_int_equal(http->n_threads, HTTP_MAX_THREADS);
	http_free(http);
}

struct asker {
	pthread_t thread;
	struct http *http;
	struct http_response response;
	ssize_t result;
};

static void *asker_run(void *ctx)
{
	struct asker *a = ctx;
	char url[URL_MAX];

	url_of(&main_server, url, "/delay=%d/need=X-Token:sesame/size=1000/x", 200 * SLOW);
	a->result = get(a->http, url, NULL, &a->response);
	return NULL;
}

/* All that were refused with the old header are sent again, whoever has loaded the new one. */
static void test_header_changed(void **state)
{
	char *file = temp_file("X-Token: stale\n", 15), *other = temp_file("X-Token: sesame\n", 16);
	char origin[URL_MAX];
	struct http_options o = { .source_url = origin, .header_file = file, .threads = THREADS };
	struct asker a[2 * THREADS];
	struct http *http;

	(void)state;
	url_of(&main_server, origin, "/m.carton");
	http = start_with(&o);
	assert_int_equal(get_path(http, "/size=10/x"), 10);
	for (unsigned i = 0; i < ARRAY_SIZE(a); i++) {
		a[i] = (struct asker){ .http = http };
		pthread_create(&a[i].thread, NULL, asker_run, &a[i]);
	}
	assert_int_equal(rename(other, file), 0);
	for (unsigned i = 0; i < ARRAY_SIZE(a); i++) {
		pthread_join(a[i].thread, NULL);
		assert_int_equal(a[i].response.status, 200);
		assert_int_equal(a[i].result, 1000);
	}
	http_free(http);
	unlink(file);
	free(file);
	free(other);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_at_a_time),  cmocka_unit_test(test_spread),
		cmocka_unit_test(test_stop),	       cmocka_unit_test(test_number),
		cmocka_unit_test(test_header_changed),
	};

	help_start();
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, main_setup, main_teardown);
}
