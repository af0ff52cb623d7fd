/* SPDX-License-Identifier: Apache-2.0 */
/* Servers that would keep a network thread for themselves. */
#include <netinet/in.h>
#include <sys/socket.h>
#include <time.h>

#include "http/internal.h"

static int port_of(int (*name)(int, struct sockaddr *, socklen_t *), int fd)
{
	struct sockaddr_in6 a;
	socklen_t n = sizeof(a);

	/* both families have the port at the same place */
	return name(fd, (struct sockaddr *)&a, &n) < 0 ? -1 : ntohs(a.sin6_port);
}

/* Shuts down the connection of a stream. libcurl does not tell its socket while it is in use. */
static void cut(const struct http_stream *s)
{
	for (int fd = 0; fd <= s->thread->last_socket; fd++)
		if (port_of(getsockname, fd) == s->ports[0] &&
		    port_of(getpeername, fd) == s->ports[1])
			shutdown(fd, SHUT_RDWR);
}

static int64_t cpu_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/*
 * Called for each TLS record, also in the middle of a call of libcurl. Version 7.88 reads HTTP/2
 * frames until no more are there, or one belongs to the body. A server that sends others faster
 * than they are read would keep the thread, and so stop its transfers from all servers.
 */
int http_flood_check(CURL *easy, curl_infotype type, char *data, size_t n, void *ctx)
{
	struct http_stream *s = ctx;
	struct http_thread *t = s->thread;

	(void)easy;
	(void)data;
	(void)n;
	if (type != CURLINFO_SSL_DATA_IN)
		return 0;
	if (t->served != s) {
		t->served = s;
		t->served_ms = cpu_ms();
	} else if (!s->fault && cpu_ms() - t->served_ms > HTTP_MAX_TURN_MS) {
		s->fault = -EPROTO;
		s->fault_why = "the server sends frames without an end";
		cut(s);
	}
	return 0;
}
