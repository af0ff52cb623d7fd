/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP against tests/mount/faultserver.py on loopback. What needs other addresses runs in a
 * network namespace of its own: this program starts itself again as `test_http netns`.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "../../core/http.h"
#include "../../core/http_policy.h"
#include "../../core/http_response.h"
#include "../../core/util.h"

#define BLOCK 65521
#define SKIPPED 77

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define SLOW 4
#else
#define SLOW 1
#endif

/* What a busy machine may add to a time, and what it may not to a cancelled wait. */
#define LATE (2000 * SLOW)
#define PROMPT (50 * SLOW)

/* ---- what was logged ---- */

static struct {
	pthread_mutex_t lock;
	char text[1 << 16];
	size_t len;
	unsigned n;
} logged = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void log_keep(void *ctx, enum carton_log_level level, const char *subject,
		     const char *message)
{
	int n;

	(void)ctx;
	(void)level;
	pthread_mutex_lock(&logged.lock);
	n = snprintf(logged.text + logged.len, sizeof(logged.text) - logged.len, "%s: %s\n",
		     subject ? subject : "-", message);
	logged.len = MIN(logged.len + (size_t)n, sizeof(logged.text) - 1);
	logged.n++;
	pthread_mutex_unlock(&logged.lock);
	if (getenv("TEST_LOG"))
		fprintf(stderr, "LOG %s: %s\n", subject ? subject : "-", message);
}

static void log_clear(void)
{
	pthread_mutex_lock(&logged.lock);
	logged.len = logged.n = 0;
	logged.text[0] = '\0';
	pthread_mutex_unlock(&logged.lock);
}

static unsigned log_count(void)
{
	unsigned n;

	pthread_mutex_lock(&logged.lock);
	n = logged.n;
	pthread_mutex_unlock(&logged.lock);
	return n;
}

static bool log_has(const char *what)
{
	bool has;

	pthread_mutex_lock(&logged.lock);
	has = strstr(logged.text, what);
	pthread_mutex_unlock(&logged.lock);
	return has;
}

/* Exactly one message since log_clear, and it says so. */
static void assert_logged_once(const char *what)
{
	if (log_count() != 1 || !log_has(what))
		fail_msg("wanted one message with '%s', got %u: %s", what, log_count(), logged.text);
	log_clear();
}

/* ---- the fault server ---- */

struct server {
	pid_t pid;
	int in;			/* closing it ends the server */
	int port;
	char host[64];
};

static struct server main_server;

static const char *server_script(void)
{
	static char path[4096];
	const char *slash = strrchr(__FILE__, '/');

	snprintf(path, sizeof(path), "%.*s/../mount/faultserver.py",
		 slash ? (int)(slash - __FILE__) : 1, slash ? __FILE__ : ".");
	return getenv("FAULTSERVER") ? getenv("FAULTSERVER") : path;
}

static void server_start(struct server *s, const char *host, const char *cert, const char *key)
{
	int in[2], out[2];
	char port[16] = "";
	ssize_t n = 0;

	assert_int_equal(pipe2(in, O_CLOEXEC), 0);
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	s->pid = fork();
	assert_true(s->pid >= 0);
	if (s->pid == 0) {
		dup2(in[0], 0);
		dup2(out[1], 1);
		execlp("python3", "python3", server_script(), "--stdin", "--host", host,
		       cert ? "--tls" : NULL, cert, key, NULL);
		_exit(127);
	}
	close(in[0]);
	close(out[1]);
	for (size_t got = 0; !strchr(port, '\n'); got += (size_t)n) {
		n = read(out[0], port + got, sizeof(port) - 1 - got);
		if (n <= 0)
			break;
	}
	close(out[0]);
	if (n <= 0)
		fail_msg("%s does not start: %s", server_script(), strerror(n ? errno : EPIPE));
	s->in = in[1];
	s->port = atoi(port);
	snprintf(s->host, sizeof(s->host), "%s", host);
}

static void server_stop(struct server *s)
{
	if (s->pid <= 0)
		return;
	close(s->in);
	kill(s->pid, SIGKILL);
	waitpid(s->pid, NULL, 0);
	s->pid = 0;
}

/* Asks the server a question of the test's own, not through the code under test. */
static char *server_ask(const struct server *s, const char *path)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons((uint16_t)s->port) };
	struct buf b = buf_init(64 * MIB);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char line[512], *body;
	ssize_t n;

	assert_int_equal(inet_pton(AF_INET, s->host, &to.sin_addr), 1);
	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	n = snprintf(line, sizeof(line), "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path);
	assert_int_equal(send(fd, line, (size_t)n, MSG_NOSIGNAL), n);
	while ((n = recv(fd, line, sizeof(line), 0)) > 0)
		assert_int_equal(buf_add(&b, line, (size_t)n), 0);
	close(fd);
	body = b.data ? strstr(b.data, "\r\n\r\n") : NULL;
	assert_non_null(body);
	memmove(b.data, body + 4, strlen(body + 4) + 1);
	return b.data;
}

static unsigned count(const char *text, const char *what)
{
	unsigned n = 0;

	while ((text = strstr(text, what))) {
		text += strlen(what);
		n++;
	}
	return n;
}

static void server_clear(const struct server *s)
{
	free(server_ask(s, "/_clear"));
}

/* How often the server's log of requests holds this text. */
static unsigned server_saw(const struct server *s, const char *what)
{
	char *text = server_ask(s, "/_log");
	unsigned n = count(text, what);

	free(text);
	return n;
}

static unsigned server_connections(const struct server *s)
{
	char *text = server_ask(s, "/_log"), *at = strstr(text, "\"connections\": ");
	unsigned n;

	assert_non_null(at);
	n = (unsigned)strtoul(at + 15, NULL, 10);
	free(text);
	return n;
}

