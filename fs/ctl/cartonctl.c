/* SPDX-License-Identifier: Apache-2.0 */
/* cartonctl: reads a carton without mounting it, makes cartons, and maintains the cache. */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/options.h"
#include "ctl/tensors.h"
#include "common/numbers.h"
#include "common/privacy.h"
#include "common/progress.h"
#include "process/sandbox.h"
#include "ctl/term.h"
#include "common/text.h"
#include "process/user.h"

#define BLOCK ((size_t)1 << 20)
#define LINK_MIN_SIZE ((uint64_t)1 << 20) /* of a file that link leaves out */

/* ---- commands ---- */

static int run_hash(struct carton *c, const struct args *a)
{
	char hex[65];

	carton_model_hash(c, hex);
	if (carton_is_bare(c))
		return ctl_refuse(ctl_shown(a->source), "is a bare file, which has no model hash: "
							"sha256sum gives its own");
	puts(hex);
	return EXIT_GOOD;
}

/* Copies a pinned file to stdout. */
static int copy_out(struct carton_node *node, char *buf)
{
	uint64_t off = 0;
	ssize_t n;

	while ((n = carton_read(node, buf, BLOCK, off, false)) > 0) {
		if (fwrite(buf, 1, (size_t)n, stdout) != (size_t)n)
			return -errno;
		off += (uint64_t)n;
	}
	return (int)n;
}

/* Returns the exit status. */
static int cat_one(struct carton *c, const char *path, char *buf)
{
	struct carton_node *node;
	int r = carton_resolve(c, path, &node);

	if (r == 0)
		r = carton_pin_wait(c, node);
	if (r == 0) {
		r = copy_out(node, buf);
		carton_unpin(node);
	}
	return r < 0 ? ctl_failed(path, r) : EXIT_GOOD;
}

static int run_cat(struct carton *c, const struct args *a)
{
	char *buf = malloc(BLOCK);
	int status = EXIT_GOOD;

	if (!buf)
		return ctl_failed("cat", -ENOMEM);
	for (int i = 0; i < a->n_paths; i++)
		status = ctl_both(status, cat_one(c, a->paths[i], buf));
	free(buf);
	return status;
}

static int run_verify(struct carton *c, const struct args *a)
{
	int why = 0;
	ssize_t n = carton_verify(c, progress_show, "verify", &why);

	(void)a;
	progress_clear();
	if (n < 0)
		text_line(stderr, "cartonctl: %s", strerror((int)-n));
	return n == 0 ? EXIT_GOOD : exit_status(n < 0 ? (int)n : why, EXIT_BAD);
}

#define TO_PACK .writes = true, .page = "cartonctl-pack"

