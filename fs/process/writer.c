/* SPDX-License-Identifier: Apache-2.0 */
#include "process/writer.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LINES 128
#define PATIENCE_S 1

/* On the heap: a thread that is left behind outlives the function that has started it. */
struct writer {
	writer_fn *write;
	void *ctx;
	pthread_t thread;
	pthread_mutex_t lock; /* guards the rest */
	pthread_cond_t more, done;
	struct writer_line lines[LINES];
	unsigned long put, written; /* so many, ever; those between are in `lines` */
	unsigned lost;
	bool stalled; /* somebody has waited in vain, and no line was written since */
	bool ending, ended;
};

void writer_bytes(int fd, const char *data, size_t n)
{
	while (n > 0) {
		ssize_t wrote = write(fd, data, n);

		if (wrote > 0) {
			data += wrote;
			n -= (size_t)wrote;
		} else if (errno == EAGAIN) {
			poll(&(struct pollfd){ fd, POLLOUT, 0 }, 1, -1);
		} else if (errno != EINTR) {
			return;
		}
	}
}

bool writer_bytes_soon(int fd, const char *data, size_t n, int ms)
{
	while (n > 0) {
		/* a pipe that can be written to has room for so many */
		size_t part = n < PIPE_BUF ? n : PIPE_BUF;
		int ready = poll(&(struct pollfd){ fd, POLLOUT, 0 }, 1, ms);

		if (ready < 0 && errno == EINTR)
			continue;
		if (ready <= 0)
			return false;
		writer_bytes(fd, data, part);
		data += part;
		n -= part;
	}
	return true;
}

/* Lock held; releases it while it writes. Without a line, says how many are lost. */
static void write_next(struct writer *w)
{
	bool is_line = w->written < w->put;
	struct writer_line line = { .text = NULL };

	if (is_line)
		line = w->lines[w->written % LINES];
	line.lost = w->lost;
	w->lost = 0;
	pthread_mutex_unlock(&w->lock);
	w->write(w->ctx, &line);
	free(line.text);
	pthread_mutex_lock(&w->lock);
	w->written += is_line;
	w->stalled = false;
	pthread_cond_broadcast(&w->done);
}

static void *run(void *writer)
{
	struct writer *w = writer;

	pthread_mutex_lock(&w->lock);
	for (;;) {
		if (w->written < w->put || (w->ending && w->lost))
			write_next(w);
		else if (w->ending)
			break;
		else
			pthread_cond_wait(&w->more, &w->lock);
	}
	w->ended = true;
	pthread_cond_broadcast(&w->done);
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

static void destroy(struct writer *w)
{
	pthread_mutex_destroy(&w->lock);
	pthread_cond_destroy(&w->more);
	pthread_cond_destroy(&w->done);
	free(w);
}

struct writer *writer_start(writer_fn *write, void *ctx)
{
	struct writer *w = calloc(1, sizeof(*w));
	pthread_condattr_t clock;
	sigset_t all, before;
	int r;

	if (!w)
		return NULL;
	w->write = write;
	w->ctx = ctx;
	pthread_mutex_init(&w->lock, NULL);
	pthread_condattr_init(&clock);
	pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
	pthread_cond_init(&w->more, NULL);
	pthread_cond_init(&w->done, &clock);
	pthread_condattr_destroy(&clock);
	sigfillset(&all);
	sigdelset(&all, SIGSYS); /* else a denied call cannot be logged */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	r = pthread_create(&w->thread, NULL, run, w);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (r == 0)
		return w;
	destroy(w);
	return NULL;
}

/* Waits, a while at most, until so many lines were written, or the thread has ended. Lock held. */
static void wait_for(struct writer *w, unsigned long written)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += PATIENCE_S;
	while (!w->stalled && !w->ended && w->written < written)
		if (pthread_cond_timedwait(&w->done, &w->lock, &until) == ETIMEDOUT)
			w->stalled = true;
}

void writer_put(struct writer *w, const struct writer_line *line, bool patient)
{
	pthread_mutex_lock(&w->lock);
	if (!line->text || w->put - w->written == LINES) {
		w->lost++;
		free(line->text);
	} else {
		w->lines[w->put++ % LINES] = *line;
		pthread_cond_signal(&w->more);
		if (patient)
			wait_for(w, w->put);
	}
	pthread_mutex_unlock(&w->lock);
}

void writer_lost(struct writer *w, unsigned n)
{
	pthread_mutex_lock(&w->lock);
	w->lost += n;
	pthread_mutex_unlock(&w->lock);
}

void writer_stop(struct writer *w)
{
	bool ended;

	if (!w)
		return;
	pthread_mutex_lock(&w->lock);
	w->ending = true;
	pthread_cond_signal(&w->more);
	wait_for(w, ULONG_MAX);
	ended = w->ended;
	pthread_mutex_unlock(&w->lock);
	if (!ended)
		return;
	pthread_join(w->thread, NULL);
	destroy(w);
}
