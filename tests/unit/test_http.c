/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP transfers against the fault server: bodies, codings, ranges, statuses, failures. */
#include "http_help.h"

/* ---- transfers ---- */

static void test_sizes(void **state)
{
	static const uint64_t sizes[] = { 0,	   1,	16383,	 16384,	     16385,
					  MIB - 1, MIB, MIB + 1, 5 * MIB + 3 };
	static const char *const how[] = { "", "chunked/", "close/" };
	struct http *http = start_default();
	struct http_response response;
	char url[URL_MAX];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		for (size_t k = 0; k < ARRAY_SIZE(how); k++) {
			url_of(&main_server, url, "/size=%llu/seed=1/%sx",
			       (unsigned long long)sizes[i], how[k]);
			assert_int_equal(get(http, url, pattern(1), &response), sizes[i]);
			assert_int_equal(response.status, 200);
			assert_int_equal(response.length, k == 0 ? (int64_t)sizes[i] : -1);
			assert_true(response.strong_etag && response.accept_ranges);
			assert_string_equal(response.coding, "");
		}
	}
	assert_int_equal(log_count(), 0);
	http_free(http);
}

static void test_pieces(void **state)
{
	static const size_t pieces[] = { 1, 7, 4096, 600000, 3 * MIB };
	struct http *http = start_default();
	struct http_response response;
	struct http_reader *s;
	char url[URL_MAX];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(pieces); i++) {
		uint64_t size = pieces[i] < 100 ? 2 * MIB + 1 : 9 * MIB + 1;

		url_of(&main_server, url, "/size=%llu/x", (unsigned long long)size);
		assert_int_equal(http_open(http, &(struct http_request){ .url = url }, 0, NULL, &s,
					   &response),
				 0);
		assert_int_equal(http_read(s, NULL, 0), 0);
		assert_int_equal(drain(s, pieces[i], pattern(0), 0, NULL), size);
		assert_int_equal(http_read(s, url, 1), 0);
		http_reader_close(s);
	}
	http_free(http);
}

/* A reader that does not read costs its buffer and what the kernel holds, and slows nobody. */
static void test_backpressure(void **state)
{
	struct http *http = start_default();
	struct http_response response;
	struct http_reader *a, *b;
	char url[URL_MAX];

	(void)state;
	server_clear(&main_server);
	url_of(&main_server, url, "/size=201326592/seed=2/a");
	assert_int_equal(
		http_open(http, &(struct http_request){ .url = url }, 0, NULL, &a, &response), 0);
	url_of(&main_server, url, "/size=201326592/seed=3/b");
	assert_int_equal(
		http_open(http, &(struct http_request){ .url = url }, 0, NULL, &b, &response), 0);
	assert_int_equal(drain(b, 1 << 20, pattern(3), 0, NULL), 201326592);
	assert_in_range(server_sent(&main_server, "/seed=2/a"), 1, 64 * MIB);
	assert_int_equal(drain(a, 1 << 20, pattern(2), 0, NULL), 201326592);
	http_reader_close(a);
	http_reader_close(b);
	assert_int_equal(log_count(), 0);
	http_free(http);
}

static bool server_can(const char *coding)
{
	char *text = server_ask(&main_server, "/_codings"), quoted[32];
	bool can;

	snprintf(quoted, sizeof(quoted), "\"%s\"", coding);
	can = strstr(text, quoted);
	free(text);
	return can;
}

static void test_codings(void **state)
{
	static const char *const codings[] = { "gzip", "deflate", "rawdeflate", "br", "zstd" };
	static const uint64_t sizes[] = { 0, 1, MIB, 9 * MIB + 5 };
	struct http *http = start_default();
	struct http_response response;
	char url[URL_MAX];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(codings); i++) {
		const char *name = i == 2 ? "deflate" : codings[i];

		if (!server_can(codings[i]))
			fail_msg("the fault server lacks %s", codings[i]);
		for (size_t k = 0; k < 2 * ARRAY_SIZE(sizes); k++) {
			url_of(&main_server, url, "/size=%llu/seed=1/enc=%s/%sx",
			       (unsigned long long)sizes[k / 2], codings[i],
			       k % 2 ? "chunked/" : "");
			assert_int_equal(get(http, url, pattern(1), &response), sizes[k / 2]);
			assert_string_equal(response.coding, name);
			assert_int_equal(response.length, -1);
		}
	}
	assert_int_equal(log_count(), 0);
	http_free(http);
}

