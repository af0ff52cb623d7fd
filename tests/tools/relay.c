/* SPDX-License-Identifier: Apache-2.0 */
/*
 * relay LISTEN_PORT TARGET_PORT [--rtt=MS] [--rate=MBIT] [--slow-start]: a model of a link.
 * Connections to 127.0.0.1:LISTEN_PORT are passed on to TARGET_PORT, as if the two were a round
 * trip apart.
 *
 *	--rtt		what is sent arrives half of it later; nothing is sent in the first round
 *			trip of a connection, which the handshake takes
 *	--rate		all connections together send as many megabits a second in each direction,
 *			in turns. What does not fit waits with its sender
 *	--slow-start	a connection sends 10 segments in its first round trip, twice as much in
 *			the next. It keeps its window when it is idle
 *
 * The first line of stdout is the port (LISTEN_PORT 0: any). SIGUSR1 prints a line of JSON: the
 * connections so far and open now, the bytes that the clients and the target have sent. SIGTERM
 * prints it and ends.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "relay_link.h"

#define BUFFER (4 << 20) /* of a socket: a process beside this one may be late */
#define TICK 100000u	 /* ns: timers are set to multiples of it */

static uint64_t accepted, open_now;
static uint16_t target_port;
static int epoll;

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * SECOND + (uint64_t)t.tv_nsec;
}

/* ---- connections ---- */

static void watch(struct end *e, uint32_t events)
{
	struct epoll_event ev = { .events = events, .data.ptr = e };

	if (epoll_ctl(epoll, EPOLL_CTL_ADD, e->fd, &ev) < 0)
		die("epoll_ctl");
}

static int socket_new(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		die("socket");
	return fd;
}

static struct sockaddr_in loopback(uint16_t port)
{
	return (struct sockaddr_in){ .sin_family = AF_INET,
				     .sin_port = htons(port),
				     .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
}

/* An error of connect() is found by the first read. */
static int target_connect(void)
{
	struct sockaddr_in to = loopback(target_port);
	int fd = socket_new();

	(void)connect(fd, (struct sockaddr *)&to, sizeof(to));
	return fd;
}

static void end_init(struct end *e, int fd)
{
	int yes = 1, size = BUFFER;

	*e = (struct end){ .fd = fd };
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
	/* only root may; else they grow as they are used */
	setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size));
	setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size));
	watch(e, EPOLLIN | EPOLLOUT | EPOLLET);
}

static struct flow flow_init(struct end *from, struct end *to, uint64_t opens)
{
	return (struct flow){ .from = from,
			      .to = to,
			      .opens = opens,
			      .window = slow_start ? min(widest, 10 * SEGMENT) : widest };
}

static void conn_new(int fd, uint64_t now)
{
	struct conn *c = calloc(1, sizeof(*c));

	if (!c)
		die("memory");
	end_init(&c->client, fd);
	end_init(&c->target, target_connect());
	c->up = flow_init(&c->client, &c->target, now + rtt);
	c->down = flow_init(&c->target, &c->client, now + rtt);
	c->next = conns;
	conns = c;
	accepted++;
	open_now++;
}

static void flow_drop(struct flow *f)
{
	while (f->first) {
		struct segment *s = f->first;

		f->first = s->next;
		free(s);
	}
}

/* Frees those whose directions both ended, or one of whose sides is gone. */
static void conns_sweep(void)
{
	struct conn **at = &conns, *c;

	while ((c = *at)) {
		if (!c->broken && !(c->up.over && c->down.over)) {
			at = &c->next;
			continue;
		}
		*at = c->next;
		close(c->client.fd);
		close(c->target.fd);
		flow_drop(&c->up);
		flow_drop(&c->down);
		free(c);
		open_now--;
	}
}

