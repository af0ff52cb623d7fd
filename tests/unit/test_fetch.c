/* SPDX-License-Identifier: Apache-2.0 */
/* Fetches: whose fault it is when what came cannot be checked, and what a try goes on after. */
#include <semaphore.h>

#include "fetch/internal.h"
#include "http/internal.h"
#include "http_help.h"

#define SIZE 300000
#define MANY 200 /* more than are served until a deadline */

struct fixture {
	struct fetch_options options;
	atomic_uint extra;
	char urls[2][URL_MAX];
	struct version versions[2];
	struct fetch_place named[2], any[2]; /* a mirror of the carton, and the carton; URLs */
	unsigned checks;
	uint64_t most; /* bytes of a range that had arrived */
	int verdict, result;
	sem_t over;
};

static int check(void *ctx, struct fetch_place *from)
{
	struct fixture *f = ctx;

	(void)from;
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
		f->versions[i] = (struct version){ .url = f->urls[i], .size = SIZE };
		f->any[i].url = f->named[i].url = f->urls[i];
		f->any[i].trust = f->named[i].trust = HTTP_USER;
		f->named[i].version = &f->versions[i];
		route_init(&f->named[i].route);
		route_init(&f->any[i].route);
	}
	f->named[0].mirror = true;
}

static void fixture_end(struct fixture *f)
{
	http_stop(f->options.http);
	workers_free(f->options.workers);
	events_free(f->options.events);
	http_free(f->options.http);
	for (size_t i = 0; i < 2; i++) {
		route_finish(&f->named[i].route);
		route_finish(&f->any[i].route);
	}
}

/* Fetches all of it from such places, of which check() says `verdict`; how often it is asked. */
static unsigned fetch_checked(struct fixture *f, struct fetch_place *places, enum fetch_what what,
			      int verdict)
{
	struct fetch fetch = {
		.options = &f->options,
		.what = what,
		.places = places,
		.n_places = 2,
		.n = SIZE,
		.size = SIZE,
		.check = check,
		.done = done,
		.ctx = f,
	};

	f->checks = 0;
	f->verdict = verdict;
	assert_int_equal(file_memory(SIZE, &fetch.dest), 0);
	assert_int_equal(fetch_start(&fetch), 0);
	sem_wait(&f->over);
	assert_int_equal(f->result, verdict);
	file_abort(fetch.dest, false);
	return f->checks;
}

static void test_failed_check(void **state)
{
	static const int mine[] = { 0, -EFBIG, -EIO, -ENOMEM };
	struct fixture f;

	(void)state;
	fixture_init(&f);
	/* no server can help: none is asked again, and none is left for later fetches */
	for (size_t i = 0; i < ARRAY_SIZE(mine); i++) {
		assert_int_equal(fetch_checked(&f, f.any, FETCH_PART, mine[i]), 1);
		assert_int_equal(fetch_checked(&f, f.named, FETCH_PART, mine[i]), 1);
		assert_int_equal(fetch_checked(&f, f.named, FETCH_FILE, mine[i]), 1);
		assert_false(f.named[0].bad);
	}
	fixture_end(&f);
}

/* Wrong bytes are the server's fault. */
static void test_wrong_bytes(void **state)
{
	struct fixture f;

	(void)state;
	fixture_init(&f);
	/* each URL is asked once more past caches, but for a part the owner says what comes next */
	assert_int_equal(fetch_checked(&f, f.any, FETCH_FILE, -EBADMSG), 4);
	assert_int_equal(fetch_checked(&f, f.any, FETCH_PART, -EBADMSG), 1);
	assert_int_equal(fetch_checked(&f, f.named, FETCH_PART, -EBADMSG), 1);
	assert_true(f.named[0].bad);
	/* the mirror is left out; the carton itself is asked twice, and is never bad */
	assert_int_equal(fetch_checked(&f, f.named, FETCH_FILE, -EBADMSG), 2);
	assert_false(f.named[1].bad);
	/* so is a mirror, once, where all of the content is wanted */
	f.named[0].bad = false;
	assert_int_equal(fetch_checked(&f, f.named, FETCH_FILE, -EBADMSG), 1);
	assert_true(f.named[0].bad);
	fixture_end(&f);
}

static int led(void *ctx, struct fetch_place *from)
{
	(void)ctx;
	(void)from;
	return 0;
}

static uint64_t note_arrived(void *ctx, uint64_t arrived)
{
	struct fixture *f = ctx;

	f->most = MAX(f->most, arrived);
	return 0;
}

/* What comes first is not counted to the range, also while its answer is not over. */
static void test_lead(void **state)
{
	char url[URL_MAX];
	struct fixture f;
	struct fetch fetch = {
		.options = &f.options,
		.what = FETCH_PART,
		.places = f.any,
		.n_places = 1,
		.off = 200000,
		.n = 1000,
		.size = SIZE,
		.lead = 100,
		.n_lead = 5000,
		.led = led,
		.settle = note_arrived,
		.check = check,
		.done = done,
		.ctx = &f,
	};

	(void)state;
	fixture_init(&f);
	http_free(f.options.http);
	f.options.http = start_with(&(struct http_options){ .stall_ms = 200 });
	/* all of what is asked for, and no end of the answer */
	f.any[0].url = url_of(&main_server, url, "/size=%d/chunked/stall=5000/x", SIZE);
	assert_int_equal(file_memory(fetch.n, &fetch.dest), 0);
	assert_int_equal(file_memory(fetch.n_lead, &fetch.lead_dest), 0);
	assert_int_equal(fetch_start(&fetch), 0);
	sem_wait(&f.over);
	assert_int_equal(f.result, 0);
	assert_int_equal(f.checks, 1);
	assert_int_equal(f.most, fetch.n);
	file_abort(fetch.dest, false);
	file_abort(fetch.lead_dest, false);
	fixture_end(&f);
}