/* Strongly coded zeros: the reader gets them all, or a clean error; memory stays bounded. */
static void test_bombs(void **state)
{
	static const char *const codings[] = { "gzip", "deflate", "br", "zstd" };
	uint8_t *zeros = must(calloc(1, BLOCK));
	struct http *http = start_default();
	struct http_response response;
	struct rusage before, after;
	char url[URL_MAX];

	(void)state;
	getrusage(RUSAGE_SELF, &before);
	for (size_t i = 0; i < ARRAY_SIZE(codings); i++) {
		ssize_t r;

		url_of(&main_server, url, "/size=314572800/zeros/enc=%s/x", codings[i]);
		log_clear();
		r = get(http, url, zeros, &response);
		if (i < 2 || r != -EFBIG)
			assert_int_equal(r, 314572800);
		else
			assert_logged_once("expands too strongly");
	}
	getrusage(RUSAGE_SELF, &after);
	assert_in_range(after.ru_maxrss - before.ru_maxrss, 0, 280 * 1024 * SLOW);
	http_free(http);
	free(zeros);
}

static void test_coding_refused(void **state)
{
	static const struct {
		const char *path;
		int error;
		const char *message;
	} cases[] = {
		{ "/size=1000/enc=gzip,gzip/x", -EBADMSG, "coded more than once" },
		{ "/size=1000/enc=gzip,br/x", -EBADMSG, "coded more than once" },
		{ "/size=1000/enc=gzip/as=gzip,%20identity,gzip/x", -EBADMSG,
		  "coded more than once" },
		{ "/size=1000/as=a,b,c,d,e,f,g,h/x", -EBADMSG, "" },
		{ "/size=1000/as=none,compress/h=Transfer-Encoding:gzip/x", -EBADMSG, "" },
		{ "/size=1000/as=gzip/x", -EBADMSG, "broken" },
		{ "/size=1000/as=br/x", -EBADMSG, "broken" },
		{ "/size=1000/as=zstd/x", -EBADMSG, "broken" },
		{ "/size=1000/as=deflate/x", -EBADMSG, "broken" },
		{ "/size=100000/enc=gzip/flipwire=50000/x", -EBADMSG, "broken" },
		{ "/size=1000/h=Transfer-Encoding:gzip/x", -EBADMSG, "" },
	};
	struct http *http = start_default();

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		ssize_t r;

		log_clear();
		r = get_path(http, cases[i].path);
		if (r != cases[i].error)
			fail_msg("%s: %zd", cases[i].path, r);
		assert_logged_once(cases[i].message);
	}
	/* An error page in a strange coding is still an answer. */
	{
		struct http_reader *s;
		struct http_response response;
		char url[URL_MAX];

		url_of(&main_server, url, "/size=10/as=compress/status=404/x");
		assert_int_equal(http_open(http, &(struct http_request){ .url = url }, 0, NULL, &s,
					   &response),
				 0);
		assert_int_equal(response.status, 404);
		http_reader_close(s);
	}
	http_free(http);
}