static void accept_all(int fd, uint64_t now)
{
	int client;

	while ((client = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0)
		conn_new(client, now);
	if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
		die("accept");
}

/* ---- time ---- */

/* When something happens next in a flow that no event of a socket tells. */
static uint64_t flow_next(const struct flow *f, uint64_t now)
{
	uint64_t at = NEVER;

	if (f->unsent && f->to->writable)
		at = f->unsent->due;
	if (f->first && f->first != f->unsent)
		at = min(at, f->first->acked);
	if (now < f->opens && f->from->readable)
		at = min(at, f->opens);
	return at;
}

static uint64_t next_time(uint64_t now)
{
	uint64_t at = NEVER;

	for (struct conn *c = conns; c; c = c->next)
		at = min(at, min(flow_next(&c->up, now), flow_next(&c->down, now)));
	for (int way = 0; way < 2; way++)
		if (lines[way].wanted)
			at = min(at, lines[way].free_at - QUEUE / 2);
	return at;
}

static void timer_set(int fd, uint64_t at)
{
	struct itimerspec t = { 0 };

	if (at != NEVER) {
		at = at / TICK * TICK + TICK;
		t.it_value.tv_sec = (time_t)(at / SECOND);
		t.it_value.tv_nsec = (long)(at % SECOND);
	}
	if (timerfd_settime(fd, TFD_TIMER_ABSTIME, &t, NULL) < 0)
		die("timerfd_settime");
}

/* All that should have happened until now. */
static void advance(uint64_t now)
{
	for (struct conn *c = conns; c; c = c->next)
		for (int way = 0; way < 2; way++) {
			flow_deliver(c, flow_of(c, way), now);
			flow_settle(flow_of(c, way), now);
		}
	for (int way = 0; way < 2; way++)
		line_fill(way, now);
	conns_sweep();
}

/* ---- the program ---- */

static void print_counts(void)
{
	printf("{\"connections\": %" PRIu64 ", \"open\": %" PRIu64 ", \"up\": %" PRIu64
	       ", \"down\": %" PRIu64 "}\n",
	       accepted, open_now, lines[0].bytes, lines[1].bytes);
	fflush(stdout);
}

static void take_signal(int fd)
{
	struct signalfd_siginfo info;

	if (read(fd, &info, sizeof(info)) != sizeof(info))
		return;
	print_counts();
	if (info.ssi_signo != SIGUSR1)
		exit(0);
}

static int signals_new(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigprocmask(SIG_BLOCK, &set, NULL);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static int listen_new(uint16_t port)
{
	struct sockaddr_in at = loopback(port);
	socklen_t len = sizeof(at);
	int fd = socket_new(), yes = 1;

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	if (bind(fd, (struct sockaddr *)&at, len) < 0 || listen(fd, 1024) < 0 ||
	    getsockname(fd, (struct sockaddr *)&at, &len) < 0)
		die("listen");
	printf("%u\n", ntohs(at.sin_port));
	fflush(stdout);
	return fd;
}

/* The number of --NAME=NUMBER, or of the word; ends the program if it is none. */
static double number(const char *word, const char *name, double most)
{
	char *rest;
	double n = strtod(word, &rest);

	if (rest == word || *rest || !(n >= 0 && n <= most)) {
		fprintf(stderr, "relay: %s: not a number from 0 to %.0f: %s\n", name, most, word);
		exit(2);
	}
	return n;
}

static void option(const char *word)
{
	if (strncmp(word, "--rtt=", 6) == 0)
		rtt = (uint64_t)(number(word + 6, "--rtt", 10000) * 1e6);
	else if (strncmp(word, "--rate=", 7) == 0)
		rate = (uint64_t)(number(word + 7, "--rate", 100000) * 125000);
	else if (strcmp(word, "--slow-start") == 0)
		slow_start = true;
	else {
		fprintf(stderr, "relay: unknown option: %s\n", word);
		exit(2);
	}
}

/* A window that lets one connection have all of the link, and bounds its memory. */
static uint64_t widest_window(void)
{
	double on_way = (double)rate * (double)(rtt + 4 * QUEUE) / 1e9;

	return (uint64_t)(on_way + LEAST_WINDOW) + (rate ? 0 : 64u << 20);
}

static void run(struct end *listener, struct end *signals, struct end *timer)
{
	struct epoll_event ev[64];
	uint64_t ticks;

	for (;;) {
		int n = epoll_wait(epoll, ev, 64, -1);
		uint64_t now = now_ns();

		for (int i = 0; i < n; i++) {
			struct end *e = ev[i].data.ptr;

			e->readable = e->readable || ev[i].events & ~(uint32_t)EPOLLOUT;
			e->writable = e->writable || ev[i].events & ~(uint32_t)EPOLLIN;
			if (e == listener)
				accept_all(e->fd, now);
			else if (e == signals)
				take_signal(e->fd);
			else if (e == timer && read(e->fd, &ticks, sizeof(ticks)) < 0 &&
				 errno != EAGAIN)
				die("timer");
		}
		advance(now);
		timer_set(timer->fd, next_time(now));
	}
}

int main(int argc, char **argv)
{
	struct end listener = { 0 }, signals = { 0 }, timer = { 0 };
	struct rlimit files;

	if (argc < 3) {
		fprintf(stderr,
			"usage: relay LISTEN_PORT TARGET_PORT [--rtt=MS] [--rate=MBIT] [--slow-start]\n");
		return 2;
	}
	for (int i = 3; i < argc; i++)
		option(argv[i]);
	widest = widest_window();
	target_port = (uint16_t)number(argv[2], "TARGET_PORT", 65535);
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	epoll = epoll_create1(EPOLL_CLOEXEC);
	signals.fd = signals_new();
	timer.fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	listener.fd = listen_new((uint16_t)number(argv[1], "LISTEN_PORT", 65535));
	watch(&listener, EPOLLIN);
	watch(&signals, EPOLLIN);
	watch(&timer, EPOLLIN);
	run(&listener, &signals, &timer);
}
