/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP is never stuck: cancelling, deadlines, stopping, many threads at once; connections and
 * name servers that do not answer, in a network namespace of its own (the argument netns).
 */
#include "http_help.h"

/* ---- never stuck ---- */

struct waiter {
	pthread_t thread;
	struct http *http;
	struct http_cancel *cancel;
	struct http_reader *stream; /* NULL: opens url, else reads */
	char url[URL_MAX];
	int64_t deadline;
	atomic_int stage;
	ssize_t result;
	int64_t ended;
};

static void *waiter_run(void *ctx)
{
	struct waiter *w = ctx;
	struct http_request q = { .url = w->url };
	struct http_response response;
	struct http_reader *s = w->stream;
	char buf[65536];

	atomic_store(&w->stage, 1);
	if (s) {
		while ((w->result = http_read(s, buf, sizeof(buf))) > 0)
			atomic_store(&w->stage, 2);
	} else {
		w->result = http_open(w->http, &q, w->deadline, w->cancel, &s, &response);
		if (w->result == 0) {
			w->result = drain(s, 65536, NULL, 0, NULL);
			http_reader_close(s);
		}
	}
	w->ended = now_ms();
	return NULL;
}

/* Until the server has seen `n` requests: then the other side is waiting for it. */
static void wait_for_requests(const struct server *s, unsigned n)
{
	int64_t end = now_ms() + 10000;

	while (server_saw(s, "\"method\"") < n)
		assert_true(now_ms() < end);
}

/*
 * Fires while `path` is being waited for; gives how long the waiter took to notice. A machine
 * that is busy with other things may need a second try to show its best.
 */
static int64_t cancel_latency(struct http *http, const struct server *server, const char *url)
{
	int64_t best = INT64_MAX;

	for (int i = 0; i < 3 && best > PROMPT; i++) {
		struct http_cancel cancel;
		struct waiter w = { .http = http, .cancel = &cancel };
		int64_t fired;

		assert_int_equal(http_cancel_init(&cancel), 0);
		snprintf(w.url, sizeof(w.url), "%s", url);
		if (server)
			server_clear(server);
		pthread_create(&w.thread, NULL, waiter_run, &w);
		while (!atomic_load(&w.stage))
			;
		if (server)
			wait_for_requests(server, 1);
		else /* meanwhile the thread serves others */
			assert_int_equal(get_path(http, "/size=1000000/x"), 1000000);
		fired = now_ms();
		http_cancel_fire(&cancel);
		http_cancel_fire(&cancel);
		pthread_join(w.thread, NULL);
		assert_int_equal(w.result, -ECANCELED);
		best = MIN(best, w.ended - fired);
		/* Everything after it is cancelled, too. */
		waiter_run(&w);
		assert_int_equal(w.result, -ECANCELED);
		http_cancel_destroy(&cancel);
	}
	return best;
}

static void test_cancel(void **state)
{
	static const char *const paths[] = {
		"/size=9/silent/x",	 "/size=9/slowhead=100/headers=90/x",
		"/size=99999/stall=0/x", "/size=99999/stall=500/x",
		"/size=9/delay=3000/x",
	};
	struct http *http = start_default();
	char url[URL_MAX];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		url_of(&main_server, url, "%s", paths[i]);
		assert_in_range(cancel_latency(http, &main_server, url), 0, PROMPT);
	}
	assert_int_equal(log_count(), 0);
	/* Others live on. */
	assert_int_equal(get_path(http, "/size=100000/x"), 100000);
	http_free(http);
}

/* One switch, several streams; one that is not on it goes on. */
static void test_cancel_many(void **state)
{
	struct http *http = start_default();
	struct http_cancel cancel;
	struct waiter w[5];
	int64_t fired;

	(void)state;
	memset(w, 0, sizeof(w));
	server_clear(&main_server);
	assert_int_equal(http_cancel_init(&cancel), 0);
	for (size_t i = 0; i < ARRAY_SIZE(w); i++) {
		w[i].http = http;
		w[i].cancel = i ? &cancel : NULL;
		url_of(&main_server, w[i].url, i ? "/size=9/silent/x" : "/size=100/delay=1000/x");
		pthread_create(&w[i].thread, NULL, waiter_run, &w[i]);
	}
	wait_for_requests(&main_server, ARRAY_SIZE(w));
	fired = now_ms();
	http_cancel_fire(&cancel);
	for (size_t i = 1; i < ARRAY_SIZE(w); i++) {
		pthread_join(w[i].thread, NULL);
		assert_int_equal(w[i].result, -ECANCELED);
		assert_in_range(w[i].ended - fired, 0, LATE);
	}
	pthread_join(w[0].thread, NULL);
	assert_int_equal(w[0].result, 100);
	http_cancel_destroy(&cancel);
	http_free(http);
}

