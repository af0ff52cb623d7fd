/* SPDX-License-Identifier: Apache-2.0 */
/* `cartonctl status`: the state of the mounts of this user, from the status.json of each. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ctl/ctl.h"
#include "ctl/mounts.h"
#include "ctl/status_json.h"
#include "common/numbers.h"
#include "ctl/term.h"
#include "common/text.h"

#define MOUNTS_MAX 256
#define LABEL 10
#define STATE (2 + LABEL + 14 + 2 + 10 + 2) /* columns before the bar of a state */
#define WATCH_MS 1000

/* ---- one mount ---- */

/* The last counters of a mount, from which rates are computed. */
struct seen {
	char mountpoint[4096];
	uint64_t hashed, fetched;
	double when; /* seconds; 0: not seen yet */
};

struct view {
	unsigned columns;
	struct seen *seen; /* MOUNTS_MAX of them; NULL: no rates */
};

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void put_label(const char *label)
{
	term_spaces(2);
	term_style(TERM_FAINT);
	term_cell(label, LABEL);
	term_style(TERM_PLAIN);
}

static void put_text(const struct view *v, const char *label, const char *text)
{
	char shown[2 * 4096];

	put_label(label);
	/* of a name that has a newline, too */
	term_wrap(text_format(shown, sizeof(shown), "%s", text), LABEL + 2, v->columns);
	putchar('\n');
}

/* "3 days, 4:05:06" */
static void format_time(uint64_t seconds, char *ret, size_t n)
{
	char days[TERM_COUNT];

	snprintf(ret, n, "%s%s%" PRIu64 ":%02" PRIu64 ":%02" PRIu64,
		 seconds >= 86400 ? term_count(seconds / 86400, "day", days) : "",
		 seconds >= 86400 ? ", " : "", seconds / 3600 % 24, seconds / 60 % 60,
		 seconds % 60);
}

static void put_process(const struct view *v, const char *json)
{
	uint64_t started = json_number_of(json, "started"), current = (uint64_t)time(NULL);
	char up[96], text[160];

	format_time(current > started ? current - started : 0, up, sizeof(up));
	snprintf(text, sizeof(text), "%" PRIu64 ", up %s", json_number_of(json, "pid"), up);
	put_text(v, "process", text);
}

static void put_state(const struct view *v, const char *json, const char *label, const char *state)
{
	char key[32], count[TERM_COUNT], size[SIZE_TEXT];
	uint64_t files, bytes;

	snprintf(key, sizeof(key), "%s_files", state);
	files = json_number_of(json, key);
	snprintf(key, sizeof(key), "%s_bytes", state);
	bytes = json_number_of(json, key);
	if (files == 0)
		return;
	put_label(label);
	if (strcmp(state, "corrupt") == 0)
		term_style(TERM_BAD);
	printf("%14s  %10s  ", term_count(files, "file", count), format_size(bytes, size));
	term_style(TERM_PLAIN);
	if (v->columns > STATE)
		term_bar(bytes, json_number_of(json, "bytes"),
			 v->columns - STATE < 20 ? v->columns - STATE : 20);
	putchar('\n');
}

static void put_passthrough(const struct view *v, const char *json)
{
	const char *at = json_member(json, "passthrough");
	char count[TERM_COUNT], text[96];

	if (!at)
		return;
	snprintf(text, sizeof(text), "%s open",
		 term_count(json_number_of(json, "passthrough_files"), "file", count));
	put_text(v, "passed", *at == 't' ? text : "none: passthrough is not possible here");
}

/* What the files are that LINKS names. */
static void put_linked(const struct view *v, const char *json)
{
	char text[96];

	if (json_number_of(json, "linked_files") == 0)
		return;
	ctl_linked(json_number_of(json, "linked_files"), json_number_of(json, "linked_bytes"),
		   json_number_of(json, "unsized_files"), text, sizeof(text));
	put_text(v, "links", text);
}

