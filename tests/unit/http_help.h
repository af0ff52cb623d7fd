/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the HTTP tests share: what was logged, tests/lib/faultserver.py on loopback and what it
 * serves, asking for a URL, and network namespaces. One main_server per program.
 */
#ifndef HTTP_HELP_H
#define HTTP_HELP_H

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
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

#include "base/util.h"
#include "http_reader.h"
#include "mount_help.h"

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

static inline void log_keep(void *ctx, enum carton_log_level level, const char *subject,
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

static inline void log_clear(void)
{
	pthread_mutex_lock(&logged.lock);
	logged.len = logged.n = 0;
	logged.text[0] = '\0';
	pthread_mutex_unlock(&logged.lock);
}

static inline unsigned log_count(void)
{
	unsigned n;

	pthread_mutex_lock(&logged.lock);
	n = logged.n;
	pthread_mutex_unlock(&logged.lock);
	return n;
}

static inline bool log_has(const char *what)
{
	bool has;

	pthread_mutex_lock(&logged.lock);
	has = strstr(logged.text, what);
	pthread_mutex_unlock(&logged.lock);
	return has;
}

/* Exactly one message since log_clear, and it says so. */
static inline void assert_logged_once(const char *what)
{
	if (log_count() != 1 || !log_has(what))
		fail_msg("wanted one message with '%s', got %u: %s", what, log_count(),
			 logged.text);
	log_clear();
}

/* ---- the fault server ---- */

struct server {
	pid_t pid;
	int in; /* closing it ends the server */
	int port;
	char host[64];
};

static struct server main_server;

static inline const char *server_script(void)
{
	static char path[4096];
	const char *slash = strrchr(__FILE__, '/');

	snprintf(path, sizeof(path), "%.*s/../lib/faultserver.py",
		 slash ? (int)(slash - __FILE__) : 1, slash ? __FILE__ : ".");
	return getenv("FAULTSERVER") ? getenv("FAULTSERVER") : path;
}

static inline void server_start(struct server *s, const char *host, const char *cert,
				const char *key)
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

static inline void server_stop(struct server *s)
{
	if (s->pid <= 0)
		return;
	close(s->in);
	kill(s->pid, SIGKILL);
	waitpid(s->pid, NULL, 0);
	s->pid = 0;
}

/* Asks the server a question of the test's own, not through the code under test. */
static inline char *server_ask(const struct server *s, const char *path)
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

static inline unsigned count(const char *text, const char *what)
{
	unsigned n = 0;

	while ((text = strstr(text, what))) {
		text += strlen(what);
		n++;
	}
	return n;
}

static inline void server_clear(const struct server *s)
{
	free(server_ask(s, "/_clear"));
}

/* How often the server's log of requests holds this text. */
static inline unsigned server_saw(const struct server *s, const char *what)
{
	char *text = server_ask(s, "/_log");
	unsigned n = count(text, what);

	free(text);
	return n;
}

static inline unsigned server_connections(const struct server *s)
{
	char *text = server_ask(s, "/_log"), *at = strstr(text, "\"connections\": ");
	unsigned n;

	assert_non_null(at);
	n = (unsigned)strtoul(at + 15, NULL, 10);
	free(text);
	return n;
}

static inline uint64_t server_sent(const struct server *s, const char *path)
{
	char *text = server_ask(s, "/_log"), *at = strstr(text, path);
	uint64_t n = 0;

	if (at && (at = strstr(at, "\"sent\": ")))
		n = strtoull(at + 8, NULL, 10);
	free(text);
	return n;
}

static inline char *temp_file(const char *text, size_t n)
{
	char *path = must(strdup("/tmp/test_http.XXXXXX"));
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, n), (ssize_t)n);
	close(fd);
	return path;
}

/* ---- what the server serves ---- */

static inline const uint8_t *pattern(unsigned seed)
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

static inline bool is_pattern(const uint8_t *block, uint64_t off, const char *data, size_t n)
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

static inline char *url_of(const struct server *s, char *ret, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static inline char *url_of(const struct server *s, char *ret, const char *fmt, ...)
{
	int n = snprintf(ret, URL_MAX, "http://%s:%d", s->host, s->port);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(ret + n, (size_t)(URL_MAX - n), fmt, ap);
	va_end(ap);
	return ret;
}

static inline struct http *start_with(const struct http_options *o)
{
	struct http *http = NULL;

	assert_int_equal(http_new(o, &http), 0);
	log_clear();
	return http;
}

static inline struct http *start_default(void)
{
	return start_with(&(struct http_options){ 0 });
}

/*
 * Reads a stream to its end in pieces of `piece` bytes, comparing with the pattern from `off`.
 * Returns the bytes, or the -errno that ended it.
 */
static inline ssize_t drain(struct http_reader *s, size_t piece, const uint8_t *block, uint64_t off,
			    uint64_t *ret_got)
{
	char *buf = must(malloc(piece));
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
static inline ssize_t ask(struct http *http, const struct http_request *q, const uint8_t *block,
			  struct http_response *ret)
{
	uint64_t off = q->has_range ? q->first : 0;
	struct http_reader *s = NULL;
	ssize_t r = http_open(http, q, 0, NULL, &s, ret);

	if (r < 0) {
		assert_null(s);
		return r;
	}
	r = drain(s, 60000, block, off, NULL);
	http_reader_close(s);
	return r;
}

static inline ssize_t get(struct http *http, const char *url, const uint8_t *block,
			  struct http_response *ret)
{
	return ask(http, &(struct http_request){ .url = url }, block, ret);
}

static inline ssize_t get_path(struct http *http, const char *path)
{
	struct http_response response;
	char url[URL_MAX];

	return get(http, url_of(&main_server, url, "%s", path), NULL, &response);
}

/* Percent-encodes, so that a URL fits into one segment of a path. */
static inline const char *segment(const char *url)
{
	static char out[2][3 * URL_MAX + 1];
	static int turn;
	char *p = out[turn ^= 1];
	const char *start = p;

	for (; *url; url++)
		p += sprintf(p, "%%%02X", (unsigned char)*url);
	return start;
}

static inline int main_setup(void **state)
{
	(void)state;
	server_start(&main_server, "127.0.0.1", NULL, NULL);
	return 0;
}

static inline int main_teardown(void **state)
{
	(void)state;
	server_stop(&main_server);
	return 0;
}

/* ---- a network namespace of the test's own ---- */

static inline void run(const char *command)
{
	if (system(command) != 0)
		fail_msg("failed: %s", command);
}

/* A file laid over /etc/NAME, in this mount namespace only. */
static inline void lay_over(const char *name, const char *text)
{
	char *path = temp_file(text, strlen(text)), target[64];

	snprintf(target, sizeof(target), "/etc/%s", name);
	assert_int_equal(chmod(path, 0644), 0);
	assert_int_equal(mount(path, target, NULL, MS_BIND, NULL), 0);
	unlink(path);
	free(path);
}

static inline bool enter_netns(void)
{
	return own_mounts(CLONE_NEWNET);
}

/* The namespace is this process's for good, so it is another process. */
static inline void run_in_netns(void)
{
	int status;
	pid_t pid = fork();

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

/* No proxy but those that a test sets; all that is logged is kept. */
static inline void help_start(void)
{
	static const char *const names[] = { "http_proxy",  "https_proxy", "all_proxy", "no_proxy",
					     "HTTPS_PROXY", "ALL_PROXY",   "NO_PROXY" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		unsetenv(names[i]);
	carton_log_set(log_keep, NULL);
}

#endif