static void test_deadline(void **state)
{
	struct http *http = start_default();
	struct http_response response;
	struct waiter w = { .http = http };
	struct http_reader *s;
	char url[URL_MAX], buf[1000];
	int64_t begun = now_ms();

	(void)state;
	w.deadline = begun + 200;
	url_of(&main_server, w.url, "/size=9/silent/x");
	waiter_run(&w);
	assert_int_equal(w.result, -ETIMEDOUT);
	assert_in_range(w.ended - begun, 200, LATE);
	assert_logged_once("before the deadline");
	url_of(&main_server, url, "/size=2000/stall=1000/x");
	assert_int_equal(http_open(http, &(struct http_request){ .url = url }, now_ms() + 60000,
				   NULL, &s, &response),
			 0);
	for (size_t got = 0; got < 1000;) {
		ssize_t n = http_read(s, buf, sizeof(buf));

		assert_true(n > 0);
		got += (size_t)n;
	}
	begun = now_ms();
	http_set_deadline(s, begun + 100);
	assert_int_equal(http_read(s, buf, 1), -ETIMEDOUT);
	assert_in_range(now_ms() - begun, 100, LATE);
	assert_int_equal(http_read(s, buf, 1), -ETIMEDOUT);
	assert_logged_once("before the deadline");
	/* Moved while a reader waits. */
	w = (struct waiter){ .http = http, .stream = s };
	http_set_deadline(s, 0);
	pthread_create(&w.thread, NULL, waiter_run, &w);
	begun = now_ms();
	http_set_deadline(s, begun + 50);
	pthread_join(w.thread, NULL);
	assert_int_equal(w.result, -ETIMEDOUT);
	assert_in_range(w.ended - begun, 50, LATE);
	http_reader_close(s);
	log_clear();
	http_free(http);
}

static void test_stop(void **state)
{
	struct http *http = start_default();
	struct http_response response;
	struct http_reader *s, *full;
	struct waiter w[3];
	char url[URL_MAX];
	int64_t begun;

	(void)state;
	memset(w, 0, sizeof(w));
	server_clear(&main_server);
	url_of(&main_server, url, "/size=9000/stall=1000/x");
	assert_int_equal(
		http_open(http, &(struct http_request){ .url = url }, 0, NULL, &s, &response), 0);
	url_of(&main_server, url, "/size=90000000/x");
	assert_int_equal(
		http_open(http, &(struct http_request){ .url = url }, 0, NULL, &full, &response),
		0);
	w[2].stream = s;
	for (size_t i = 0; i < ARRAY_SIZE(w); i++) {
		w[i].http = http;
		url_of(&main_server, w[i].url, "/size=9/silent/x");
		pthread_create(&w[i].thread, NULL, waiter_run, &w[i]);
	}
	wait_for_requests(&main_server, 4);
	begun = now_ms();
	http_stop(http);
	for (size_t i = 0; i < ARRAY_SIZE(w); i++) {
		pthread_join(w[i].thread, NULL);
		assert_int_equal(w[i].result, -ESHUTDOWN);
		assert_in_range(w[i].ended - begun, 0, LATE);
	}
	assert_int_equal(drain(full, 4096, pattern(0), 0, NULL), -ESHUTDOWN);
	assert_int_equal(get(http, url, NULL, &response), -ESHUTDOWN);
	http_reader_close(s);
	http_reader_close(full);
	assert_int_equal(log_count(), 0);
	http_free(http);
}

/* A transfer that is closed in the middle costs its connection and no more. */
static void test_close_early(void **state)
{
	struct http *http = start_default();
	struct http_response response;
	struct http_reader *s;
	char url[URL_MAX], byte;

	(void)state;
	for (int i = 0; i < 20; i++) {
		url_of(&main_server, url, "/size=9437189/seed=1/%s/x", i % 2 ? "enc=gzip" : "a");
		assert_int_equal(http_open(http, &(struct http_request){ .url = url }, 0, NULL, &s,
					   &response),
				 0);
		if (i % 3)
			assert_int_equal(http_read(s, &byte, 1), 1);
		http_reader_close(s);
	}
	assert_int_equal(get_path(http, "/size=100000/x"), 100000);
	assert_int_equal(log_count(), 0);
	http_free(http);
}

