/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/ask.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define AT_ONCE 64
#define END_MS 500    /* that killed children may take to end */
#define LEFT_MAX 1024 /* children that were given up and cannot be killed */
#define TEXT_MAX ((size_t)5 << 20)
#define BLOCK 65536

/* ---- the child ---- */

/*
 * Sends r and the text. Closes all other descriptors: a program that reads stdout of cartonctl must
 * not wait for a child that was given up.
 */
_Noreturn static void answer(const struct ctl_question *q, int out)
{
	char *text = NULL;
	FILE *f;
	int r;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	out = fcntl(out, F_DUPFD, STDERR_FILENO + 1);
	if (out < 0)
		_exit(1);
	syscall(SYS_close_range, 0, out - 1, 0);
	syscall(SYS_close_range, out + 1, ~0U, 0);
	r = q->ask(q->ctx, &text);
	f = fdopen(out, "w");
	if (!f || fwrite(&r, sizeof(r), 1, f) != 1)
		_exit(1);
	if (r == 0 && text)
		fputs(text, f);
	_exit(fclose(f) == 0 ? 0 : 1);
}

/* ---- its parent ---- */

/* A child that is asked: r and the text, as far as they have come. */
struct asked {
	struct ctl_question *q;
	pid_t child;
	char *data; /* malloc'ed */
	size_t n;
};

/* How many children of earlier calls were given up and have not ended. */
static size_t left;

static void reap(void)
{
	while (left > 0 && waitpid(-1, NULL, WNOHANG) > 0)
		left--;
}

/* Starts a child. Returns the descriptor that gives its answer, or -errno. */
static int start(struct asked *a)
{
	int fds[2], r;

	if (left >= LEFT_MAX)
		return -ETIMEDOUT;
	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	a->child = fork();
	if (a->child == 0)
		answer(a->q, fds[1]);
	r = a->child < 0 ? -errno : fds[0];
	close(fds[1]);
	if (r < 0)
		close(fds[0]);
	else
		left++;
	return r;
}

/* Takes the bytes that have come. False: that was all, or too much. */
static bool receive(struct asked *a, int fd)
{
	char *more = realloc(a->data, a->n + BLOCK + 1);
	ssize_t got = more ? read(fd, more + a->n, BLOCK) : -1;

	if (more)
		a->data = more;
	if (got > 0)
		a->n += (size_t)got;
	return got > 0 && a->n <= TEXT_MAX;
}

/* Sets r and the text of the question. */
static void finish(struct asked *a)
{
	int r = -EIO;

	if (a->n >= sizeof(r))
		memcpy(&r, a->data, sizeof(r));
	if (a->n > TEXT_MAX)
		r = -EFBIG;
	if (r == 0) {
		memmove(a->data, a->data + sizeof(r), a->n - sizeof(r));
		a->data[a->n - sizeof(r)] = '\0';
		a->q->text = a->data;
		a->data = NULL;
	}
	a->q->r = r;
}

static int64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* Waits for the answers until the deadline. An entry whose answer is there has fd -1. */
static void wait_for(struct asked *asked, struct pollfd *p, size_t n)
{
	int64_t deadline = now_ms() + CTL_ANSWER_MS, remain;
	size_t open = 0;

	for (size_t i = 0; i < n; i++)
		open += p[i].fd >= 0;
	while (open > 0 && (remain = deadline - now_ms()) > 0) {
		if (poll(p, n, (int)remain) < 0 && errno != EINTR)
			break;
		for (size_t i = 0; i < n; i++) {
			if (p[i].fd < 0 || !p[i].revents || receive(&asked[i], p[i].fd))
				continue;
			finish(&asked[i]);
			close(p[i].fd);
			p[i].fd = -1;
			open--;
		}
	}
}

/*
 * Kills the children that have not answered. Each keeps its mount busy until it has ended. It ends
 * at once, unless its request cannot be interrupted.
 */
static void give_up(const struct asked *asked, const struct pollfd *p, size_t n)
{
	int64_t deadline = now_ms() + END_MS, remain;

	for (size_t i = 0; i < n; i++)
		if (p[i].fd >= 0) {
			kill(asked[i].child, SIGKILL);
			close(p[i].fd);
		}
	for (size_t i = 0; i < n; i++) {
		int fd = p[i].fd < 0 ? -1 : (int)syscall(SYS_pidfd_open, asked[i].child, 0);
		struct pollfd end = { .fd = fd, .events = POLLIN };

		remain = deadline - now_ms();
		if (fd < 0)
			continue;
		poll(&end, 1, remain > 0 ? (int)remain : 0);
		close(fd);
	}
}

static void ask_some(struct ctl_question *q, size_t n)
{
	struct asked asked[AT_ONCE] = { 0 };
	struct pollfd p[AT_ONCE];

	for (size_t i = 0; i < n; i++) {
		asked[i].q = &q[i];
		q[i].text = NULL;
		p[i] = (struct pollfd){ .fd = start(&asked[i]), .events = POLLIN };
		q[i].r = p[i].fd < 0 ? p[i].fd : -ETIMEDOUT;
	}
	wait_for(asked, p, n);
	give_up(asked, p, n);
	for (size_t i = 0; i < n; i++)
		free(asked[i].data);
	reap();
}

void ctl_ask(struct ctl_question *q, size_t n)
{
	for (size_t i = 0; i < n; i += AT_ONCE)
		ask_some(q + i, n - i < AT_ONCE ? n - i : AT_ONCE);
}
