/* SPDX-License-Identifier: Apache-2.0 */
#include "common/progress.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "common/bar.h"
#include "common/end_first.h"
#include "common/numbers.h"
#include "common/text.h"

#define BAR_MAX 40
#define COLUMNS 80 /* where the terminal does not say */

/* The process has one terminal. Any thread may write to it. */
static struct {
	pthread_mutex_t lock; /* guards all other fields */
	double started;
	const char *word;
	uint64_t done; /* of `word`, so far */
	/* the signal handler reads these, too */
	atomic_bool shown;
	_Atomic size_t lines; /* above it */
	atomic_bool over;     /* the process ends: nothing is drawn any more */
	const char *hint;
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
		fprintf(f, "\033[%zuA\r\033[J", atomic_load(&bar.lines));
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

/* What stands behind the bar, in this order. */
enum { PERCENT, AMOUNT, RATE, LEFT, PARTS };
#define PART_TEXT (DURATION_TEXT + 16)

/*
 * Takes parts away, each of which has two spaces before it, until they and the word fit in `width`
 * columns with the last one free. The rate goes first, as what is left says the same. Returns the
 * columns that remain, which may be less than 0.
 */
static int fit(char parts[PARTS][PART_TEXT], const char *word, unsigned width)
{
	static const int first[] = { RATE, AMOUNT, LEFT };
	int room = (int)width - 1 - (int)strlen(word);

	for (size_t i = 0; i < PARTS; i++)
		room -= *parts[i] ? 2 + (int)strlen(parts[i]) : 0;
	for (size_t i = 0; i < sizeof(first) / sizeof(first[0]) && room < 0; i++) {
		room += *parts[first[i]] ? 2 + (int)strlen(parts[first[i]]) : 0;
		*parts[first[i]] = '\0';
	}
	return room;
}

/* One line, never wider than the terminal: else each update would move the screen. */
static void draw_line(FILE *f, const struct progress *p, double rate, unsigned width)
{
	char parts[PARTS][PART_TEXT] = { "" }, text[SIZE_TEXT], total[SIZE_TEXT],
	     left[DURATION_TEXT];
	/* the total is not known (yet): no bar */
	bool known = p->done < p->total;
	const char *gap = " ";
	int room;

	format_size(p->done, text);
	snprintf(parts[AMOUNT], sizeof(parts[0]), "%s%s%s", text, known ? "/" : "",
		 known ? format_size(p->total, total) : "");
	snprintf(parts[RATE], sizeof(parts[0]), "%s/s", format_size((uint64_t)rate, text));
	if (known)
		snprintf(parts[PERCENT], sizeof(parts[0]), "%3d%%",
			 (int)((double)p->done / (double)p->total * 100));
	if (known && rate >= 1)
		snprintf(parts[LEFT], sizeof(parts[0]), "%s left",
			 format_duration((double)(p->total - p->done) / rate, left));
	room = fit(parts, p->word, width);
	fprintf(f, "%.*s", (int)width - 1, p->word);
	if (known && room > 0) {
		fputc(' ', f);
		bar_put(f, p->done, p->total, (unsigned)(room > BAR_MAX ? BAR_MAX : room),
			is_utf8());
	}
	for (size_t i = 0; i < PARTS && room >= 0; i++)
		if (*parts[i]) {
			fprintf(f, "%s%s", gap, parts[i]);
			gap = "  ";
		}
}

static void draw(FILE *f, const struct progress *p, double seconds)
{
	unsigned width = columns();

	erase(f);
	for (; bar.lines < p->n_lines; bar.lines++) {
		p->line(f, p->ctx, bar.lines, width - 1);
		fputc('\n', f);
	}
	draw_line(f, p, (double)p->done / seconds, width);
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
	if (text_close(f, &frame) == 0)
		fwrite(frame, 1, n, stderr);
	free(frame);
}

void progress_draw(const struct progress *p)
{
	double seconds;

	if (!isatty(STDERR_FILENO) || atomic_load(&bar.over))
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

/* ---- the end by a signal ---- */

static void put(const char *text)
{
	/* nothing can be done about a failure */
	if (write(STDERR_FILENO, text, strlen(text)) < 0)
		return;
}

/* Calls only what is allowed in a signal handler. The default action follows. */
static void on_signal(int number)
{
	atomic_store(&bar.over, true);
	for (size_t n = atomic_load(&bar.lines); n; n--)
		put("\033[A");
	/* with what the terminal shows of the key */
	if (atomic_load(&bar.shown) || (bar.hint && number == SIGINT))
		put("\r\033[J");
	if (bar.hint && number == SIGINT)
		put(bar.hint);
	signal_ends_first(number);
	raise(number);
}

void progress_end_clean(const char *hint)
{
	static const int numbers[] = { SIGINT, SIGTERM, SIGHUP, SIGPIPE };
	const struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESETHAND };
	struct sigaction old;

	bar.hint = hint;
	for (size_t i = 0; isatty(STDERR_FILENO) && i < sizeof(numbers) / sizeof(numbers[0]); i++)
		if (sigaction(numbers[i], NULL, &old) == 0 &&
		    (old.sa_handler == SIG_DFL || getpid() == 1))
			sigaction(numbers[i], &action, NULL);
}