static uint64_t server_sent(const struct server *s, const char *path)
{
	char *text = server_ask(s, "/_log"), *at = strstr(text, path);
	uint64_t n = 0;

	if (at && (at = strstr(at, "\"sent\": ")))
		n = strtoull(at + 8, NULL, 10);
	free(text);
	return n;
}

static char *temp_file(const char *text, size_t n)
{
	char *path = strdup("/tmp/test_http.XXXXXX");
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, n), (ssize_t)n);
	close(fd);
	return path;
}

/* ---- what the server serves ---- */

static const uint8_t *pattern(unsigned seed)
{
	static uint8_t block[8][BLOCK];
	static bool made[8];
	uint32_t x = seed * 2654435761U + 12345;

	assert_true(seed < 8);
	for (size_t i = 0; !made[seed]; i++) {
		x = x * 1103515245U + 12345;
		block[seed][i] = (uint8_t)(x >> 16);
		made[seed] = i + 1 == BLOCK;
	}
	return block[seed];
}

static bool is_pattern(const uint8_t *block, uint64_t off, const char *data, size_t n)
{
	while (n > 0) {
		size_t at = off % BLOCK, part = MIN(n, BLOCK - at);

		if (memcmp(block + at, data, part))
			return false;
		off += part;
		data += part;
		n -= part;
	}
	return true;
}

/* ---- asking ---- */

#define URL_MAX 2048

static char *url_of(const struct server *s, char *ret, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static char *url_of(const struct server *s, char *ret, const char *fmt, ...)
{
	int n = snprintf(ret, URL_MAX, "http://%s:%d", s->host, s->port);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(ret + n, (size_t)(URL_MAX - n), fmt, ap);
	va_end(ap);
	return ret;
}

static struct http *start_with(const struct http_options *o)
{
	struct http *http = NULL;

	assert_int_equal(http_start(o, &http), 0);
	log_clear();
	return http;
}

static struct http *start_default(void)
{
	return start_with(&(struct http_options){ 0 });
}

/*
 * Reads a stream to its end in pieces of `piece` bytes, comparing with the pattern from `off`.
 * Returns the bytes, or the -errno that ended it.
 */
static ssize_t drain(struct http_stream *s, size_t piece, const uint8_t *block, uint64_t off,
		     uint64_t *ret_got)
{
	char *buf = malloc(piece);
	uint64_t got = 0;
	ssize_t n;

	while ((n = http_read(s, buf, piece)) > 0) {
		if (block && !is_pattern(block, off + got, buf, (size_t)n))
			fail_msg("wrong bytes near %llu", (unsigned long long)(off + got));
		got += (uint64_t)n;
	}
	free(buf);
	if (ret_got)
		*ret_got = got;
	return n < 0 ? n : (ssize_t)got;
}

/* One GET of `q`, read to its end: the body's bytes or -errno, of open or read. */
static ssize_t ask(struct http *http, const struct http_request *q, const uint8_t *block,
		   struct http_response *ret)
{
	uint64_t off = q->has_range ? q->first : 0;
	struct http_stream *s = NULL;
	ssize_t r = http_open(http, q, NULL, &s, ret);

	if (r < 0) {
		assert_null(s);
		return r;
	}
	r = drain(s, 60000, block, off, NULL);
	http_close(s);
	return r;
}

static ssize_t get(struct http *http, const char *url, const uint8_t *block,
		   struct http_response *ret)
{
	return ask(http, &(struct http_request){ .url = url }, block, ret);
}

static ssize_t get_path(struct http *http, const char *path)
{
	struct http_response response;
	char url[URL_MAX];

	return get(http, url_of(&main_server, url, "%s", path), NULL, &response);
}

/* ---- transfers ---- */

static void test_sizes(void **state)
{
	static const uint64_t sizes[] = { 0, 1, 16383, 16384, 16385, MIB - 1, MIB, MIB + 1, 5 * MIB + 3 };
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
			assert_string_equal(response.final_url, url);
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
	struct http_stream *s;
	char url[URL_MAX];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(pieces); i++) {
		uint64_t size = pieces[i] < 100 ? 2 * MIB + 1 : 9 * MIB + 1;

		url_of(&main_server, url, "/size=%llu/x", (unsigned long long)size);
		assert_int_equal(http_open(http, &(struct http_request){ .url = url }, NULL, &s,
					   &response), 0);
		assert_int_equal(http_read(s, NULL, 0), 0);
		assert_int_equal(drain(s, pieces[i], pattern(0), 0, NULL), size);
		assert_int_equal(http_read(s, url, 1), 0);
		http_close(s);
	}
	http_free(http);
}

