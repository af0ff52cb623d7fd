/* SPDX-License-Identifier: Apache-2.0 */
#include "mount/report.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <syslog.h>
#include <unistd.h>

#include "common/exit_status.h"
#include "common/progress.h"
#include "common/text.h"
#include "process/fuse.h"
#include "process/notify.h"
#include "process/writer.h"

/* ---- the log ---- */

/* Shows the last error in `systemctl status`. */
static void tell_error(const char *subject, const char *message)
{
	char text[512];

	notify_systemd(text_format(text, sizeof(text), "STATUS=last error: %s%s%s",
				   subject ? subject : "", subject ? ": " : "", message));
}

/* ---- where lines go ---- */

#define LOST_LINE 128

/* Its thread may outlive the struct report: see writer_start(). */
struct output {
	int fd;			       /* -1: none */
	const char *warning;	       /* in front of a line */
	struct writer *_Atomic writer; /* set once threads of the library may run */
	bool ended;
	unsigned lost; /* lines that nobody took, before there was a writer */
};

static struct output to_stderr = { STDERR_FILENO, "", NULL, false, 0 };
static struct output to_error_file = { -1, "", NULL, false, 0 };

/* The line that says how many were lost: "" if none. */
static size_t lost_line(const struct output *o, unsigned lost, char ret[LOST_LINE])
{
	*ret = '\0';
	if (lost)
		snprintf(ret, LOST_LINE, "%scartonfs: %u " WRITER_LOST "\n", o->warning, lost);
	return strlen(ret);
}

/* A writer_fn. */
static void write_line(void *ctx, const struct writer_line *line)
{
	const struct output *o = ctx;
	char text[LOST_LINE];

	writer_bytes(o->fd, text, lost_line(o, line->lost, text));
	if (line->text)
		writer_bytes(o->fd, line->text, strlen(line->text));
}

/* Writes a line without a writer. Waits once, and for a second at most. */
static void write_now(struct output *o, const char *line)
{
	char text[LOST_LINE];

	if (writer_bytes_soon(o->fd, text, lost_line(o, o->lost, text), 0))
		o->lost = 0;
	if (!line || !writer_bytes_soon(o->fd, line, strlen(line), o->lost ? 0 : 1000))
		o->lost++;
}

/* Writes a line, or no line if there is no file for it. */
__attribute__((format(printf, 2, 3))) static void put(struct output *o, const char *fmt, ...)
{
	struct writer_line line = { .text = NULL };
	va_list ap;

	if (o->fd < 0 || o->ended)
		return;
	va_start(ap, fmt);
	line.text = text_new_line(fmt, ap);
	va_end(ap);
	if (o->writer) {
		writer_put(o->writer, &line, true);
	} else {
		write_now(o, line.text);
		free(line.text);
	}
}

static void stop(struct output *o)
{
	writer_stop(o->writer);
	o->writer = NULL;
	o->ended = true;
}

/* Writes a line to stderr. The journal takes the priority from a prefix. */
static void put_line(struct report *t, int priority, const char *prefix, const char *subject,
		     const char *message)
{
	char digit[16];

	progress_clear();
	snprintf(digit, sizeof(digit), "<%d>", priority);
	put(&to_stderr, "%scartonfs: %s%s%s%s", t->journal ? digit : "", prefix,
	    subject ? subject : "", subject ? ": " : "", message);
}

void report_serving(struct report *t)
{
	/* in the background, only error_file is written to */
	if (t->options->values.foreground)
		to_stderr.writer = writer_start(write_line, &to_stderr);
	if (to_error_file.fd >= 0)
		to_error_file.writer = writer_start(write_line, &to_error_file);
	if (to_stderr.writer)
		writer_lost(to_stderr.writer, to_stderr.lost);
	if (to_error_file.writer)
		writer_lost(to_error_file.writer, to_error_file.lost);
}

static const int priorities[] = { LOG_ERR, LOG_WARNING, LOG_WARNING, LOG_INFO, LOG_DEBUG };
static const char *const prefixes[] = { "", "warning: ", "warning: ", "", "" };