/* Words that are no coding, over the very bytes: with libcurl's decoders and without. */
static void test_odd_codings(void **state)
{
	static const char *const words[] = { "aws-chunked",
					     "none",
					     "utf-8",
					     "binary",
					     "identity",
					     "8bit",
					     "*",
					     "a,b,c,d",
					     "%3Bq%3D1",
					     "a-name-longer-than-any",
					     "aws-chunked,,none",
					     "compress" };
	struct http *http = start_default();
	struct http_response r;
	char url[URL_MAX];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		struct http_request q = { .url = url };

		for (int k = 0; k < 4; k++) {
			q.has_range = k & 1;
			q.last = 999;
			q.identity = k & 2;
			url_of(&main_server, url, "/size=1000/as=%s/x", words[i]);
			assert_int_equal(ask(http, &q, pattern(0), &r), 1000);
			assert_string_equal(r.coding, "");
			assert_false(r.coded);
			assert_int_equal(r.length, 1000);
		}
	}
	/* beside a real one: the owner decodes that */
	url_of(&main_server, url, "/size=1000/enc=gzip/as=aws-chunked,gzip/x");
	assert_true(ask(http, &(struct http_request){ .url = url }, NULL, &r) > 0);
	assert_true(r.coded);
	assert_string_equal(r.coding, "gzip");
	/* a server that codes all the same */
	url_of(&main_server, url, "/size=1000/enc=gzip/norange/x");
	assert_int_equal(ask(http,
			     &(struct http_request){ .url = url, .has_range = true, .last = 9 },
			     pattern(0), &r),
			 1000);
	assert_false(r.coded);
	http_free(http);
}

/* ---- ranges ---- */

static void test_range(void **state)
{
	struct http *http = start_default();
	struct http_response r;
	char url[URL_MAX];
	struct http_request q = { .url = url, .has_range = true, .first = 65000, .last = 2 * MIB };

	(void)state;
	server_clear(&main_server);
	url_of(&main_server, url, "/size=3000000/x");
	assert_int_equal(ask(http, &q, pattern(0), &r), 2 * MIB - 65000 + 1);
	assert_int_equal(r.status, 206);
	assert_int_equal(r.range_first, 65000);
	assert_int_equal(r.range_last, 2 * MIB);
	assert_int_equal(r.range_total, 3000000);
	assert_int_equal(r.length, 2 * MIB - 65000 + 1);
	assert_int_equal(server_saw(&main_server, "[\"Range\", \"bytes=65000-2097152\"]"), 1);
	assert_int_equal(server_saw(&main_server, "[\"Accept-Encoding\", \"identity\"]"), 1);
	q = (struct http_request){ .url = url, .suffix = 100 };
	assert_int_equal(ask(http, &q, NULL, &r), 100);
	assert_int_equal(r.range_first, 3000000 - 100);
	q = (struct http_request){
		.url = url, .has_range = true, .first = 3000000, .last = 3000000
	};
	assert_true(ask(http, &q, NULL, &r) >= 0);
	assert_int_equal(r.status, 416);
	assert_int_equal(r.range_total, 3000000);
	q = (struct http_request){ .url = url, .has_range = true, .first = 2, .last = 1 };
	assert_int_equal(ask(http, &q, NULL, &r), -EINVAL);
	q = (struct http_request){ .url = url, .has_range = true, .suffix = 1 };
	assert_int_equal(ask(http, &q, NULL, &r), -EINVAL);
	http_free(http);
}

static void test_range_lies(void **state)
{
	struct http *http = start_default();
	struct http_response r;
	char url[URL_MAX];
	struct http_request q = { .url = url, .has_range = true, .first = 100, .last = 199 };

	(void)state;
	url_of(&main_server, url, "/size=1000/norange/x");
	q.first = 0;
	assert_int_equal(ask(http, &q, pattern(0), &r), 1000);
	assert_int_equal(r.status, 200);
	assert_false(r.accept_ranges);
	q.first = 100;
	url_of(&main_server, url, "/size=1000/badrange=7/x");
	assert_int_equal(ask(http, &q, pattern(0), &r), 100);
	assert_int_equal(r.range_first, 107);
	url_of(&main_server, url, "/size=1000/badtotal=-5/x");
	assert_int_equal(ask(http, &q, pattern(0), &r), 100);
	assert_int_equal(r.range_total, 995);
	/* More or fewer bytes than Content-Range says. */
	log_clear();
	url_of(&main_server, url, "/size=1000/long=1/x");
	assert_int_equal(ask(http, &q, NULL, &r), -EPROTO);
	assert_logged_once("contradict");
	url_of(&main_server, url, "/size=1000/chunked/extra=1/x");
	assert_int_equal(ask(http, &q, NULL, &r), -EPROTO);
	assert_logged_once("longer than announced");
	url_of(&main_server, url, "/size=1000/close/truncate=99/x");
	assert_int_equal(ask(http, &q, NULL, &r), -EPROTO);
	assert_logged_once("shorter than announced");
	/* a part of a coded body comes as it is sent, whoever has coded it */
	for (size_t i = 0; i < 2; i++) {
		url_of(&main_server, url, i ? "/size=1000/enc=gzip/x" : "/size=1000/as=gzip/x");
		q.first = 0;
		q.last = 9;
		assert_int_equal(ask(http, &q, i ? NULL : pattern(0), &r), 10);
		assert_int_equal(r.length, 10);
		assert_true(r.coded && r.status == 206);
		assert_string_equal(r.coding, "gzip");
	}
	/* and a body as long as the file, if it is known */
	url_of(&main_server, url, "/size=1000/as=gzip/x");
	q = (struct http_request){ .url = url, .plain = 1000 };
	assert_int_equal(ask(http, &q, pattern(0), &r), 1000);
	assert_true(r.coded && r.length == 1000 && r.sent == 1000);
	q.plain = 999;
	assert_int_equal(ask(http, &q, NULL, &r), -EBADMSG);
	assert_true(r.length == -1 && r.sent == 1000);
	http_free(http);
}

