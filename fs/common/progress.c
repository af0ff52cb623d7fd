/* SPDX-License-Identifier: Apache-2.0 */
#include "common/progress.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "common/numbers.h"

#define BAR_MAX 40

/* The process has one terminal. Any thread may write to it. */
static struct {
	pthread_mutex_t lock; /* guards all other fields */
	double started;
	bool shown;
} bar = { .lock = PTHREAD_MUTEX_INITIALIZER };

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static int bar_width(void)
{
	struct winsize size;
	int width;

	if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) < 0 || size.ws_col == 0)
		return BAR_MAX;
	width = size.ws_col - 56;
	return width > BAR_MAX ? BAR_MAX : width < 0 ? 0 : width;
}

static void draw_bar(uint64_t done, uint64_t total)
{
	double part = (double)done / (double)total;
	char now_text[SIZE_TEXT], total_text[SIZE_TEXT];
	int width = bar_width(), full = (int)(part * width);

	fprintf(stderr, "[%.*s%*s] %3d%%  %s/%s", full, "########################################",
		width - full, "", (int)(part * 100), format_size(done, now_text),
		format_size(total, total_text));
}

static void draw(const char *word, uint64_t done, uint64_t total)
{
	char text[SIZE_TEXT];
	double seconds;

	if (bar.started == 0)
		bar.started = now();
	seconds = now() - bar.started;
	if (seconds < 1)
		return;
	fprintf(stderr, "\r\033[K%s ", word);
	/* the total is not known (yet): no bar */
	if (done >= total)
		fputs(format_size(done, text), stderr);
	else
		draw_bar(done, total);
	fprintf(stderr, "  %s/s", format_size((uint64_t)((double)done / seconds), text));
	fflush(stderr);
	bar.shown = true;
}

void progress_show(void *ctx, uint64_t done, uint64_t total)
{
	if (!isatty(STDERR_FILENO))
		return;
	pthread_mutex_lock(&bar.lock);
	draw(ctx, done, total);
	pthread_mutex_unlock(&bar.lock);
}

void progress_clear(void)
{
	pthread_mutex_lock(&bar.lock);
	if (bar.shown)
		fputs("\r\033[K", stderr);
	bar.shown = false;
	pthread_mutex_unlock(&bar.lock);
}