static void put_remote(const struct view *v, const char *json)
{
	char cached[SIZE_TEXT], remote[SIZE_TEXT], text[96];

	if (json_number_of(json, "cached_bytes") + json_number_of(json, "remote_bytes") == 0)
		return;
	snprintf(text, sizeof(text), "%s here, %s to fetch",
		 format_size(json_number_of(json, "cached_bytes"), cached),
		 format_size(json_number_of(json, "remote_bytes"), remote));
	put_text(v, "remote", text);
}

/* The slot of a mount, new if it was not seen. */
static struct seen *find_seen(const struct view *v, const char *mountpoint)
{
	for (size_t i = 0; v->seen && i < MOUNTS_MAX; i++) {
		if (!*v->seen[i].mountpoint)
			snprintf(v->seen[i].mountpoint, sizeof(v->seen[i].mountpoint), "%s",
				 mountpoint);
		if (strcmp(v->seen[i].mountpoint, mountpoint) == 0)
			return &v->seen[i];
	}
	return NULL;
}

static void put_traffic(const struct view *v, const char *json, const char *mountpoint)
{
	uint64_t hashed = json_number_of(json, "hashed_bytes"),
		 fetched = json_number_of(json, "fetched_bytes");
	char a[SIZE_TEXT], b[SIZE_TEXT], text[128];
	struct seen *s = find_seen(v, mountpoint);
	double t = now();

	snprintf(text, sizeof(text), "%s hashed, %s from servers", format_size(hashed, a),
		 format_size(fetched, b));
	put_text(v, "traffic", text);
	if (s && s->when > 0 && t > s->when && hashed >= s->hashed && fetched >= s->fetched) {
		double seconds = t - s->when;

		snprintf(text, sizeof(text), "%s/s hashed, %s/s fetched",
			 format_size((uint64_t)((double)(hashed - s->hashed) / seconds), a),
			 format_size((uint64_t)((double)(fetched - s->fetched) / seconds), b));
		put_text(v, "rate", text);
	}
	if (s) {
		s->hashed = hashed;
		s->fetched = fetched;
		s->when = t;
	}
	if (json_number_of(json, "cache_hits") + json_number_of(json, "cache_misses")) {
		snprintf(text, sizeof(text),
			 "had %" PRIu64 " of %" PRIu64 " files that were looked for in it",
			 json_number_of(json, "cache_hits"),
			 json_number_of(json, "cache_hits") + json_number_of(json, "cache_misses"));
		put_text(v, "cache", text);
	}
}

static void put_waiting(const struct view *v, const char *element, bool first)
{
	const char *done = json_in_element(element, "done"),
		   *size = json_in_element(element, "size");
	const char *opens = json_in_element(element, "opens");
	char path[4096], state[16], part[16] = "", text[4200];
	uint64_t whole = size ? strtoull(size, NULL, 10) : 0;
	unsigned waiting = opens ? (unsigned)strtoul(opens, NULL, 10) : 0;

	json_decode(json_in_element(element, "path"), path, sizeof(path));
	json_decode(json_in_element(element, "state"), state, sizeof(state));
	if (whole && done)
		snprintf(part, sizeof(part), " %.0f%%",
			 (double)strtoull(done, NULL, 10) * 100 / (double)whole);
	snprintf(text, sizeof(text), "%s  %s%s, %u open%s", path, state, part, waiting,
		 waiting == 1 ? "" : "s");
	put_text(v, first ? "waiting" : "", text);
}

static void put_left_out(const struct view *v, const char *element, bool first)
{
	char path[2 * 4096], fault[128], text[3 * 4096];

	json_decode(json_in_element(element, "path"), path, sizeof(path));
	json_decode(json_in_element(element, "fault"), fault, sizeof(fault));
	snprintf(text, sizeof(text), "%s, whose name %s", path, fault);
	put_text(v, first ? "left out" : "", text);
}

static bool is_warning(const char *element)
{
	const char *level = json_in_element(element, "level");

	return level && strncmp(level, "\"warning\"", 9) == 0;
}