static void test_validators(void **state)
{
	struct http *http = start_default();
	struct http_response r;
	char url[URL_MAX];
	const char *date = "Tue, 15 Nov 1994 12:45:26 GMT",
		   *older = "Mon, 14 Nov 1994 12:45:26 GMT";
	struct http_request q = { .url = url, .has_range = true, .first = 0, .last = 9 };

	(void)state;
	server_clear(&main_server);
	url_of(&main_server, url,
	       "/size=1000/etag=abc/lastmod=Tue,%%2015%%20Nov%%201994%%2012:45:26"
	       "%%20GMT/x");
	q.if_match = "\"abc\"";
	assert_int_equal(ask(http, &q, pattern(0), &r), 10);
	assert_string_equal(r.etag, "\"abc\"");
	assert_string_equal(r.last_modified, date);
	q.if_match = "\"old\"";
	ask(http, &q, NULL, &r);
	assert_int_equal(r.status, 412);
	q.if_match = NULL;
	q.if_range = "\"old\"";
	assert_int_equal(ask(http, &q, pattern(0), &r), 1000);
	assert_int_equal(r.status, 200);
	q.if_range = date;
	assert_int_equal(ask(http, &q, pattern(0), &r), 10);
	q.if_range = NULL;
	q.if_unmodified_since = older;
	ask(http, &q, NULL, &r);
	assert_int_equal(r.status, 412);
	q.if_unmodified_since = date;
	q.no_cache = true;
	assert_int_equal(ask(http, &q, pattern(0), &r), 10);
	assert_int_equal(server_saw(&main_server, "[\"Cache-Control\", \"no-cache\"]"), 1);
	q.if_match = "\"a\"\r\nX: y";
	assert_int_equal(ask(http, &q, NULL, &r), -EINVAL);
	http_free(http);
}

static void test_head(void **state)
{
	struct http *http = start_default();
	struct http_response r;
	char url[URL_MAX];
	struct http_request q = { .url = url, .method = HTTP_HEAD, .identity = true };

	(void)state;
	server_clear(&main_server);
	url_of(&main_server, url, "/size=5000000000/x");
	assert_int_equal(ask(http, &q, NULL, &r), 0);
	assert_int_equal(r.length, 5000000000);
	assert_true(r.accept_ranges);
	url_of(&main_server, url, "/size=10/headlen=7/x");
	assert_int_equal(ask(http, &q, NULL, &r), 0);
	assert_int_equal(r.length, 7);
	url_of(&main_server, url, "/size=10/nohead/x");
	assert_int_equal(ask(http, &q, NULL, &r), 0);
	assert_int_equal(r.status, 405);
	url_of(&main_server, url, "/size=10/chunked/x");
	assert_int_equal(ask(http, &q, NULL, &r), 0);
	assert_int_equal(r.length, -1);
	url_of(&main_server, url, "/size=1000/enc=gzip/x");
	assert_int_equal(ask(http, &q, NULL, &r), 0);
	assert_int_equal(r.length, -1);
	assert_string_equal(r.coding, "gzip");
	/* All on one connection. */
	assert_int_equal(server_connections(&main_server), 1);
	assert_int_equal(server_saw(&main_server, "\"method\": \"HEAD\""), 5);
	http_free(http);
}