/* A reader that does not read costs its buffer and what the kernel holds, and slows nobody. */
static void test_backpressure(void **state)
{
	struct http *http = start_default();
	struct http_response response;
	struct http_stream *a, *b;
	char url[URL_MAX];

	(void)state;
	server_clear(&main_server);
	url_of(&main_server, url, "/size=201326592/seed=2/a");
	assert_int_equal(http_open(http, &(struct http_request){ .url = url }, NULL, &a, &response), 0);
	url_of(&main_server, url, "/size=201326592/seed=3/b");
	assert_int_equal(http_open(http, &(struct http_request){ .url = url }, NULL, &b, &response), 0);
	assert_int_equal(drain(b, 1 << 20, pattern(3), 0, NULL), 201326592);
	assert_in_range(server_sent(&main_server, "/seed=2/a"), 1, 64 * MIB);
	assert_int_equal(drain(a, 1 << 20, pattern(2), 0, NULL), 201326592);
	http_close(a);
	http_close(b);
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
			       (unsigned long long)sizes[k / 2], codings[i], k % 2 ? "chunked/" : "");
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
	uint8_t *zeros = calloc(1, BLOCK);
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
		{ "/size=1000/enc=gzip/as=gzip,%20identity,gzip/x", -EBADMSG, "coded more than once" },
		{ "/size=1000/as=a,b,c,d,e,f,g,h/x", -EBADMSG, "" },
		{ "/size=1000/as=compress/x", -EOPNOTSUPP, "cannot be read here" },
		{ "/size=1000/as=gzip/x", -EBADMSG, "broken" },
		{ "/size=1000/as=br/x", -EBADMSG, "broken" },
		{ "/size=1000/as=zstd/x", -EBADMSG, "broken" },
		{ "/size=1000/as=deflate/x", -EBADMSG, "broken" },
		{ "/size=100000/enc=gzip/flipwire=50000/x", -EBADMSG, "broken" },
		{ "/size=1000/h=Transfer-Encoding:gzip/x", -EBADMSG, "coded more than once" },
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
		struct http_stream *s;
		struct http_response response;
		char url[URL_MAX];

		url_of(&main_server, url, "/size=10/as=compress/status=404/x");
		assert_int_equal(http_open(http, &(struct http_request){ .url = url }, NULL, &s,
					   &response), 0);
		assert_int_equal(response.status, 404);
		http_close(s);
	}
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
	q = (struct http_request){ .url = url, .has_range = true, .first = 3000000, .last = 3000000 };
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
	url_of(&main_server, url, "/size=1000/enc=gzip/x");
	q.last = 150;
	assert_int_equal(ask(http, &q, NULL, &r), -EOPNOTSUPP);
	assert_logged_once("part of a coded body");
	http_free(http);
}

static void test_validators(void **state)
{
	struct http *http = start_default();
	struct http_response r;
	char url[URL_MAX];
	const char *date = "Tue, 15 Nov 1994 12:45:26 GMT", *older = "Mon, 14 Nov 1994 12:45:26 GMT";
	struct http_request q = { .url = url, .has_range = true, .first = 0, .last = 9 };

	(void)state;
	server_clear(&main_server);
	url_of(&main_server, url, "/size=1000/etag=abc/lastmod=Tue,%%2015%%20Nov%%201994%%2012:45:26"
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
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t n = sizeof(in);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(bind(fd, (struct sockaddr *)&in, n), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&in, &n), 0);
	return ntohs(in.sin_port);	/* bound and kept, never listening */
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
	struct http_stream *s;
	uint64_t got;
	char url[URL_MAX];

	(void)state;
	url_of(&main_server, url, "/size=3000000/seed=1/truncate=2500000/x");
	assert_int_equal(http_open(http, &(struct http_request){ .url = url }, NULL, &s, &response), 0);
	assert_int_equal(drain(s, 5000, pattern(1), 0, &got), -ECONNRESET);
	assert_int_equal(got, 2500000);
	assert_int_equal(http_read(s, url, 1), -ECONNRESET);
	http_close(s);
	assert_logged_once("");
	http_free(http);
}

/* A reader that is slow for longer than the stall time has not met a stall. */
static void test_slow_reader(void **state)
{
	struct http *http = start_with(&(struct http_options){ .stall_ms = 100 });
	struct http_response response;
	struct http_stream *s;
	char url[URL_MAX], buf[4096];

	(void)state;
	url_of(&main_server, url, "/size=30000000/seed=1/x");
	assert_int_equal(http_open(http, &(struct http_request){ .url = url }, NULL, &s, &response), 0);
	assert_int_equal(http_read(s, buf, 100), 100);
	/* Time passes while another transfer of the same thread runs into its stall, twice. */
	assert_int_equal(get_path(http, "/size=9/silent/1"), -ETIMEDOUT);
	assert_int_equal(get_path(http, "/size=9/silent/2"), -ETIMEDOUT);
	assert_int_equal(drain(s, sizeof(buf), pattern(1), 100, NULL), 30000000 - 100);
	http_close(s);
	http_free(http);
}

static void test_start(void **state)
{
	struct http *http = NULL;

	(void)state;
	log_clear();
	assert_int_equal(http_start(&(struct http_options){ .origin_url = "ftp://u:secret@h/" }, &http),
			 -EINVAL);
	assert_false(log_has("secret"));
	assert_int_equal(http_start(&(struct http_options){ .cacert = "/dev/null/x" }, &http), -ENOTDIR);
	assert_int_equal(http_start(&(struct http_options){ .header_file = "/dev/null/x" }, &http),
			 -ENOTDIR);
	assert_null(http);
	assert_int_equal(log_count(), 3);
	http_free(NULL);
	http_close(NULL);
	log_clear();
}

/* ---- redirects ---- */

/* Percent-encodes, so that a URL fits into one segment of a path. */
static const char *segment(const char *url)
{
	static char out[2][3 * URL_MAX + 1];
	static int turn;
	char *p = out[turn ^= 1];
	const char *start = p;

	for (; *url; url++)
		p += sprintf(p, "%%%02X", (unsigned char)*url);
	return start;
}