/* Parallel ranges each get a connection, so a limit of each is not a limit of all. */
static void test_parallel(void **state)
{
	struct http *http = start_default();
	struct http_response response;
	struct http_reader *s[8];
	char url[URL_MAX];
	int64_t begun = now_ms();

	(void)state;
	server_clear(&main_server);
	url_of(&main_server, url, "/size=8000000/seed=1/rate=2000000/x");
	for (size_t i = 0; i < ARRAY_SIZE(s); i++) {
		struct http_request q = { .url = url,
					  .has_range = true,
					  .first = i * 1000000,
					  .last = i * 1000000 + 999999 };

		assert_int_equal(http_open(http, &q, 0, NULL, &s[i], &response), 0);
	}
	for (size_t i = 0; i < ARRAY_SIZE(s); i++) {
		assert_int_equal(drain(s[i], 100000, pattern(1), i * 1000000, NULL), 1000000);
		http_reader_close(s[i]);
	}
	/* One after the other they would take 4 s. */
	assert_in_range(now_ms() - begun, 400, 3000);
	assert_int_equal(server_connections(&main_server), 8);
	url_of(&main_server, url, "/size=8000000/seed=1/x");
	/* And they are used again. */
	assert_int_equal(get(http, url, pattern(1), &response), 8000000);
	assert_int_equal(server_connections(&main_server), 8);
	http_free(http);
}

struct storm {
	struct http *http;
	unsigned seed;
	atomic_uint *done;
	unsigned wrong;
};

static void *storm_run(void *ctx)
{
	static const char *const paths[] = {
		"/size=300000/seed=1/x",	   "/size=300000/seed=1/enc=gzip/x",
		"/size=300000/seed=1/chunked/x",   "/size=300000/seed=1/reset=100000/x",
		"/hops=3/size=300000/seed=1/x",	   "/size=300000/seed=1/stall=100000/x",
		"/size=3000000/seed=1/enc=zstd/x",
	};
	struct storm *storm = ctx;

	for (int i = 0; i < 30; i++) {
		unsigned kind = (unsigned)rand_r(&storm->seed) % ARRAY_SIZE(paths);
		unsigned give_up = (unsigned)rand_r(&storm->seed) % 8;
		struct http_cancel cancel;
		struct http_response response;
		struct http_reader *s = NULL;
		struct http_request q = { 0 };
		char url[URL_MAX], buf[20000];
		uint64_t got = 0;
		ssize_t n = 0;

		http_cancel_init(&cancel);
		q.url = url_of(&main_server, url, "%s", paths[kind]);
		if (give_up == 7)
			http_cancel_fire(&cancel);
		if (http_open(storm->http, &q, 0, &cancel, &s, &response) == 0) {
			while ((n = http_read(s, buf, sizeof(buf))) > 0) {
				storm->wrong += !is_pattern(pattern(1), got, buf, (size_t)n);
				got += (uint64_t)n;
				if (give_up == 6 && got > 50000)
					break;
				if (give_up == 5 && got > 50000)
					http_cancel_fire(&cancel);
			}
			storm->wrong += n == 0 && got != 300000 && got != 3000000;
		}
		http_reader_close(s);
		http_cancel_destroy(&cancel);
		atomic_fetch_add(storm->done, 1);
	}
	return NULL;
}

static void test_storm(void **state)
{
	struct http *http = start_with(&(struct http_options){ .stall_ms = 200, .threads = 4 });
	struct storm storm[12];
	pthread_t threads[12];
	atomic_uint done = 0;

	(void)state;
	pattern(1);
	for (size_t i = 0; i < ARRAY_SIZE(threads); i++) {
		storm[i] = (struct storm){ .http = http, .seed = (unsigned)i, .done = &done };
		pthread_create(&threads[i], NULL, storm_run, &storm[i]);
	}
	for (size_t i = 0; i < ARRAY_SIZE(threads); i++) {
		pthread_join(threads[i], NULL);
		assert_int_equal(storm[i].wrong, 0);
	}
	assert_int_equal(done, 12 * 30);
	http_free(http);
	log_clear();
}

/* ---- in a network namespace of our own ---- */

/*
 * 8.8.8.8:80 takes no more connections than it has, which the kernel shows by answering nothing.
 * The sockets stay for the life of the process.
 */