/* In the order of --help. */
static const struct ctl_command commands[] = {
	{ "info", "SOURCE", "describe the model", .run = ctl_info },
	{ "ls", "SOURCE [PATH...]", "list the files", .run = ctl_ls, .max_paths = -1 },
	{ "tree", "SOURCE [PATH]", "draw the directories with their sizes", .run = ctl_tree,
	  .max_paths = 1 },
	{ "diff", "SOURCE SOURCE", "compare two cartons: files by hash, and tensors",
	  .run_words = ctl_diff },
	{ "cat", "SOURCE PATH...", "write files to standard output", .run = run_cat, .min_paths = 1,
	  .max_paths = -1 },
	{ "hash", "SOURCE", "print the model hash (sha256 of MANIFEST)", .run = run_hash },
	{ "verify", "SOURCE", "check everything and list every problem", .run = run_verify },
	{ "fetch", "SOURCE [PATH...]", "download all or some files into the cache",
	  .run = ctl_fetch, .max_paths = -1 },
	{ "extract", "SOURCE DIR [PATH...]", "copy all or some files to a directory",
	  .run = ctl_extract, .min_paths = 1, .max_paths = -1, .writes = true },
	{ "init", "DIRECTORY", "write carton.toml after a look at the files", .run_words = ctl_init,
	  TO_PACK },
	{ "pack", "DIRECTORY OUT", "make a carton of unpacked files", .run_words = ctl_pack,
	  TO_PACK },
	{ "repack", "SOURCE OUT", "store the files of a carton in another way",
	  .run_words = ctl_repack, TO_PACK },
	{ "link", "SOURCE OUT [PATH...]", "leave files out, and name their URLs",
	  .run_words = ctl_link, TO_PACK },
	{ "embed", "SOURCE OUT", "fetch such files and put them in", .run_words = ctl_embed,
	  TO_PACK },
	{ "import", "REPOSITORY OUT", "make a small carton of hf://ORG/REPO or oci://...",
	  .run_words = ctl_import, TO_PACK },
	{ "push", "SOURCE oci://HOST/NAME:TAG", "send a carton to a registry", .run = ctl_push,
	  .min_paths = 1, .max_paths = 1, .page = "cartonctl-pack" },
	{ "status", "[MOUNTPOINT]", "show what mounts do", .run_words = ctl_status },
	{ "stop", "MOUNTPOINT", "unmount, and say who keeps it busy", .run_words = ctl_stop },
	{ "refresh", "MOUNTPOINT URL", "fetch from here now: a URL with a new signature",
	  .run_words = ctl_refresh },
	{ "cache", "list | gc [SIZE] | verify | path SHA256 | export", "look after the cache",
	  .run_words = ctl_cache },
	{ .name = NULL },
};

/* Prints one line for programs; for a terminal of 80 columns, two. */
static void print_ok(const struct carton_totals *totals, const char *hex)
{
	char count[TERM_COUNT], size[SIZE_TEXT];

	term_style(TERM_GOOD);
	fputs("ok", stdout);
	term_style(TERM_PLAIN);
	if (term_is_tty())
		printf(": %s, %s%s%s\n", term_count(totals->files, "file", count),
		       format_size(totals->bytes, size), *hex ? "\nmodel " : "", hex);
	else
		printf(": %s, %" PRIu64 " bytes%s%s\n", term_count(totals->files, "file", count),
		       totals->bytes, *hex ? ", model " : "", hex);
}

static void begin_json(struct json_writer *w)
{
	json_begin(w, NULL, '{');
	json_begin(w, "problems", '[');
}

static void end_json(struct json_writer *w, bool ok, const struct carton_totals *totals,
		     const char *model_hash)
{
	json_end(w, ']');
	json_bool(w, "ok", ok);
	json_number(w, "files", totals->files);
	json_number(w, "bytes", totals->bytes);
	json_text(w, "model_hash", model_hash);
	json_end(w, '}');
}

/* Prints the last line of verify, or the end of its JSON object. Returns the exit status. */
static int print_result(const struct carton *c, const struct ctl_log *log, int status)
{
	struct carton_totals totals = { 0 };
	char hex[65] = "";

	if (log->problems && status == EXIT_GOOD)
		status = EXIT_BAD;
	if (c) {
		carton_totals(c, &totals);
		carton_model_hash(c, hex);
	}
	if (log->json)
		end_json(log->json, !status, &totals, hex);
	else if (status)
		printf("%zu problem%s\n", log->problems, log->problems == 1 ? "" : "s");
	else
		print_ok(&totals, hex);
	return status;
}