/* A URL that is always refused, while its server serves others: the fetch ends at its deadline. */
static void test_refused_beside_others(void **state)
{
	struct fetch fetch = { .what = FETCH_FILE, .n_places = 1, .done = done };
	struct servers *servers;
	struct fixture f;
	unsigned others = 0;
	uint64_t size;

	(void)state;
	fixture_init(&f);
	assert_int_equal(servers_new(8, &servers), 0);
	f.options.servers = servers;
	f.options.timeout_ms = 3000;
	atomic_store(&f.options.wait, true);
	url_of(&main_server, f.urls[0], "/size=%d/fail=99999:429/0", SIZE);
	fetch.options = &f.options;
	fetch.places = &f.any[0];
	fetch.ctx = &f;
	assert_int_equal(file_memory(SIZE, &fetch.dest), 0);
	assert_int_equal(fetch_start(&fetch), 0);
	for (; sem_trywait(&f.over) < 0; others++) {
		struct fetch other = fetch;

		assert_true(others < MANY);
		other.places = &f.any[1];
		assert_int_equal(file_memory(SIZE, &other.dest), 0);
		assert_int_equal(fetch_run(&other, &size), 0);
		file_abort(other.dest, false);
	}
	assert_true(others > 0);
	assert_int_equal(f.result, -ETIMEDOUT);
	file_abort(fetch.dest, false);
	fixture_end(&f);
	servers_free(servers);
}

/* The error of the server of a URL. */
static int error_of(struct servers *servers, const char *url)
{
	struct server *s = server_get(servers, url);
	int64_t ms;
	int r = server_error(s, &ms);

	server_unref(s);
	return r;
}

/* Where another server fails than that of the URL, it is the other one that is bad. */
static void test_whose_failure(void **state)
{
	static const char *const ways[] = {
		/* where redirects lead */
		"/redirect=302/to=http%3A%2F%2F127.0.0.1%3A1%2Fx/x",
		/* a token server */
		"/status=401/h=WWW-Authenticate%3ABearer%20realm=%22http%3A%2F%2F127.0.0.1%3A1%2F%22"
		"/x",
	};
	static const char other[] = "http://127.0.0.1:1/";
	struct servers *servers;
	struct fixture f;

	(void)state;
	fixture_init(&f);
	for (size_t i = 0; i < ARRAY_SIZE(ways); i++) {
		struct fetch fetch = { .options = &f.options,
				       .places = f.any,
				       .n_places = 1,
				       .done = done,
				       .ctx = &f };
		struct cancel cancel;

		cancel_init(&cancel, NULL);
		assert_int_equal(servers_new(8, &servers), 0);
		f.options.servers = servers;
		url_of(&main_server, f.urls[0], "%s", ways[i]);
		fetch.what = i ? FETCH_SIZE : FETCH_FILE;
		fetch.cancel = &cancel;
		assert_int_equal(file_memory(SIZE, &fetch.dest), 0);
		assert_int_equal(fetch_start(&fetch), 0);
		/* it asks again and again, for some seconds */
		while (error_of(servers, other) == 0)
			assert_int_not_equal(sem_trywait(&f.over), 0);
		assert_int_equal(error_of(servers, other), -ECONNREFUSED);
		assert_int_equal(error_of(servers, f.urls[0]), 0);
		cancel_fire(&cancel);
		sem_wait(&f.over);
		file_abort(fetch.dest, false);
		servers_free(servers);
		cancel_finish(&cancel);
	}
	f.options.servers = NULL;
	fixture_end(&f);
}

static bool no_step(struct task *t)
{
	(void)t;
	return true;
}

static void wait_for_end(struct http_stream *s)
{
	int64_t end = now_ms() + 10 * LATE;
	bool done;

	do {
		pthread_mutex_lock(&s->lock);
		done = s->done;
		pthread_mutex_unlock(&s->lock);
		assert_true(now_ms() < end);
	} while (!done);
}

/* An answer that breaks off is as good to who sees all of it at once as to who saw it begin. */
static void test_break_that_is_seen_late(void **state)
{
	enum { CAME = 70000 };
	struct fetcher x = { .led = true };
	struct fixture f;

	(void)state;
	fixture_init(&f);
	url_of(&main_server, f.urls[0], "/size=%d/truncate=%d/x", SIZE, CAME);
	x.f = (struct fetch){ .options = &f.options,
			      .what = FETCH_PART,
			      .places = f.any,
			      .n_places = 1,
			      .n = SIZE,
			      .size = SIZE };
	x.deadline_ms = now_ms() + f.options.timeout_ms;
	assert_int_equal(file_memory(SIZE, &x.f.dest), 0);
	assert_int_equal(urls_init(&x), 0);
	x.u = x.urls;
	x.try_deadline_ms = url_deadline(&x);
	task_init(&x.task, f.options.events, LANE_NET, no_step);
	assert_int_equal(transfer_begin(&x), 0);
	wait_for_end(x.conns[0].stream);
	assert_int_equal(transfer_step(&x), -EINPROGRESS);
	assert_int_equal(x.arrived, CAME);
	transfer_end(&x);
	task_finish(&x.task);
	server_unref(x.urls[0].at);
	free(x.urls);
	file_abort(x.f.dest, false);
	fixture_end(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_failed_check),
		cmocka_unit_test(test_wrong_bytes),
		cmocka_unit_test(test_lead),
		cmocka_unit_test(test_refused_beside_others),
		cmocka_unit_test(test_whose_failure),
		cmocka_unit_test(test_break_that_is_seen_late),
	};

	carton_log_set(log_keep, NULL);
	return cmocka_run_group_tests_name("fetch", tests, main_setup, main_teardown);
}