/* A message that is not written yet. */
struct held {
	enum carton_log_level level;
	bool fails;   /* it is why something does not work */
	bool passes;  /* a failure of the same carton that comes later says more */
	bool told;    /* it was written after all */
	char *line;   /* with its subject, */
	size_t label; /* of which this is the carton's label and a colon; 0: it has another */
};

static void held_free(struct held *h)
{
	if (h)
		free(h->line);
	free(h);
}

/* NULL: no memory, so that the message is written at once. */
static struct held *held_new(const struct report *t, enum carton_log_level level,
			     const char *subject, const char *message)
{
	const char *label = t->options->label;
	struct held *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	h->level = level;
	h->fails = level == CARTON_LOG_ERROR || carton_log_is_attempt();
	if (!subject || strcmp(subject, label) == 0) {
		h->label = strlen(label) + 2;
		h->passes = level >= CARTON_LOG_INFO || carton_log_is_attempt();
	}
	if (asprintf(&h->line, "%s: %s", subject ? subject : label, message) < 0) {
		free(h);
		return NULL;
	}
	return h;
}

/* Lock held, or nobody else has it. */
static void put_held(struct report *t, struct held *h)
{
	if (!h->told)
		put_line(t, priorities[h->level], prefixes[h->level], NULL, h->line);
	h->told = true;
}

/* Takes the message that is held, which the caller frees, and holds `next` (NULL: none). */
static struct held *swap_held(struct report *t, struct held *next)
{
	struct held *held;

	pthread_mutex_lock(&t->lock);
	held = t->held;
	t->held = next;
	pthread_mutex_unlock(&t->lock);
	return held;
}

/* Writes the message that is held, unless `next` says more, which is held from now on. */
static void tell_held(struct report *t, struct held *next)
{
	struct held *held = swap_held(t, next);

	if (held && !(next && held->passes && next->fails && next->label))
		put_held(t, held);
	held_free(held);
}

static void on_log(void *ctx, enum carton_log_level level, const char *subject, const char *message)
{
	struct report *t = ctx;
	struct held *held = NULL;

	if (t->opening && level == CARTON_LOG_ERROR && !subject)
		subject = t->options->label;
	if (level <= CARTON_LOG_NOTICE) {
		status_error(t->status, level != CARTON_LOG_ERROR, subject, message);
		tell_error(subject, message);
	}
	if (level == CARTON_LOG_DEBUG && !t->options->values.debug)
		return;
	if (atomic_load(&t->detached)) {
		mounter_log(t->mounter, priorities[level], "%s: %s%s%s", t->options->label,
			    subject ? subject : "", subject ? ": " : "", message);
		return;
	}
	if (level == CARTON_LOG_ERROR)
		put(&to_error_file, "%s%s%s", subject ? subject : "", subject ? ": " : "", message);
	if (t->opening && subject && level < CARTON_LOG_DEBUG)
		held = held_new(t, level, subject, message);
	tell_held(t, held);
	if (!held)
		put_line(t, priorities[level], prefixes[level], subject, message);
}

void report_covered(struct report *t, const char *message)
{
	put_line(t, LOG_WARNING, "warning: ", t->options->mountpoint, message);
}

int report_status(struct report *t, int status)
{
	if (status != EXIT_GOOD)
		put(&to_error_file, "cartonfs: %s: exit status %d", t->options->label, status);
	stop(&to_stderr);
	stop(&to_error_file);
	return status;
}

/* The one of this process: libfuse passes no context to its log, and a signal has none. */
static struct report *reporting;

/* Does libfuse say that it does not know options (which are between a ` and a ')? Says that. */
static bool log_unknown(const char *text, const char *meant)
{
	const char *first = strstr(text, "unknown option(s): `"), *end = strrchr(text, '\'');

	if (!first)
		return false;
	first = strchr(first, '`') + 1;
	carton_log(CARTON_LOG_ERROR, NULL, "unknown option: %.*s%s%s%s",
		   end > first ? (int)(end - first) : (int)strlen(first), first,
		   meant ? "; did you mean " : "; cartonfs(1) lists them", meant ? meant : "",
		   meant ? "?" : "");
	return true;
}