static int run(const struct ctl_command *command, struct args *a)
{
	bool verify = command->run == run_verify;
	struct json_writer json = { .f = stdout };
	struct ctl_log log = { .lock = PTHREAD_MUTEX_INITIALIZER,
			       .collect = verify,
			       .json = verify && a->values.json ? &json : NULL };
	struct carton *c = NULL;
	char label[256];
	int r, status;

	log.source = carton_source_label(a->source, label, sizeof(label));
	log.opening = true;
	carton_log_set(ctl_on_log, &log);
	a->values.carton.keep_going = verify;
	a->values.carton.hash_all = verify;
	if (command->run == run_cat)
		a->values.carton.views = "views";
	if (command->run == ctl_info)
		a->values.carton.views = CTL_TENSOR_VIEWS;
	if (command->run == ctl_extract && ctl_extract_prepare(a) < 0)
		return EXIT_BAD;
	if (command->run == ctl_push) {
		a->values.carton.push_to = a->paths[0];
		if (ctl_push_prepare(a) < 0)
			return EXIT_BAD;
	}
	if (log.json)
		begin_json(&json);
	r = carton_open(a->source, &a->values.carton, &c);
	ctl_log_source(&log, log.source, false);
	if (r == 0 && a->values.carton.confine)
		r = sandbox_opened(carton_fetches(c));
	status = r == 0 ? command->run(c, a) : exit_status(r, EXIT_BAD);
	if (r < 0 && !log.problems)
		text_line(stderr, "cartonctl: %s: %s", label, strerror(-r));
	if (verify)
		status = print_result(c, &log, status);
	carton_close(c);
	return ctl_flush(status);
}

static int unknown_command(const char *text)
{
	const char *name = ctl_shown(text);

	for (const struct ctl_command *c = commands; c->name; c++)
		if (option_similar(name, c->name))
			return ctl_usage("unknown command: %s; did you mean %s?", name, c->name);
	return ctl_usage("unknown command: %s", name);
}

/* Runs a command that reads a carton: the first of the words after the command. */
static int run_on_source(const struct ctl_command *command, int n, char **words, struct args *a)
{
	if (n == 0)
		return ctl_usage("%s: SOURCE is missing", command->name);
	a->source = strdup(words[0]);
	if (!a->source)
		return ctl_failed(command->name, -ENOMEM);
	privacy_hide(words[0]);
	a->paths = words + 1;
	a->n_paths = n - 1;
	if (a->n_paths < command->min_paths)
		return ctl_usage("%s: %s is missing", command->name,
				 command->run == ctl_extract ? "DIR" :
				 command->run == ctl_push    ? "oci://HOST/NAME:TAG" :
							       "PATH");
	if (command->max_paths >= 0 && a->n_paths > command->max_paths)
		return ctl_usage("%s: too many arguments: %s", command->name,
				 ctl_shown(a->paths[command->max_paths]));
	return run(command, a);
}

/* Runs the command in `words`, of which there are `n`. */
static int run_command(int n, char **words, struct args *a)
{
	const struct ctl_command *command = NULL;

	if (n == 0)
		return ctl_usage("COMMAND is missing");
	for (const struct ctl_command *c = commands; c->name; c++)
		if (strcmp(words[0], c->name) == 0)
			command = c;
	if (!command)
		return unknown_command(words[0]);
	if (ctl_check_options(command, a) != EXIT_GOOD)
		return EXIT_USAGE;
	if (a->values.nosandbox)
		a->values.carton.confine = NULL;
	/* those that write do not change the user: see sandbox_enter() */
	if (a->values.carton.confine && !command->writes &&
	    user_default_cache(&a->values.carton.cache_dir) < 0)
		return ctl_failed(command->name, -ENOMEM);
	return command->run ? run_on_source(command, n - 1, words + 1, a) :
			      command->run_words(words + 1, n - 1, a);
}

int main(int argc, char **argv)
{
	struct args a = { .values.carton.confine = sandbox_enter,
			  .values.min_size = LINK_MIN_SIZE };
	int status;

	a.values.carton.confine_ctx = &a.sandbox;
	privacy_no_core_dumps();
	term_open();
	status = ctl_parse(argc, argv, commands, &a);
	if (status == EXIT_GOOD)
		status = run_command(argc - optind, argv + optind, &a);
	/* what the cache does not have will not be there later */
	if (status == EXIT_LATER && a.values.carton.offline)
		status = EXIT_BAD;
	option_finish(&a.values);
	free(a.source);
	free(a.signature);
	return status;
}
