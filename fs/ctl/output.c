/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/ctl.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/numbers.h"
#include "common/option_list.h"
#include "common/progress.h"
#include "common/text.h"
#include "ctl/term.h"

#define SHOW_MS 200

static void put_problem(const char *subject, const char *message)
{
	unsigned columns = term_columns(0);

	if (!term_is_tty()) {
		text_line(stdout, "%s%s%s", subject ? subject : "", subject ? ": " : "", message);
		return;
	}
	if (subject) {
		term_style(TERM_BAD);
		term_put(subject);
		term_style(TERM_PLAIN);
		putchar(':');
	}
	/* a hash has 64 columns: it gets a line of its own, and is broken only if need be */
	if (subject && term_width(subject) + 2 + term_width(message) < columns)
		putchar(' ');
	else
		fputs(subject ? "\n  " : "  ", stdout);
	term_wrap(message, 2, columns - 1);
	putchar('\n');
}

static void print_problem(struct ctl_log *log, enum carton_log_level level, const char *subject,
			  const char *message)
{
	if (log->json) {
		json_begin(log->json, NULL, '{');
		json_text(log->json, "level", level == CARTON_LOG_ERROR ? "error" : "warning");
		json_text(log->json, "subject", subject);
		json_text(log->json, "message", message);
		json_end(log->json, '}');
	} else {
		put_problem(subject, message);
	}
}

void ctl_on_log(void *ctx, enum carton_log_level level, const char *subject, const char *message)
{
	struct ctl_log *log = ctx;
	const char *source = NULL;
	char spelled[4608]; /* a message has at most 4095 bytes */
	/* what a user at a terminal waits for */
	bool info = level == CARTON_LOG_INFO && log->opening && isatty(STDERR_FILENO);
	/* a failed attempt: where none succeeds, verify reports the file itself */
	bool problem = level <= CARTON_LOG_WARNING && !(log->collect && carton_log_is_attempt());

	if (level > CARTON_LOG_NOTICE && !info)
		return;
	message = option_spell(message, spelled, sizeof(spelled));
	pthread_mutex_lock(&log->lock);
	if (log->opening && subject && strcmp(subject, log->source) != 0)
		source = log->source;
	if (!subject)
		subject = log->source;
	progress_clear();
	if (log->collect && problem)
		print_problem(log, level, subject, message);
	else
		text_line(stderr, "cartonctl: %s%s%s%s%s", source ? source : "", source ? ": " : "",
			  subject ? subject : "", subject ? ": " : "", message);
	log->problems += problem;
	log->tried |= carton_log_is_attempt();
	pthread_mutex_unlock(&log->lock);
}

/* A carton_progress_fn. */
static void show_opening(void *ctx, uint64_t done, uint64_t total)
{
	struct ctl_opening *opening = ctx;
	char size[SIZE_TEXT];
	bool silent, again;

	pthread_mutex_lock(&opening->log->lock);
	silent = opening->log->problems == 0;
	again = opening->log->tried && done == 0;
	pthread_mutex_unlock(&opening->log->lock);
	if (opening->started == 0)
		opening->started = progress_now();
	if (isatty(STDERR_FILENO)) {
		progress_show((void *)(again ? "trying again" : opening->word), done, total);
	} else if (!opening->told && silent && progress_now() - opening->started >= 1) {
		opening->told = true;
		text_line(stderr, "cartonctl: %s: %s%s%s", opening->label,
			  total ? "fetching " : "waiting for the server",
			  total ? format_size(total, size) : "", total ? " to open it" : "");
	}
}

void ctl_show_opens(struct carton_options *options, struct ctl_opening *opening)
{
	options->progress = show_opening;
	options->progress_ctx = opening;
}

void ctl_log_source(struct ctl_log *log, const char *source, bool opening)
{
	pthread_mutex_lock(&log->lock);
	log->source = source;
	log->opening = opening;
	pthread_mutex_unlock(&log->lock);
}

/*
 * stdio remembers write errors, so one check at the end is enough. A closed pipe kills the process.
 */
int ctl_flush(int status)
{
	static bool said;

	if (fflush(stdout) == 0 && !ferror(stdout))
		return status;
	if (!said)
		text_line(stderr, "cartonctl: cannot write: %s", carton_write_error(-errno));
	said = true;
	return EXIT_BAD;
}

int ctl_refuse(const char *what, const char *why)
{
	text_line(stderr, "cartonctl: %s: %s", what, why);
	return EXIT_BAD;
}

int ctl_failed(const char *what, int r)
{
	ctl_refuse(what, error_text(r == -EBADMSG ? -EIO : r));
	return exit_status(r, EXIT_BAD);
}

void *ctl_grow(void *array, size_t *cap, size_t n, size_t size)
{
	size_t more = n < *cap ? *cap : 2 * n + 64;
	void *grown = n < *cap ? array : reallocarray(array, more, size);

	if (grown)
		*cap = more;
	return grown;
}

void ctl_add_file(struct ctl_files *files, struct carton_node *node)
{
	struct carton_node **grown = ctl_grow(files->list, &files->cap, files->n,
					      sizeof(struct carton_node *));

	files->no_memory |= !grown;
	if (!grown)
		return;
	files->list = grown;
	grown[files->n++] = node;
}