static void black_hole(void)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(80) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	unsigned waiting = 0;

	inet_pton(AF_INET, "8.8.8.8", &in.sin_addr);
	assert_int_equal(bind(fd, (struct sockaddr *)&in, sizeof(in)), 0);
	assert_int_equal(listen(fd, 0), 0);
	for (int i = 0; i < 4; i++) {
		struct pollfd p = { .events = POLLOUT };

		p.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		connect(p.fd, (struct sockaddr *)&in, sizeof(in));
		waiting += poll(&p, 1, 100) == 0;
	}
	assert_true(waiting > 0);
}

static int netns_setup(void **state)
{
	run("ip link set lo up");
	run("ip addr add 8.8.8.8/32 dev lo");
	black_hole();
	lay_over("hosts", "127.0.0.1 localhost\n8.8.8.8 black.test\n");
	lay_over("resolv.conf", "nameserver 127.0.0.53\noptions timeout:30 attempts:2\n");
	lay_over("nsswitch.conf", "hosts: files dns\n");
	return main_setup(state);
}

static void test_netns_connect_timeout(void **state)
{
	struct http *http = start_with(&(struct http_options){ .connect_timeout_ms = 300 });
	struct http_response response;
	int64_t begun = now_ms();

	(void)state;
	assert_int_equal(get(http, "http://black.test/x?secret", NULL, &response), -ETIMEDOUT);
	assert_in_range(now_ms() - begun, 300, LATE);
	assert_logged_once("http://black.test/x: ");
	/* No route at all. */
	assert_int_equal(get(http, "http://9.9.9.9/", NULL, &response), -ENETUNREACH);
	http_free(http);
	log_clear();
}

static void test_netns_cancel_connect(void **state)
{
	struct http *http = start_default();

	(void)state;
	assert_in_range(cancel_latency(http, NULL, "http://black.test/"), 0, PROMPT);
	/* The transfer has been taken down, and took nothing with it. */
	assert_int_equal(get_path(http, "/size=1000001/x"), 1000001);
	http_free(http);
}

/* A name server that never answers holds up nobody, not even the end. */
static void test_netns_cancel_resolve(void **state)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(53) };
	struct http *http = start_with(&(struct http_options){ .name_timeout_ms = 700 });
	struct http_response response;
	struct pollfd p = { .events = POLLIN };
	struct waiter w = { .http = http };
	int64_t begun;

	(void)state;
	p.fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	inet_pton(AF_INET, "127.0.0.53", &in.sin_addr);
	assert_int_equal(bind(p.fd, (struct sockaddr *)&in, sizeof(in)), 0);
	assert_in_range(cancel_latency(http, NULL, "http://unanswered.test/"), 0, PROMPT);
	begun = now_ms();
	assert_int_equal(get_path(http, "/size=1000001/x"), 1000001);
	assert_in_range(now_ms() - begun, 0, LATE);
	begun = now_ms();
	assert_int_equal(get(http, "http://unanswered2.test/", NULL, &response), -ETIMEDOUT);
	assert_in_range(now_ms() - begun, 600, LATE);
	assert_int_equal(poll(&p, 1, 0), 1);
	snprintf(w.url, sizeof(w.url), "http://unanswered3.test/");
	pthread_create(&w.thread, NULL, waiter_run, &w);
	while (!atomic_load(&w.stage))
		;
	assert_int_equal(get_path(http, "/size=1000000/x"), 1000000);
	begun = now_ms();
	http_stop(http);
	pthread_join(w.thread, NULL);
	assert_int_equal(w.result, -ESHUTDOWN);
	http_free(http);
	assert_in_range(now_ms() - begun, 0, LATE);
	close(p.fd);
	log_clear();
}

/* A name server that has no AAAA, and whose answers take their time. */
struct names {
	int fd;
	int delay_ms;
	atomic_int last; /* of 127.0.0.LAST, the address of all names */
	atomic_int asked;
	pthread_t thread;
};

static void *names_run(void *ctx)
{
	static const uint8_t record[] = { 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0 };
	struct names *n = ctx;
	struct sockaddr_in from;
	socklen_t size = sizeof(from);
	uint8_t q[512];
	ssize_t len;

	while ((len = recvfrom(n->fd, q, 400, 0, (struct sockaddr *)&from, &size)) > 12) {
		ssize_t end = 12;

		while (end < len && q[end])
			end += q[end] + 1;
		/* the question, without what may follow it */
		len = end + 5;
		memcpy(q + 2, (uint8_t[]){ 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0 }, 10);
		if (q[end + 2] == 1) {
			atomic_fetch_add(&n->asked, 1);
			poll(NULL, 0, n->delay_ms);
			q[7] = 1;
			memcpy(q + len, record, sizeof(record));
			q[len + (ssize_t)sizeof(record)] = (uint8_t)atomic_load(&n->last);
			len += (ssize_t)sizeof(record) + 1;
		}
		sendto(n->fd, q, (size_t)len, 0, (struct sockaddr *)&from, size);
	}
	return NULL;
}