static bool is_error(const char *element)
{
	return !is_warning(element);
}

static void put_error(const struct view *v, const char *element, bool first)
{
	const char *when = json_in_element(element, "time");
	time_t at = when ? (time_t)strtoll(when, NULL, 10) : 0;
	char text[1024] = "";
	struct tm tm;

	if (localtime_r(&at, &tm))
		strftime(text, sizeof(text), "%H:%M:%S ", &tm);
	json_decode(json_in_element(element, "message"), text + strlen(text),
		    sizeof(text) - strlen(text));
	put_text(v, !first ? "" : is_warning(element) ? "warnings" : "errors", text);
}

/* Calls `put` for those elements of a list, which are a line each, that are wanted. */
static void put_list(const struct view *v, const char *json, const char *key,
		     bool (*wanted)(const char *element),
		     void (*put)(const struct view *v, const char *element, bool first))
{
	const char *at = json_member(json, key);
	bool first = true;
	char *element;

	while ((element = json_next_element(&at))) {
		if (!wanted || wanted(element)) {
			put(v, element, first);
			first = false;
		}
		free(element);
	}
}

static void put_mount(const struct view *v, const char *mountpoint, const char *json)
{
	char text[4096], by[CTL_SIGNED];

	term_style(TERM_TITLE);
	term_short(mountpoint, v->columns);
	term_style(TERM_PLAIN);
	putchar('\n');
	json_decode(json_member(json, "source"), text, sizeof(text));
	put_text(v, "source", text);
	json_decode(json_member(json, "model_hash"), text, sizeof(text));
	if (*text)
		put_text(v, "model", text);
	else if (json_number_of(json, "late_files"))
		put_text(v, "model", "its hash is known once all small files were read");
	if (json_member(json, "commit")) {
		json_decode(json_member(json, "commit"), text, sizeof(text));
		put_text(v, "commit", text);
	}
	json_decode(json_member(json, "signed_by"), text, CARTON_SIGNER);
	ctl_signed(text, (int64_t)json_number_of(json, "signed_until"), by);
	put_text(v, *text ? "signed by" : "signature", by);
	json_decode(json_member(json, "verify"), text, sizeof(text));
	if (strcmp(text, "off") == 0)
		put_text(v, "verify", "off: nothing is verified");
	put_process(v, json);
	put_state(v, json, "verified", "verified");
	put_state(v, json, "corrupt", "corrupt");
	put_state(v, json, "to verify", "unread");
	put_linked(v, json);
	put_remote(v, json);
	put_passthrough(v, json);
	put_traffic(v, json, mountpoint);
	put_list(v, json, "left_out", NULL, put_left_out);
	put_list(v, json, "waiting", NULL, put_waiting);
	put_list(v, json, "last_errors", is_error, put_error);
	put_list(v, json, "last_errors", is_warning, put_error);
}

/* ---- all mounts ---- */

/*
 * Reports why a mount has given no status. A mount that does not answer is not reported, as it gets
 * a row, nor one that has ended since it was listed. Returns an exit status.
 */
static int check_answer(const struct ctl_mount *m, int r)
{
	if (r == -ENOTCONN)
		ctl_refuse(m->path, "its process has ended; cartonctl stop removes the mount");
	else if (r == -ELOOP || r == -ENOTDIR)
		ctl_refuse(m->path, "shows a link or another kind of file in place of its status");
	else if (r < 0 && r != -ENOENT && r != -ETIMEDOUT)
		ctl_failed(m->path, r);
	return r < 0 ? EXIT_BAD : EXIT_GOOD;
}

static void put_json(struct json_writer *w, const struct ctl_mount *m, const struct ctl_question *q)
{
	json_line(w, 0);
	if (q->text) {
		json_value(w, NULL, q->text);
		return;
	}
	json_begin(w, NULL, '{');
	json_line(w, 1);
	json_text(w, "mountpoint", m->path);
	json_line(w, 1);
	json_text(w, "error", CTL_NO_ANSWER);
	json_end_line(w, '}');
	putchar('\n');
}