void ctl_linked(uint64_t files, uint64_t bytes, uint64_t unsized, char *ret, size_t n)
{
	char count[TERM_COUNT], size[SIZE_TEXT], more[48] = "";

	term_count(files, "file", count);
	if (unsized == files) {
		snprintf(ret, n, "%s; sizes not known", count);
		return;
	}
	if (unsized)
		snprintf(more, sizeof(more), "; %" PRIu64 " of unknown size", unsized);
	snprintf(ret, n, "%s, %s%s", count, format_size(bytes, size), more);
}

char *ctl_count(uint64_t files, uint64_t links, char *ret)
{
	term_count(files, "file", ret);
	if (links) {
		strcat(ret, ", ");
		term_count(links, "symlink", ret + strlen(ret));
	}
	return ret;
}

void ctl_signed(const char *by, int64_t ends, char ret[CTL_SIGNED])
{
	char until[32] = "";
	time_t at = (time_t)ends;
	struct tm tm;

	if (*by && ends && gmtime_r(&at, &tm))
		strftime(until, sizeof(until), ", until %Y-%m-%d", &tm);
	snprintf(ret, CTL_SIGNED, "%s%s", *by ? by : "not checked", until);
}

/* GCC 12's thread sanitizer does not know the one whose clock nobody sets. */
#ifdef __SANITIZE_THREAD__
#define CLOCK CLOCK_REALTIME
#define join_until(thread, until) pthread_timedjoin_np(thread, NULL, until)
#else
#define CLOCK CLOCK_MONOTONIC
#define join_until(thread, until) pthread_clockjoin_np(thread, NULL, CLOCK, until)
#endif

bool ctl_join(pthread_t thread)
{
	struct timespec until;

	clock_gettime(CLOCK, &until);
	until.tv_nsec += SHOW_MS * 1000000L;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	return join_until(thread, &until) != ETIMEDOUT;
}

int ctl_root(struct carton *c, struct carton_node **ret)
{
	struct carton_node *index;
	/* of a bare file it is generated, and always has this: looking it up waits */
	int r = carton_is_bare(c) ? carton_resolve(c, "index.json", &index) : 0;

	*ret = carton_root(c);
	return r;
}

const char *ctl_last_part(const char *source)
{
	const char *slash = strrchr(source, '/');

	return slash && slash[1] ? slash + 1 : source;
}

bool ctl_is_directory(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static const char *last_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* A file called so in another directory, or of whose name or path it is perhaps a typo. */
static bool find_near(struct carton *c, const char *path, char ret[4096])
{
	const char *name = last_name(path);
	bool typo = false;

	for (struct carton_node *n = carton_is_bare(c) ? NULL : carton_root(c); n;
	     n = carton_next(c, n)) {
		char other[4096];

		carton_path(n, other);
		if (*other && strcmp(name, last_name(other)) == 0) {
			strcpy(ret, other);
			return true;
		}
		if (!typo &&
		    (carton_similar(path, other) || carton_similar(name, last_name(other)))) {
			strcpy(ret, other);
			typo = true;
		}
	}
	return typo;
}

int ctl_resolve(struct carton *c, const struct args *a, const char *path, struct carton_node **ret)
{
	const char *in = path;
	char near[4096];
	bool found;
	int r;

	while (strncmp(in, "./", 2) == 0)
		in += 2;
	r = carton_resolve(c, in, ret);
	if (r != -ENOENT)
		return r < 0 ? ctl_failed(path, r) : EXIT_GOOD;
	found = find_near(c, in, near);
	text_line(stderr, "cartonctl: %s: is not in %s%s%s%s", path, ctl_shown(a->source),
		  found ? "; did you mean " : "", found ? near : "", found ? "?" : "");
	return EXIT_BAD;
}

/* The depth of a path is limited. */
void ctl_walk(struct carton_node *top, ctl_node_fn *fn, void *ctx)
{
	struct carton_node *child;
	struct carton_stat st;

	carton_stat(top, &st);
	if (st.kind != CARTON_DIR) {
		fn(ctx, top);
		return;
	}
	for (size_t i = 0; (child = carton_child(top, i)); i++)
		ctl_walk(child, fn, ctx);
}

/* A '/' comes before any other byte. */
int ctl_compare_paths(const struct carton_node *a, const struct carton_node *b)
{
	char x[4096], y[4096];
	size_t i = 0;

	carton_path(a, x);
	carton_path(b, y);
	while (x[i] && x[i] == y[i])
		i++;
	return (x[i] == '/' ? 1 : (unsigned char)x[i]) - (y[i] == '/' ? 1 : (unsigned char)y[i]);
}

const char *ctl_shown(const char *arg)
{
	static char shown[512];

	return carton_source_label(arg, shown, sizeof(shown));
}

int ctl_usage(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fputs("cartonctl: ", stderr);
	text_vline(stderr, fmt, ap);
	va_end(ap);
	return ctl_try_help();
}

static const char *command_of_help;

void ctl_help_is_of(const char *command)
{
	command_of_help = command;
}

int ctl_try_help(void)
{
	fprintf(stderr, "Try 'cartonctl %s%s--help'.\n", command_of_help ? command_of_help : "",
		command_of_help ? " " : "");
	return EXIT_USAGE;
}