static void test_redirects(void **state)
{
	static const int codes[] = { 301, 302, 303, 307, 308 };
	struct http *http = start_default();
	struct http_response r;
	char url[URL_MAX], to[URL_MAX];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(codes); i++) {
		url_of(&main_server, to, "/size=1000/n=%zu/x?token=%zu", i, i);
		url_of(&main_server, url, "/redirect=%d/to=%s/x", codes[i], segment(to));
		assert_int_equal(get(http, url, pattern(0), &r), 1000);
		assert_string_equal(r.final_url, to);
	}
	server_clear(&main_server);
	url_of(&main_server, url, "/hops=5/size=1000/x");
	assert_int_equal(get(http, url, pattern(0), &r), 1000);
	/* Their bodies were read, and the connection kept. */
	assert_int_equal(server_connections(&main_server), 0);
	assert_int_equal(log_count(), 0);
	url_of(&main_server, url, "/hops=6/size=1000/x");
	assert_int_equal(get(http, url, NULL, &r), -ELOOP);
	assert_logged_once("too many redirects");
	server_clear(&main_server);
	url_of(&main_server, url, "/loop/x");
	assert_int_equal(get(http, url, NULL, &r), -ELOOP);
	assert_logged_once("circle");
	assert_int_equal(server_saw(&main_server, "\"method\""), 1);
	url_of(&main_server, url, "/redirect=302/x");
	assert_int_equal(get(http, url, NULL, &r), 4);
	assert_int_equal(r.status, 302);
	url_of(&main_server, url, "/redirect=302/to=%s/x", segment("ftp://127.0.0.1/x?secret"));
	assert_int_equal(get(http, url, NULL, &r), -EACCES);
	assert_logged_once("only http and https");
	url_of(&main_server, url, "/redirect=302/to=%s/x", segment("file:///etc/passwd"));
	assert_int_equal(get(http, url, NULL, &r), -EACCES);
	assert_logged_once("only http and https");
	url_of(&main_server, url, "/redirect=302/to=%s/x", segment("http://:::/"));
	assert_int_equal(get(http, url, NULL, &r), -EPROTO);
	log_clear();
	http_free(http);
}

static void test_dl_url(void **state)
{
	struct http *http = start_default();
	struct http_response r;
	char url[URL_MAX], to[URL_MAX];

	(void)state;
	server_clear(&main_server);
	url_of(&main_server, to, "/size=1000/seed=1/real");
	/* Its own body is larger than what is read to keep a connection. */
	url_of(&main_server, url, "/size=5000000/dl=%s/x", segment(to));
	assert_int_equal(get(http, url, pattern(1), &r), 1000);
	assert_string_equal(r.final_url, to);
	assert_int_equal(ask(http, &(struct http_request){ .url = url, .method = HTTP_HEAD }, NULL, &r),
			 0);
	assert_int_equal(r.length, 1000);
	assert_int_equal(server_saw(&main_server, "\"method\": \"HEAD\""), 2);
	url_of(&main_server, url, "/size=50/status=404/dl=%s/x", segment(to));
	assert_int_equal(get(http, url, NULL, &r), 50);
	assert_int_equal(r.status, 404);
	/* Counted, and seen as a circle. */
	url_of(&main_server, url, "/hops=5/size=10/dl=%s/x", segment(to));
	assert_int_equal(get(http, url, NULL, &r), -ELOOP);
	assert_logged_once("too many");
	url_of(&main_server, url, "/size=10/dl=x/x");
	assert_int_equal(get(http, url, NULL, &r), -ELOOP);
	assert_logged_once("circle");
	http_free(http);
}

/* ---- credentials ---- */

static void test_origin_headers(void **state)
{
	struct server other;
	char *file = temp_file("X-Token: sesame\n", 16), origin[URL_MAX], url[URL_MAX], to[URL_MAX];
	struct http_options o = { .origin_url = origin, .header_file = file };
	struct http_response r;
	struct http *http;

	(void)state;
	server_start(&other, "127.0.0.1", NULL, NULL);
	server_clear(&main_server);
	url_of(&main_server, origin, "/m.carton");
	o.private_links = true;
	http = start_with(&o);
	url_of(&main_server, url, "/need=X-Token:sesame/size=10/x");
	assert_int_equal(get(http, url, pattern(0), &r), 10);
	/* The same host in another spelling of trust gets them too; another port does not. */
	assert_int_equal(ask(http, &(struct http_request){ .url = url, .trust = HTTP_LINKS }, NULL, &r),
			 10);
	url_of(&other, url, "/size=10/x");
	assert_int_equal(get(http, url, NULL, &r), 10);
	assert_int_equal(server_saw(&other, "sesame"), 0);
	/* Away, and back again: nothing any more. */
	server_clear(&main_server);
	url_of(&main_server, to, "/size=10/back");
	url_of(&other, url, "/redirect=302/to=%s/y", segment(to));
	snprintf(to, sizeof(to), "%s", url);
	url_of(&main_server, url, "/redirect=302/to=%s/x", segment(to));
	assert_int_equal(get(http, url, NULL, &r), 10);
	assert_int_equal(server_saw(&other, "sesame"), 0);
	assert_int_equal(server_saw(&main_server, "\"method\""), 2);
	assert_int_equal(server_saw(&main_server, "\"sesame\""), 1);
	assert_int_equal(log_count(), 0);
	http_free(http);
	unlink(file);
	free(file);
	server_stop(&other);
}