/* Sends the messages of libfuse to the same log. */
__attribute__((format(printf, 2, 0))) static void on_fuse_log(enum fuse_log_level level,
							      const char *fmt, va_list ap)
{
	static _Thread_local char text[512];
	size_t used = strlen(text);
	char *newline;
	const char *meant = reporting->options->suggestion;

	/* libfuse may write one line in several calls */
	vsnprintf(text + used, sizeof(text) - used, fmt, ap);
	newline = strchr(text, '\n');
	if (!newline && strlen(text) < sizeof(text) - 1)
		return;
	if (newline)
		*newline = '\0';
	if (log_unknown(text, meant)) {
		text[0] = '\0';
		return;
	}
	carton_log(level <= FUSE_LOG_ERR     ? CARTON_LOG_ERROR :
		   level <= FUSE_LOG_WARNING ? CARTON_LOG_WARNING :
		   level <= FUSE_LOG_INFO    ? CARTON_LOG_INFO :
					       CARTON_LOG_DEBUG,
		   NULL, "%s", text);
	text[0] = '\0';
}

void report_opening(struct report *t)
{
	t->began = progress_now();
	t->opening = true;
}

void report_progress(void *report, uint64_t done, uint64_t total)
{
	struct report *t = report;

	progress_show((void *)"download", done, total);
	if (isatty(STDERR_FILENO) || progress_now() - t->began < 1)
		return;
	pthread_mutex_lock(&t->lock);
	if (t->held)
		put_held(t, t->held);
	pthread_mutex_unlock(&t->lock);
}

void report_opened(struct report *t, bool good)
{
	t->opening = false;
	if (good)
		tell_held(t, NULL);
}

void report_not_mounted(struct report *t, const char *fmt, ...)
{
	const char *label = t->options->label;
	struct held *held = swap_held(t, NULL);
	size_t n = strlen(label);
	char text[2048], *why = text;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (strncmp(text, label, n) == 0 && strncmp(text + n, ": ", 2) == 0)
		why += n + 2;
	if (held && !held->fails)
		put_held(t, held);
	put(&to_stderr, "%scartonfs: %s: not mounted: %s", t->journal ? "<3>" : "", label,
	    held && held->fails ? held->line + held->label : why);
	held_free(held);
}

void report_denied(const char *line)
{
	const struct report *t = reporting;
	struct iovec parts[] = { { (char[]){ "<3>" }, t->journal ? 3 : 0 },
				 { (char[]){ "cartonfs: " }, 10 },
				 { (char *)line, strlen(line) },
				 { (char[]){ "\n" }, 1 } };

	if (atomic_load(&t->detached))
		mounter_log_line(t->mounter, LOG_ERR, t->options->label, line);
	else
		(void)!writev(STDERR_FILENO, parts, 4);
}

/* ---- error_file ---- */

/*
 * A user who can write to the directory may have put a symlink there, or a second name of a file:
 * nothing is written but to a file of this user, or to one of root that this user may write to. The
 * file is emptied after that is known.
 */
static bool is_safe_error_file(int fd)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return false;
	errno = EPERM;
	if ((st.st_uid != geteuid() && st.st_uid != 0) || st.st_nlink > 1)
		return false;
	return !S_ISREG(st.st_mode) || ftruncate(fd, 0) == 0;
}

/* False: it cannot be opened, or another user has made it. */
static bool open_error_file(const char *path, int *ret)
{
	const int flags = O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW | O_NONBLOCK;
	int fd = path ? open(path, flags, 0644) : -1;

	*ret = fd >= 0 && is_safe_error_file(fd) ? fd : -1;
	if (!path || *ret >= 0)
		return true;
	text_line(stderr, "cartonfs: error_file %s: %s%s", path, strerror(errno),
		  errno == ELOOP ? "; it is a symlink" :
		  errno == EPERM ? "; it has to belong to the user who mounts, or to root, and to "
				   "have one name" :
				   "");
	if (fd >= 0)
		close(fd);
	return false;
}

bool report_begin(struct report *t)
{
	reporting = t;
	pthread_mutex_init(&t->lock, NULL);
	t->journal = notify_is_journal();
	to_stderr.warning = t->journal ? "<4>" : "";
	carton_log_set(on_log, t);
	fuse_set_log_func(on_fuse_log);
	return open_error_file(t->options->values.error_file, &to_error_file.fd);
}