static void put_row(const struct view *v, const struct ctl_mount *m, const struct ctl_question *q,
		    bool first)
{
	if (!first)
		putchar('\n');
	if (q->text) {
		put_mount(v, m->path, q->text);
		return;
	}
	term_style(TERM_TITLE);
	term_short(m->path, v->columns);
	term_style(TERM_PLAIN);
	putchar('\n');
	put_text(v, "no answer", CTL_NO_ANSWER);
}

/* Asks all mounts, and prints their answers in `v`, or as JSON to `w`. Returns an exit status. */
static int put_mounts(const struct view *v, struct json_writer *w, const struct ctl_mount *list,
		      size_t n)
{
	struct ctl_question *answers = calloc(n + 1, sizeof(*answers));
	int status = EXIT_GOOD;
	bool first = true;

	if (!answers)
		return ctl_failed("status", -ENOMEM);
	ctl_mounts_ask(list, n, CTL_STATUS, answers);
	for (size_t i = 0; i < n; i++) {
		const struct ctl_question *q = &answers[i];

		if (check_answer(&list[i], q->r) != EXIT_GOOD)
			status = EXIT_BAD;
		if (!q->text && q->r != -ETIMEDOUT)
			continue;
		if (v)
			put_row(v, &list[i], q, first);
		else
			put_json(w, &list[i], q);
		free(q->text);
		first = false;
	}
	free(answers);
	return status;
}

/* The same as a list of JSON. */
static int put_json_list(const struct ctl_mount *list, size_t n)
{
	struct json_writer w = { .f = stdout, .spaced = true };
	int status;

	json_begin(&w, NULL, '[');
	status = put_mounts(NULL, &w, list, n);
	json_end(&w, ']');
	return status;
}

static int put_all(const struct view *v, const struct ctl_mount *list, size_t n)
{
	if (n == 0)
		puts("no carton is mounted");
	return put_mounts(v, NULL, list, n);
}

/* Draws the screen again and again, from its top. */
static int watch(struct view *v, const char *mountpoint)
{
	struct ctl_mount *list;
	size_t n;
	int r;

	v->seen = calloc(MOUNTS_MAX, sizeof(*v->seen));
	while ((r = ctl_mounts(mountpoint, &list, &n)) == 0) {
		if (term_is_tty())
			fputs("\033[H\033[J", stdout);
		v->columns = term_columns(80);
		put_all(v, list, n);
		ctl_mounts_free(list, n);
		if (fflush(stdout) != 0 || ferror(stdout) || (mountpoint && n == 0))
			break;
		poll(NULL, 0, WATCH_MS);
	}
	free(v->seen);
	return r;
}

int ctl_status(char **words, int n_words, const struct args *a)
{
	const char *mountpoint = n_words ? words[0] : NULL;
	struct view v = { .columns = term_columns(80) };
	struct ctl_mount *list;
	size_t n;
	int r, status;

	if (n_words > 1)
		return ctl_usage("status: too many arguments: %s", ctl_shown(words[1]));
	if (a->values.watch + a->values.json + a->values.metrics > 1)
		return ctl_usage("status: only one of --json, --metrics and --watch");
	if (a->values.watch) {
		r = watch(&v, mountpoint);
		return ctl_flush(r < 0 ? ctl_failed(mountpoint ? mountpoint : "status", r) :
					 EXIT_GOOD);
	}
	r = ctl_mounts(mountpoint, &list, &n);
	if (r < 0)
		return ctl_failed(mountpoint ? mountpoint : "status", r);
	status = mountpoint && n == 0 ? ctl_refuse_no_mount(mountpoint) :
		 a->values.metrics    ? ctl_status_metrics(list, n) :
		 a->values.json	      ? put_json_list(list, n) :
					put_all(&v, list, n);
	ctl_mounts_free(list, n);
	return ctl_flush(status);
}
