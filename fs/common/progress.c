/* SPDX-License-Identifier: Apache-2.0 */
#include "common/progress.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "common/bar.h"
#include "common/numbers.h"

#define BAR_MAX 40
#define COLUMNS 80 /* where the terminal does not say */

/* The process has one terminal. Any thread may write to it. */
static struct {
	pthread_mutex_t lock; /* guards all other fields */
	double started;
	const char *word;
	uint64_t done; /* of `word`, so far */
	bool shown;
	size_t lines; /* above it */
} bar = { .lock = PTHREAD_MUTEX_INITIALIZER };

double progress_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static unsigned columns(void)
{
	struct winsize size;

	return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) < 0 || size.ws_col == 0 ? COLUMNS :
										 size.ws_col;
}

/* Puts the cursor where the lines began, and erases all behind it. */
static void erase(FILE *f)
{
	if (bar.lines)
		fprintf(f, "\033[%zuA\r\033[J", bar.lines);
	else
		fputs("\r\033[K", f);
	bar.lines = 0;
}

/* Of the environment: the program may have another locale. */
static bool is_utf8(void)
{
	const char *names[] = { "LC_ALL", "LC_CTYPE", "LANG" }, *value = NULL;

	for (size_t i = 0; i < 3 && !(value && *value); i++)
		value = getenv(names[i]);
	return value && (strcasestr(value, "UTF-8") || strcasestr(value, "UTF8"));
}

static void draw_bar(FILE *f, const struct progress *p, double rate, unsigned width)
{
	char now_text[SIZE_TEXT], total_text[SIZE_TEXT], rate_text[SIZE_TEXT], left[DURATION_TEXT];
	double part = (double)p->done / (double)p->total;
	char text[120];
	int n, room;

	n = snprintf(text, sizeof(text), "%3d%%  %s/%s  %s/s", (int)(part * 100),
		     format_size(p->done, now_text), format_size(p->total, total_text),
		     format_size((uint64_t)rate, rate_text));
	if (rate >= 1)
		n += snprintf(text + n, sizeof(text) - (size_t)n, "  %s left",
			      format_duration((double)(p->total - p->done) / rate, left));
	/* with the word, a space behind it and behind the bar, and the last column free */
	room = (int)width - n - (int)strlen(p->word) - 3;
	room = room > BAR_MAX ? BAR_MAX : room < 0 ? 0 : room;
	fprintf(f, "%s ", p->word);
	bar_put(f, p->done, p->total, (unsigned)room, is_utf8());
	fprintf(f, " %s", text);
}

static void draw(FILE *f, const struct progress *p, double seconds)
{
	double rate = (double)p->done / seconds;
	char text[SIZE_TEXT], rate_text[SIZE_TEXT];
	unsigned width = columns();

	erase(f);
	for (; bar.lines < p->n_lines; bar.lines++) {
		p->line(f, p->ctx, bar.lines, width - 1);
		fputc('\n', f);
	}
	/* the total is not known (yet): no bar */
	if (p->done >= p->total)
		fprintf(f, "%s %s  %s/s", p->word, format_size(p->done, text),
			format_size((uint64_t)rate, rate_text));
	else
		draw_bar(f, p, rate, width);
	bar.shown = true;
}

/* As one write, so that it does not flicker. Lock held. */
static void draw_at_once(const struct progress *p, double seconds)
{
	char *frame = NULL;
	size_t n = 0;
	FILE *f = open_memstream(&frame, &n);

	if (!f)
		return;
	draw(f, p, seconds);
	if (fclose(f) == 0)
		fwrite(frame, 1, n, stderr);
	free(frame);
}

void progress_draw(const struct progress *p)
{
	double seconds;

	if (!isatty(STDERR_FILENO))
		return;
	pthread_mutex_lock(&bar.lock);
	if (!bar.word || strcmp(bar.word, p->word) != 0 || p->done < bar.done / 2)
		bar.started = progress_now();
	bar.word = p->word;
	bar.done = p->done;
	seconds = progress_now() - bar.started;
	if (seconds >= 1)
		draw_at_once(p, seconds);
	pthread_mutex_unlock(&bar.lock);
}

void progress_show(void *ctx, uint64_t done, uint64_t total)
{
	progress_draw(&(struct progress){ .word = ctx, .done = done, .total = total });
}

void progress_clear(void)
{
	pthread_mutex_lock(&bar.lock);
	if (bar.shown)
		erase(stderr);
	bar.shown = false;
	pthread_mutex_unlock(&bar.lock);
}