static void test_userinfo(void **state)
{
	char origin[URL_MAX], url[URL_MAX], to[URL_MAX];
	struct http_options o = { .origin_url = origin, .private_links = true };
	struct http_response r;
	struct http *http;
	struct server other;

	(void)state;
	server_start(&other, "127.0.0.1", NULL, NULL);
	snprintf(origin, sizeof(origin), "http://joe:s%%40cret@127.0.0.1:%d/m", main_server.port);
	http = start_with(&o);
	url_of(&main_server, url, "/auth=joe:s@cret/size=10/x");
	assert_int_equal(get(http, url, pattern(0), &r), 10);
	assert_string_equal(r.final_url, url);
	/* A redirect within the origin keeps them. */
	url_of(&main_server, to, "/redirect=302/to=%s/x", segment(url));
	assert_int_equal(get(http, to, pattern(0), &r), 10);
	url_of(&other, to, "/auth=joe:s@cret/size=10/x");
	assert_true(get(http, to, NULL, &r) >= 0);
	assert_int_equal(r.status, 401);
	assert_int_equal(server_saw(&other, "Authorization"), 0);
	assert_int_equal(log_count(), 0);
	/* Those of a LINKS URL and of a redirect are never sent. */
	snprintf(url, sizeof(url), "http://eve:pw@127.0.0.1:%d/size=10/x", other.port);
	assert_int_equal(ask(http, &(struct http_request){ .url = url, .trust = HTTP_LINKS }, NULL, &r),
			 10);
	assert_logged_once("are not sent");
	url_of(&main_server, to, "/redirect=302/to=%s/x", segment(url));
	assert_int_equal(get(http, to, NULL, &r), 10);
	assert_logged_once("are not sent");
	assert_int_equal(server_saw(&other, "Authorization"), 0);
	http_free(http);
	server_stop(&other);
}

static void test_netrc(void **state)
{
	static const char text[] = "machine 127.0.0.1 login ann password pw\n"
				   "default login any password pw\n";
	char home[] = "/tmp/test_http.XXXXXX", path[64], origin[URL_MAX], url[URL_MAX];
	char *old = getenv("HOME") ? strdup(getenv("HOME")) : NULL;
	struct http_response r;
	struct server other;
	struct http *http;
	int fd;

	(void)state;
	server_start(&other, "127.0.0.1", NULL, NULL);
	assert_non_null(mkdtemp(home));
	snprintf(path, sizeof(path), "%s/.netrc", home);
	fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
	setenv("HOME", home, 1);
	http = start_with(&(struct http_options){ .origin_url = url_of(&main_server, origin, "/m") });
	url_of(&main_server, url, "/auth=ann:pw/size=10/x");
	assert_int_equal(get(http, url, pattern(0), &r), 10);
	/* .netrc knows hosts, not ports: another port is another origin. */
	url_of(&other, url, "/size=10/x");
	assert_int_equal(get(http, url, pattern(0), &r), 10);
	assert_int_equal(server_saw(&other, "Authorization"), 0);
	http_free(http);
	http = start_default();
	url_of(&other, url, "/size=10/x");
	assert_int_equal(get(http, url, pattern(0), &r), 10);
	assert_int_equal(server_saw(&other, "Authorization"), 0);
	http_free(http);
	if (old)
		setenv("HOME", old, 1);
	else
		unsetenv("HOME");
	free(old);
	unlink(path);
	rmdir(home);
	server_stop(&other);
}

/* ---- addresses that are refused ---- */

static void test_links_loopback(void **state)
{
	static const char *const hosts[] = {
		"127.0.0.1", "localhost", "0x7f.1", "2130706433", "[::ffff:127.0.0.1]", "0.0.0.0", "0",
		"127.255.255.254", "[::]",
	};
	struct http *http = start_default();
	struct http_response r;
	char url[URL_MAX];

	(void)state;
	server_clear(&main_server);
	for (size_t i = 0; i < ARRAY_SIZE(hosts); i++) {
		struct http_request q = { .url = url, .trust = HTTP_LINKS };

		snprintf(url, sizeof(url), "http://%s:%d/size=10/x", hosts[i], main_server.port);
		log_clear();
		if (ask(http, &q, NULL, &r) != -EACCES)
			fail_msg("%s is reached", url);
		assert_logged_once("-o private_links");
	}
	assert_int_equal(server_connections(&main_server), 0);
	/* A connection that the user's URL has opened is no way around. */
	url_of(&main_server, url, "/size=10/x");
	assert_int_equal(get(http, url, pattern(0), &r), 10);
	assert_int_equal(ask(http, &(struct http_request){ .url = url, .trust = HTTP_LINKS }, NULL, &r),
			 -EACCES);
	assert_logged_once("loopback address");
	assert_int_equal(server_saw(&main_server, "\"method\""), 1);
	http_free(http);
	http = start_with(&(struct http_options){ .private_links = true });
	assert_int_equal(ask(http, &(struct http_request){ .url = url, .trust = HTTP_LINKS }, NULL, &r),
			 10);
	http_free(http);
}

/* The user's loopback URL may send us around loopback, not to other private places. */
static void test_user_redirect_class(void **state)
{
	static const char *const refused[] = {
		"http://10.0.0.1/x", "http://169.254.169.254/latest", "http://192.168.1.1/",
		"http://[fe80::1]/", "http://[fc00::1]/", "http://224.0.0.1/", "http://0.0.0.0:1/",
		"http://[::ffff:10.0.0.1]/", "http://[64:ff9b::10.0.0.1]/", "http://100.64.0.1/",
		"http://255.255.255.255/", "http://240.0.0.1/", "http://[2002:a00:1::1]/",
	};
	struct http *http = start_default();
	struct http_response r;
	struct server other;
	char url[URL_MAX], to[URL_MAX];

	(void)state;
	server_start(&other, "127.0.0.2", NULL, NULL);
	url_of(&other, to, "/size=10/x");
	url_of(&main_server, url, "/redirect=302/to=%s/x", segment(to));
	assert_int_equal(get(http, url, pattern(0), &r), 10);
	for (size_t i = 0; i < 2 * ARRAY_SIZE(refused); i++) {
		const char *how = i % 2 ? "size=3/dl" : "redirect=307/to";

		url_of(&main_server, url, "/%s=%s/x", how, segment(refused[i / 2]));
		log_clear();
		if (get(http, url, NULL, &r) != -EACCES)
			fail_msg("%s is reached", refused[i / 2]);
		assert_logged_once("a redirect leads to a ");
	}
	http_free(http);
	server_stop(&other);
}