static void test_statuses(void **state)
{
	static const int statuses[] = { 204, 304, 300, 400, 401, 403, 404, 410, 429, 500, 503 };
	struct http *http = start_default();
	struct http_response r;
	char url[URL_MAX];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(statuses); i++) {
		bool empty = i < 2;

		url_of(&main_server, url, "/size=%d/status=%d/retryafter=%zu/x", empty ? 0 : 20,
		       statuses[i], i);
		assert_int_equal(get(http, url, pattern(0), &r), empty ? 0 : 20);
		assert_int_equal(r.status, statuses[i]);
		assert_int_equal(r.retry_after_s, i);
	}
	url_of(&main_server, url, "/size=20/fail=3:503/x");
	for (int i = 0; i < 4; i++) {
		assert_true(get(http, url, NULL, &r) >= 0);
		assert_int_equal(r.status, i < 3 ? 503 : 200);
	}
	assert_int_equal(log_count(), 0);
	http_free(http);
}

/* ---- failures ---- */

static int closed_port(void)
{
	struct sockaddr_in in = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t n = sizeof(in);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(bind(fd, (struct sockaddr *)&in, n), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&in, &n), 0);
	return ntohs(in.sin_port); /* bound and kept, never listening */
}

static void test_failures(void **state)
{
	static const struct {
		const char *path;
		int error;
		const char *message;
	} cases[] = {
		{ "/size=9/refuse/x", -ECONNRESET, "" },
		{ "/size=9/eof/x", -ECONNRESET, "" },
		{ "/size=9/silent/x", -ETIMEDOUT, "does not answer" },
		{ "/size=9/slowhead=150/headers=90/x", -ETIMEDOUT, "does not answer" },
		{ "/size=9/garbage/x", -EPROTO, "" },
		{ "/size=100000/stall=0/x", -ETIMEDOUT, "stopped sending" },
		{ "/size=100000/stall=50000/x", -ETIMEDOUT, "stopped sending" },
		{ "/size=100000/enc=gzip/stall=50000/x", -ETIMEDOUT, "stopped sending" },
		{ "/size=100000/rate=200/x", -ETIMEDOUT, "stopped sending" },
		{ "/size=100000/reset=50000/x", -ECONNRESET, "" },
		{ "/size=100000/reset=0/x", -ECONNRESET, "" },
		{ "/size=100000/truncate=99999/x", -ECONNRESET, "" },
		{ "/size=100000/truncate=0/x", -ECONNRESET, "" },
		{ "/size=100000/chunked/truncate=50000/x", -ECONNRESET, "" },
		{ "/size=100000/chunked/reset=50000/x", -ECONNRESET, "" },
		{ "/size=100000/length=100001/truncate=100000/x", -ECONNRESET, "" },
		{ "/size=9/headers=300/x", -EFBIG, "headers are too large" },
		{ "/size=9/headersize=66000/x", -EFBIG, "headers are too large" },
		{ "/size=9/headersize=200000/x", -EFBIG, "headers are too large" },
		{ "/size=9/info=200/x", -EFBIG, "headers are too large" },
		{ "/size=9/h=Content-Length:10/x", -EPROTO, "malformed" },
		{ "/size=9/chunked/trailers=300/x", -EFBIG, "headers are too large" },
	};
	struct http *http = start_with(&(struct http_options){ .stall_ms = 500 * SLOW });
	char url[URL_MAX];
	struct http_response response;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		ssize_t r;

		log_clear();
		r = get_path(http, cases[i].path);
		if (r != cases[i].error)
			fail_msg("%s: %zd", cases[i].path, r);
		assert_logged_once(cases[i].message);
	}
	snprintf(url, sizeof(url), "http://u:secret@127.0.0.1:%d/x?secret#secret", closed_port());
	assert_int_equal(get(http, url, NULL, &response), -ECONNREFUSED);
	assert_false(log_has("secret"));
	log_clear();
	assert_int_equal(get(http, "http://no.such.name.invalid/x?secret", NULL, &response),
			 -EHOSTUNREACH);
	assert_logged_once("http://no.such.name.invalid/x: ");
	http_free(http);
	http = start_default();
	assert_int_equal(get_path(http, "/size=10/info=3/x"), 10);
	assert_int_equal(get_path(http, "/size=10/chunked/trailers=3/x"), 10);
	/* Bytes after the body are nobody's. */
	assert_int_equal(get_path(http, "/size=100000/extra=5000/x"), 100000);
	assert_int_equal(log_count(), 0);
	http_free(http);
}

