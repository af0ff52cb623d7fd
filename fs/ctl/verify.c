/* SPDX-License-Identifier: Apache-2.0 */
/* `cartonctl verify`: all of a carton, and what is wrong with it. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ctl/verify.h"
#include "common/numbers.h"
#include "common/progress.h"
#include "common/text.h"
#include "ctl/term.h"

int verify_status(int error)
{
	return error == -EBADMSG ? EXIT_DAMAGED : exit_status(error, EXIT_BAD);
}

int ctl_verify(struct carton *c, const struct args *a)
{
	int why = 0;
	ssize_t n = carton_verify(c, progress_show, "verify", &why);

	(void)a;
	progress_clear();
	if (n < 0)
		text_line(stderr, "cartonctl: %s", strerror((int)-n));
	return n == 0 ? EXIT_GOOD : verify_status(n < 0 ? (int)n : why);
}

/* ---- what is printed ---- */

void verify_begin(const struct args *a, struct json_writer *json)
{
	if (json) {
		json_begin(json, NULL, '{');
		if (a->n_paths)
			json_text(json, "source", ctl_shown(a->source));
		json_begin(json, "problems", '[');
	} else if (a->n_paths) {
		/* one of several */
		term_style(TERM_TITLE);
		term_put(ctl_shown(a->source));
		term_style(TERM_PLAIN);
		putchar('\n');
	}
}

static void end_json(struct json_writer *w, bool ok, const struct carton_counters *k,
		     const char *model_hash, const char *signed_by)
{
	json_end(w, ']');
	json_bool(w, "ok", ok);
	json_number(w, "files", k->files);
	json_number(w, "bytes", k->bytes);
	json_text(w, "model_hash", model_hash);
	json_text(w, "signed_by", signed_by);
	json_end(w, '}');
}

/* Prints one line for programs; for a terminal of 80 columns, several. */
static void put_ok(const struct carton_counters *k, const char *hex, const char *signed_by)
{
	char count[TERM_COUNT], size[SIZE_TEXT];

	term_count(k->files, "file", count);
	term_style(TERM_GOOD);
	fputs("ok", stdout);
	term_style(TERM_PLAIN);
	if (term_is_tty())
		printf(": %s, %s%s%s%s", count, format_size(k->bytes, size), *hex ? "\nmodel " : "",
		       hex, signed_by ? "\nsigned by " : "");
	else
		printf(": %s, %" PRIu64 " bytes%s%s%s", count, k->bytes, *hex ? ", model " : "",
		       hex, signed_by ? ", signed by " : "");
	text_line(stdout, "%s", signed_by ? signed_by : "");
}

static void put_problems(size_t n, int status, bool offline)
{
	const char *later = offline ? "; what is not in the cache was not checked" :
				      "; a server is away or overloaded: try again later";
	char count[TERM_COUNT];

	term_style(TERM_BAD);
	fputs(term_count(n, "problem", count), stdout);
	term_style(TERM_PLAIN);
	puts(status == EXIT_LATER ? later : "");
}

int verify_end(struct carton *c, const struct args *a, const struct ctl_log *log, int status)
{
	const struct carton_signature *s = c ? carton_signed(c) : NULL;
	const char *signed_by = s && s->checked ? s->by : NULL;
	struct carton_counters k = { 0 };
	char hex[65] = "";

	if (log->problems && status == EXIT_GOOD)
		status = EXIT_DAMAGED;
	if (c) {
		/* sizes that only servers know are known by now */
		carton_counters(c, &k);
		carton_model_hash(c, hex);
	}
	if (log->json)
		end_json(log->json, !status, &k, hex, signed_by);
	else if (status)
		put_problems(log->problems, status, a->values.carton.offline);
	else
		put_ok(&k, hex, signed_by);
	return status;
}

/* ---- several sources ---- */

/* Damage is worse than what could not be checked, and that than what has to be tried again. */
static int badness(int status)
{
	return status == EXIT_DAMAGED ? 3 : status == EXIT_LATER ? 1 : status == EXIT_GOOD ? 0 : 2;
}

/* In a process of its own: once one is confined to its source, it can open no other. */
static int verify_one(const struct ctl_command *command, struct args *a,
		      int (*run)(const struct ctl_command *, struct args *))
{
	pid_t child;
	int status;

	fflush(stdout);
	child = fork();
	if (child == 0)
		_exit(run(command, a));
	if (child < 0)
		return ctl_failed("verify", -errno);
	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			return ctl_failed("verify", -errno);
	return WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_BAD;
}

int verify_several(const struct ctl_command *command, struct args *a,
		   int (*run)(const struct ctl_command *, struct args *))
{
	char *first = a->source;
	int status = EXIT_GOOD;

	for (int i = -1; i < a->n_paths; i++) {
		int one;

		if (a->values.json)
			fputs(i < 0 ? "[" : ",", stdout);
		a->source = i < 0 ? first : a->paths[i];
		one = verify_one(command, a, run);
		if (badness(one) > badness(status))
			status = one;
	}
	a->source = first;
	if (a->values.json)
		puts("]");
	return ctl_flush(status);
}