static void test_proxy(void **state)
{
	static const char *const refused[] = {
		"http://localhost/x", "http://127.0.0.1/x", "http://10.1.2.3/x", "http://[::1]/x",
		"http://0x7f.1/x", "http://a.localhost./x",
	};
	struct http_request q = { .trust = HTTP_LINKS };
	struct http_response r;
	struct http *http;
	char proxy[URL_MAX], url[URL_MAX];

	(void)state;
	server_clear(&main_server);
	setenv("http_proxy", url_of(&main_server, proxy, "/"), 1);
	setenv("no_proxy", "direct.invalid", 1);
	http = start_default();
	unsetenv("http_proxy");
	unsetenv("no_proxy");
	/* The name is the proxy's to resolve, and its own loopback address is no obstacle. */
	q.url = "http://somewhere.invalid/size=10/x";
	assert_int_equal(ask(http, &q, pattern(0), &r), 10);
	assert_int_equal(server_saw(&main_server, "\"somewhere.invalid\""), 1);
	for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
		q.url = refused[i];
		log_clear();
		assert_int_equal(ask(http, &q, NULL, &r), -EACCES);
		assert_logged_once("-o private_links");
	}
	q.url = url;
	snprintf(url, sizeof(url), "http://somewhere.invalid/redirect=302/to=%s/x",
		 segment("http://169.254.169.254/"));
	assert_int_equal(ask(http, &q, NULL, &r), -EACCES);
	assert_logged_once("link-local");
	assert_int_equal(server_saw(&main_server, "\"method\""), 2);
	q.url = "http://direct.invalid/x";
	assert_int_equal(ask(http, &q, NULL, &r), -EHOSTUNREACH);
	log_clear();
	http_free(http);
}

/* ---- TLS ---- */

static void test_tls(void **state)
{
	char dir[] = "/tmp/test_http.XXXXXX", cert[64], key[64], command[512], url[URL_MAX];
	char to[URL_MAX];
	struct http_response r;
	struct server tls;
	struct http *http;

	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(cert, sizeof(cert), "%s/cert", dir);
	snprintf(key, sizeof(key), "%s/key", dir);
	snprintf(command, sizeof(command),
		 "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 "
		 "-addext subjectAltName=IP:127.0.0.1 -keyout %s -out %s 2>/dev/null", key, cert);
	assert_int_equal(system(command), 0);
	server_start(&tls, "127.0.0.1", cert, key);
	snprintf(url, sizeof(url), "https://127.0.0.1:%d/size=3000000/x", tls.port);
	http = start_default();
	assert_int_equal(get(http, url, NULL, &r), -EACCES);
	assert_logged_once("certificate");
	http_free(http);
	http = start_with(&(struct http_options){ .cacert = cert });
	assert_int_equal(get(http, url, pattern(0), &r), 3000000);
	/* The right authority, the wrong name. */
	snprintf(url, sizeof(url), "https://127.0.0.2:%d/size=10/x", tls.port);
	assert_true(get(http, url, NULL, &r) < 0);
	snprintf(url, sizeof(url), "https://localhost:%d/size=10/x", tls.port);
	log_clear();
	assert_int_equal(get(http, url, NULL, &r), -EACCES);
	log_clear();
	server_clear(&main_server);
	url_of(&main_server, to, "/size=10/x");
	for (int i = 0; i < 2; i++) {
		snprintf(url, sizeof(url), "https://127.0.0.1:%d/%s=%s/size=4/x", tls.port,
			 i ? "dl" : "redirect=302/to", segment(to));
		assert_int_equal(get(http, url, NULL, &r), -EACCES);
		assert_logged_once("from https to http");
	}
	assert_int_equal(server_connections(&main_server), 0);
	http_free(http);
	server_stop(&tls);
	unlink(cert);
	unlink(key);
	rmdir(dir);
}

/* ---- never stuck ---- */

struct waiter {
	pthread_t thread;
	struct http *http;
	struct http_cancel *cancel;
	struct http_stream *stream;	/* NULL: opens url, else reads */
	char url[URL_MAX];
	int64_t deadline;
	atomic_int stage;
	ssize_t result;
	int64_t ended;
};