/* The bytes that came before a failure are given first. */
static void test_bytes_before_failure(void **state)
{
	struct http *http = start_default();
	struct http_response response;
	struct http_reader *s;
	uint64_t got;
	char url[URL_MAX];

	(void)state;
	url_of(&main_server, url, "/size=3000000/seed=1/truncate=2500000/x");
	assert_int_equal(
		http_open(http, &(struct http_request){ .url = url }, 0, NULL, &s, &response), 0);
	assert_int_equal(drain(s, 5000, pattern(1), 0, &got), -ECONNRESET);
	assert_int_equal(got, 2500000);
	assert_int_equal(http_read(s, url, 1), -ECONNRESET);
	http_reader_close(s);
	assert_logged_once("");
	http_free(http);
}

/* A reader that is slow for longer than the stall time has not met a stall. */
static void test_slow_reader(void **state)
{
	struct http *http = start_with(&(struct http_options){ .stall_ms = 100 });
	struct http_response response;
	struct http_reader *s;
	char url[URL_MAX], buf[4096];

	(void)state;
	url_of(&main_server, url, "/size=30000000/seed=1/x");
	assert_int_equal(
		http_open(http, &(struct http_request){ .url = url }, 0, NULL, &s, &response), 0);
	assert_int_equal(http_read(s, buf, 100), 100);
	/* Time passes while another transfer of the same thread runs into its stall, twice. */
	assert_int_equal(get_path(http, "/size=9/silent/1"), -ETIMEDOUT);
	assert_int_equal(get_path(http, "/size=9/silent/2"), -ETIMEDOUT);
	assert_int_equal(drain(s, sizeof(buf), pattern(1), 100, NULL), 30000000 - 100);
	http_reader_close(s);
	http_free(http);
}

static void test_start(void **state)
{
	struct http *http = NULL;

	(void)state;
	log_clear();
	assert_int_equal(
		http_new(&(struct http_options){ .source_url = "ftp://u:secret@h/" }, &http),
		-EINVAL);
	assert_false(log_has("secret"));
	assert_int_equal(http_new(&(struct http_options){ .cacert = "/dev/null/x" }, &http),
			 -ENOTDIR);
	assert_int_equal(http_new(&(struct http_options){ .header_file = "/dev/null/x" }, &http),
			 -ENOTDIR);
	assert_null(http);
	assert_int_equal(log_count(), 3);
	http_free(NULL);
	http_reader_close(NULL);
	log_clear();
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sizes),	     cmocka_unit_test(test_pieces),
		cmocka_unit_test(test_backpressure), cmocka_unit_test(test_codings),
		cmocka_unit_test(test_bombs),	     cmocka_unit_test(test_coding_refused),
		cmocka_unit_test(test_odd_codings),  cmocka_unit_test(test_range),
		cmocka_unit_test(test_range_lies),   cmocka_unit_test(test_validators),
		cmocka_unit_test(test_head),	     cmocka_unit_test(test_statuses),
		cmocka_unit_test(test_failures),     cmocka_unit_test(test_bytes_before_failure),
		cmocka_unit_test(test_slow_reader),  cmocka_unit_test(test_start),
	};

	help_start();
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, main_setup, main_teardown);
}