static void names_start(struct names *n)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(53) };

	n->fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	inet_pton(AF_INET, "127.0.0.53", &in.sin_addr);
	assert_int_equal(bind(n->fd, (struct sockaddr *)&in, sizeof(in)), 0);
	pthread_create(&n->thread, NULL, names_run, n);
}

static void names_stop(struct names *n)
{
	shutdown(n->fd, SHUT_RDWR);
	pthread_join(n->thread, NULL);
	close(n->fd);
}

/* The lookup does not take the time of the connection. */
static void test_netns_slow_name(void **state)
{
	struct http *http = start_with(
		&(struct http_options){ .connect_timeout_ms = 200, .threads = 1 });
	struct names names = { .delay_ms = 600, .last = 1 };
	struct http_response response;
	char url[URL_MAX];
	int64_t begun = now_ms();

	(void)state;
	names_start(&names);
	snprintf(url, sizeof(url), "http://slow.test:%d/size=1000/x", main_server.port);
	assert_int_equal(get(http, url, NULL, &response), 1000);
	assert_true(now_ms() - begun >= 600);
	assert_int_equal(get(http, url, NULL, &response), 1000);
	http_free(http);
	names_stop(&names);
	/* the second one had the address, or the connection */
	assert_int_equal(names.asked, 1);
	log_clear();
}

/* A server that has moved is looked for at its new address, once the old one has failed. */
static void test_netns_moved(void **state)
{
	struct http *http = start_with(&(struct http_options){ .threads = 1 });
	struct names names = { .last = 9 };
	struct http_response response;
	char url[URL_MAX];

	(void)state;
	names_start(&names);
	snprintf(url, sizeof(url), "http://moved.test:%d/size=1000/x", main_server.port);
	assert_int_equal(get(http, url, NULL, &response), -ECONNREFUSED);
	names.last = 1;
	assert_int_equal(get(http, url, NULL, &response), 1000);
	http_free(http);
	names_stop(&names);
	assert_int_equal(names.asked, 2);
	log_clear();
}

static void put_ports(const char *range)
{
	int fd = open("/proc/sys/net/ipv4/ip_local_port_range", O_RDWR | O_CLOEXEC);

	assert_int_equal(write(fd, range, strlen(range)), (ssize_t)strlen(range));
	close(fd);
}

/* All local ports are in use: that passes, as a server does that is away. */
static void test_netns_no_port(void **state)
{
	struct sockaddr_in in = { .sin_family = AF_INET,
				  .sin_port = htons((uint16_t)main_server.port) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct http *http = start_default();

	(void)state;
	inet_pton(AF_INET, main_server.host, &in.sin_addr);
	put_ports("40000 40000");
	assert_int_equal(connect(fd, (struct sockaddr *)&in, sizeof(in)), 0);
	assert_int_equal(get_path(http, "/size=1000/x"), -EHOSTUNREACH);
	assert_true(error_passes(-EHOSTUNREACH));
	assert_logged_once("no local port free");
	put_ports("32768 60999");
	close(fd);
	assert_int_equal(get_path(http, "/size=1000/x"), 1000);
	http_free(http);
	log_clear();
}

static int netns_main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_netns_connect_timeout),
		cmocka_unit_test(test_netns_cancel_connect),
		cmocka_unit_test(test_netns_cancel_resolve),
		cmocka_unit_test(test_netns_slow_name),
		cmocka_unit_test(test_netns_moved),
		cmocka_unit_test(test_netns_no_port),
	};

	if (!enter_netns())
		return SKIPPED;
	return cmocka_run_group_tests_name("in its own network namespace", tests, netns_setup,
					   main_teardown);
}

static void test_netns(void **state)
{
	(void)state;
	run_in_netns();
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cancel),	    cmocka_unit_test(test_cancel_many),
		cmocka_unit_test(test_deadline),    cmocka_unit_test(test_stop),
		cmocka_unit_test(test_close_early), cmocka_unit_test(test_parallel),
		cmocka_unit_test(test_storm),	    cmocka_unit_test(test_netns),
	};

	help_start();
	if (argc > 1 && !strcmp(argv[1], "netns"))
		return netns_main();
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, main_setup, main_teardown);
}