static void *waiter_run(void *ctx)
{
	struct waiter *w = ctx;
	struct http_request q = { .url = w->url, .deadline_ms = w->deadline };
	struct http_response response;
	struct http_stream *s = w->stream;
	char buf[65536];

	atomic_store(&w->stage, 1);
	if (s) {
		while ((w->result = http_read(s, buf, sizeof(buf))) > 0)
			atomic_store(&w->stage, 2);
	} else {
		w->result = http_open(w->http, &q, w->cancel, &s, &response);
		if (w->result == 0) {
			w->result = drain(s, 65536, NULL, 0, NULL);
			http_close(s);
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
		else	/* meanwhile the thread serves others */
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
		"/size=9/silent/x", "/size=9/slowhead=100/headers=90/x", "/size=99999/stall=0/x",
		"/size=99999/stall=500/x", "/size=9/delay=3000/x",
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
	struct http_stream *s;
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
	assert_int_equal(http_open(http, &(struct http_request){ .url = url,
				   .deadline_ms = now_ms() + 60000 }, NULL, &s, &response), 0);
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
	http_close(s);
	log_clear();
	http_free(http);
}

static void test_stop(void **state)
{
	struct http *http = start_default();
	struct http_response response;
	struct http_stream *s, *full;
	struct waiter w[3];
	char url[URL_MAX];
	int64_t begun;

	(void)state;
	memset(w, 0, sizeof(w));
	server_clear(&main_server);
	url_of(&main_server, url, "/size=9000/stall=1000/x");
	assert_int_equal(http_open(http, &(struct http_request){ .url = url }, NULL, &s, &response), 0);
	url_of(&main_server, url, "/size=90000000/x");
	assert_int_equal(http_open(http, &(struct http_request){ .url = url }, NULL, &full, &response),
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
	http_close(s);
	http_close(full);
	assert_int_equal(log_count(), 0);
	http_free(http);
}

/* A transfer that is closed in the middle costs its connection and no more. */
static void test_close_early(void **state)
{
	struct http *http = start_default();
	struct http_response response;
	struct http_stream *s;
	char url[URL_MAX], byte;

	(void)state;
	for (int i = 0; i < 20; i++) {
		url_of(&main_server, url, "/size=9437189/seed=1/%s/x", i % 2 ? "enc=gzip" : "a");
		assert_int_equal(http_open(http, &(struct http_request){ .url = url }, NULL, &s,
					   &response), 0);
		if (i % 3)
			assert_int_equal(http_read(s, &byte, 1), 1);
		http_close(s);
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
	struct http_stream *s[8];
	char url[URL_MAX];
	int64_t begun = now_ms();

	(void)state;
	server_clear(&main_server);
	url_of(&main_server, url, "/size=8000000/seed=1/rate=2000000/x");
	for (size_t i = 0; i < ARRAY_SIZE(s); i++) {
		struct http_request q = { .url = url, .has_range = true, .first = i * 1000000,
					  .last = i * 1000000 + 999999 };

		assert_int_equal(http_open(http, &q, NULL, &s[i], &response), 0);
	}
	for (size_t i = 0; i < ARRAY_SIZE(s); i++) {
		assert_int_equal(drain(s[i], 100000, pattern(1), i * 1000000, NULL), 1000000);
		http_close(s[i]);
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
		"/size=300000/seed=1/x", "/size=300000/seed=1/enc=gzip/x", "/size=300000/seed=1/chunked/x",
		"/size=300000/seed=1/reset=100000/x", "/hops=3/size=300000/seed=1/x",
		"/size=300000/seed=1/stall=100000/x", "/size=3000000/seed=1/enc=zstd/x",
	};
	struct storm *storm = ctx;

	for (int i = 0; i < 30; i++) {
		unsigned kind = (unsigned)rand_r(&storm->seed) % ARRAY_SIZE(paths);
		unsigned give_up = (unsigned)rand_r(&storm->seed) % 8;
		struct http_cancel cancel;
		struct http_response response;
		struct http_stream *s = NULL;
		struct http_request q = { 0 };
		char url[URL_MAX], buf[20000];
		uint64_t got = 0;
		ssize_t n = 0;

		http_cancel_init(&cancel);
		q.url = url_of(&main_server, url, "%s", paths[kind]);
		if (give_up == 7)
			http_cancel_fire(&cancel);
		if (http_open(storm->http, &q, &cancel, &s, &response) == 0) {
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
		http_close(s);
		http_cancel_destroy(&cancel);
		atomic_fetch_add(storm->done, 1);
	}
	return NULL;
}

static void test_storm(void **state)
{
	struct http *http = start_with(&(struct http_options){ .stall_ms = 200,
							       .max_host_connections = 6 });
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

static void run(const char *command)
{
	if (system(command) != 0)
		fail_msg("failed: %s", command);
}

/* A file laid over /etc/NAME, in this mount namespace only. */
static void lay_over(const char *name, const char *text)
{
	char *path = temp_file(text, strlen(text)), target[64];

	snprintf(target, sizeof(target), "/etc/%s", name);
	assert_int_equal(chmod(path, 0644), 0);
	assert_int_equal(mount(path, target, NULL, MS_BIND, NULL), 0);
	unlink(path);
	free(path);
}

static bool enter_netns(void)
{
	if (unshare(CLONE_NEWNET | CLONE_NEWNS) < 0)
		return false;
	return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
}

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
	(void)state;
	run("ip link set lo up");
	/* Public, private and link-local addresses that are all ours; nothing else has a route. */
	run("ip addr add 8.1.2.3/32 dev lo");
	run("ip addr add 10.9.8.7/32 dev lo");
	run("ip addr add 169.254.169.254/32 dev lo");
	run("ip -6 addr add 2a00::1/128 dev lo nodad");
	run("ip -6 addr add fd00::1/128 dev lo nodad");
	run("ip addr add 8.8.8.8/32 dev lo");
	black_hole();
	lay_over("hosts", "127.0.0.1 localhost\n8.1.2.3 public.test\n169.254.169.254 rebound.test\n"
			  "10.9.8.7 inner.test\n8.8.8.8 black.test\n::ffff:10.9.8.7 mapped.test\n"
			  "fd00::1 ula.test\n8.1.2.3 both.test\n10.9.8.7 both.test\n");
	lay_over("resolv.conf", "nameserver 127.0.0.53\noptions timeout:30 attempts:2\n");
	lay_over("nsswitch.conf", "hosts: files dns\n");
	return 0;
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
	struct http *http = start_with(&(struct http_options){ .connect_timeout_ms = 700 });
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

/* Names whose addresses are not what they seem: judged by address, and nothing is sent. */
static void test_netns_links(void **state)
{
	static const char *const refused[] = {
		"rebound.test", "inner.test", "localhost", "mapped.test", "ula.test", "10.9.8.7",
		"169.254.169.254", "[fd00::1]", "[2002:a09:807::1]",
	};
	struct server any;
	struct http *http = start_default();
	struct http_response r;
	char url[URL_MAX], to[URL_MAX];
	struct http_request q = { .url = url, .trust = HTTP_LINKS };

	(void)state;
	server_start(&any, "0.0.0.0", NULL, NULL);
	snprintf(any.host, sizeof(any.host), "127.0.0.1");
	for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
		snprintf(url, sizeof(url), "http://%s:%d/size=10/x", refused[i], any.port);
		log_clear();
		if (ask(http, &q, NULL, &r) != -EACCES)
			fail_msg("%s is reached", url);
		assert_logged_once("-o private_links");
	}
	assert_int_equal(server_connections(&any), 0);
	snprintf(url, sizeof(url), "http://public.test:%d/size=10/x", any.port);
	assert_int_equal(ask(http, &q, pattern(0), &r), 10);
	/* A name with a public and a private address: the public one serves. */
	snprintf(url, sizeof(url), "http://both.test:%d/size=10/x", any.port);
	assert_int_equal(ask(http, &q, pattern(0), &r), 10);
	server_clear(&any);
	/* A public host sends LINKS and the user alike to a private place: no. */
	for (size_t i = 0; i < 2 * ARRAY_SIZE(refused); i++) {
		q.trust = i % 2 ? HTTP_LINKS : HTTP_USER;
		snprintf(to, sizeof(to), "http://%s:%d/size=10/x", refused[i / 2], any.port);
		snprintf(url, sizeof(url), "http://public.test:%d/%s=%s/size=3/x", any.port,
			 i % 3 ? "dl" : "redirect=302/to", segment(to));
		log_clear();
		if (ask(http, &q, NULL, &r) != -EACCES)
			fail_msg("%s is reached", to);
		assert_logged_once("a redirect leads to a ");
	}
	assert_int_equal(server_saw(&any, "\"method\""), 2 * ARRAY_SIZE(refused));
	/* From one public place to another, and out of loopback into public. */
	snprintf(to, sizeof(to), "http://8.1.2.3:%d/size=10/x", any.port);
	snprintf(url, sizeof(url), "http://public.test:%d/redirect=302/to=%s/x", any.port, segment(to));
	q.trust = HTTP_LINKS;
	assert_int_equal(ask(http, &q, pattern(0), &r), 10);
	snprintf(url, sizeof(url), "http://127.0.0.1:%d/redirect=302/to=%s/x", any.port, segment(to));
	q.trust = HTTP_USER;
	assert_int_equal(ask(http, &q, pattern(0), &r), 10);
	/* …but not on into loopback again. */
	snprintf(to, sizeof(to), "http://127.0.0.1:%d/size=10/x", any.port);
	snprintf(url, sizeof(url), "http://8.1.2.3:%d/redirect=302/to=%s/x", any.port, segment(to));
	snprintf(to, sizeof(to), "%s", url);
	snprintf(url, sizeof(url), "http://127.0.0.1:%d/redirect=302/to=%s/x", any.port, segment(to));
	log_clear();
	assert_int_equal(ask(http, &q, NULL, &r), -EACCES);
	assert_logged_once("loopback");
	http_free(http);
	server_stop(&any);
}

static int main_setup(void **state)
{
	(void)state;
	server_start(&main_server, "127.0.0.1", NULL, NULL);
	return 0;
}

static int main_teardown(void **state)
{
	(void)state;
	server_stop(&main_server);
	return 0;
}

static int netns_main_setup(void **state)
{
	return netns_setup(state) < 0 ? -1 : main_setup(state);
}

static int netns_main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_netns_connect_timeout),
		cmocka_unit_test(test_netns_cancel_connect),
		cmocka_unit_test(test_netns_cancel_resolve),
		cmocka_unit_test(test_netns_links),
	};

	if (!enter_netns())
		return SKIPPED;
	return cmocka_run_group_tests_name("http in its own network namespace", tests,
					   netns_main_setup, main_teardown);
}

/* The namespace is this process's for good, so it is another process. */
static void test_netns(void **state)
{
	int status;
	pid_t pid = fork();

	(void)state;
	if (pid == 0) {
		execl("/proc/self/exe", "test_http", "netns", NULL);
		_exit(127);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == SKIPPED && geteuid() != 0)
		skip();
	assert_int_equal(WEXITSTATUS(status), 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_start),
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_pieces),
		cmocka_unit_test(test_backpressure),
		cmocka_unit_test(test_codings),
		cmocka_unit_test(test_bombs),
		cmocka_unit_test(test_coding_refused),
		cmocka_unit_test(test_range),
		cmocka_unit_test(test_range_lies),
		cmocka_unit_test(test_validators),
		cmocka_unit_test(test_head),
		cmocka_unit_test(test_statuses),
		cmocka_unit_test(test_failures),
		cmocka_unit_test(test_bytes_before_failure),
		cmocka_unit_test(test_slow_reader),
		cmocka_unit_test(test_redirects),
		cmocka_unit_test(test_dl_url),
		cmocka_unit_test(test_origin_headers),
		cmocka_unit_test(test_userinfo),
		cmocka_unit_test(test_netrc),
		cmocka_unit_test(test_links_loopback),
		cmocka_unit_test(test_user_redirect_class),
		cmocka_unit_test(test_proxy),
		cmocka_unit_test(test_tls),
		cmocka_unit_test(test_cancel),
		cmocka_unit_test(test_cancel_many),
		cmocka_unit_test(test_deadline),
		cmocka_unit_test(test_stop),
		cmocka_unit_test(test_close_early),
		cmocka_unit_test(test_parallel),
		cmocka_unit_test(test_storm),
		cmocka_unit_test(test_netns),
	};

	for (const char *const *name = (const char *const[]){ "http_proxy", "https_proxy", "all_proxy",
	     "no_proxy", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", NULL }; *name; name++)
		unsetenv(*name);
	carton_log_set(log_keep, NULL);
	if (argc > 1 && !strcmp(argv[1], "netns"))
		return netns_main();
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, main_setup, main_teardown);
}
