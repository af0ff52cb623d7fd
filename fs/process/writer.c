/* SPDX-License-Identifier: Apache-2.0 */
#include "process/writer.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_S 1

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

/* Lock held; releases it while it writes. */
static void write_next(struct writer *w)
{
	struct writer_line line = w->lines[w->written % WRITER_LINES];

	line.lost = w->lost;
	w->lost = 0;
	pthread_mutex_unlock(&w->lock);
	w->write(w->ctx, &line);
	free(line.text);
	pthread_mutex_lock(&w->lock);
	w->written++;
	w->stalled = false;
	pthread_cond_broadcast(&w->done);
}

static void *run(void *writer)
{
	struct writer *w = writer;

	pthread_mutex_lock(&w->lock);
	for (;;) {
		if (w->written < w->put)
			write_next(w);
		else if (w->ending)
			break;
		else
			pthread_cond_wait(&w->more, &w->lock);
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

int writer_start(struct writer *w, writer_fn *write, void *ctx)
{
	pthread_condattr_t clock;
	sigset_t all, before;
	int r;

	*w = (struct writer){ .write = write, .ctx = ctx };
	pthread_mutex_init(&w->lock, NULL);
	pthread_condattr_init(&clock);
	pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
	pthread_cond_init(&w->more, NULL);
	pthread_cond_init(&w->done, &clock);
	pthread_condattr_destroy(&clock);
	sigfillset(&all);
	sigdelset(&all, SIGSYS); /* else a denied call cannot be logged */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	r = -pthread_create(&w->thread, NULL, run, w);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	w->running = r == 0;
	return r;
}

/* Waits, a while at most, until so many lines were written. False: they are not. Lock held. */
static bool wait_for(struct writer *w, unsigned long written)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += PATIENCE_S;
	while (!w->stalled && w->written < written)
		if (pthread_cond_timedwait(&w->done, &w->lock, &until) == ETIMEDOUT)
			w->stalled = true;
	return w->written >= written;
}

void writer_put(struct writer *w, const struct writer_line *line, bool patient)
{
	pthread_mutex_lock(&w->lock);
	if (!line->text || w->put - w->written == WRITER_LINES) {
		w->lost++;
		free(line->text);
	} else {
		w->lines[w->put++ % WRITER_LINES] = *line;
		pthread_cond_signal(&w->more);
		if (patient)
			wait_for(w, w->put);
	}
	pthread_mutex_unlock(&w->lock);
}

void writer_stop(struct writer *w)
{
	bool over;

	if (!w->running)
		return;
	w->running = false;
	pthread_mutex_lock(&w->lock);
	w->ending = true;
	pthread_cond_signal(&w->more);
	over = wait_for(w, w->put);
	pthread_mutex_unlock(&w->lock);
	if (!over)
		return;
	pthread_join(w->thread, NULL);
	pthread_mutex_destroy(&w->lock);
	pthread_cond_destroy(&w->more);
	pthread_cond_destroy(&w->done);
}
