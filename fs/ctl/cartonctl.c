/* SPDX-License-Identifier: Apache-2.0 */
/* cartonctl: reads a carton without mounting it, makes cartons, and maintains the cache. */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ctl/options.h"
#include "ctl/tensors.h"
#include "ctl/verify.h"
#include "common/numbers.h"
#include "common/end_first.h"
#include "common/privacy.h"
#include "common/progress.h"
#include "process/descriptors.h"
#include "process/sandbox.h"
#include "ctl/term.h"
#include "common/text.h"
#include "common/umask.h"
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

struct cat {
	struct carton *c;
	struct carton_node *node;
	char *buf;
	_Atomic uint64_t written;
	int r;
};

/* Copies a pinned file to stdout. */
static int copy_out(struct cat *x)
{
	uint64_t off = 0;
	ssize_t n;

	while ((n = carton_read(x->node, x->buf, BLOCK, off, false)) > 0) {
		if (fwrite(x->buf, 1, (size_t)n, stdout) != (size_t)n)
			return -errno;
		off += (uint64_t)n;
		atomic_store(&x->written, off);
	}
	return (int)n;
}

static void *run_copy(void *cat)
{
	struct cat *x = cat;

	x->r = carton_pin_wait(x->c, x->node);
	if (x->r == 0) {
		x->r = copy_out(x);
		carton_unpin(x->node);
	}
	return NULL;
}

static void add_came(void *ctx, const struct carton_waiting *waiting)
{
	*(uint64_t *)ctx += waiting->done;
}

/*
 * How far the file is: what came of it so far, and once it can be read, what was written to a file.
 * A pager has the terminal by then.
 */
static void show_cat(const struct cat *x)
{
	uint64_t done = atomic_load(&x->written);
	struct carton_stat st;
	struct stat out;

	if (done == 0)
		carton_waiting(x->c, add_came, &done);
	else if (fstat(STDOUT_FILENO, &out) < 0 || !S_ISREG(out.st_mode)) {
		progress_clear();
		return;
	}
	carton_stat(x->node, &st);
	progress_show("cat", done, st.size > done ? st.size : done);
}

/* Returns the exit status. */
static int cat_one(struct carton *c, const struct args *a, const char *path, char *buf)
{
	struct cat x = { .c = c, .buf = buf };
	int status = ctl_resolve(c, a, path, &x.node);
	pthread_t thread;

	if (status != EXIT_GOOD)
		return status;
	/* a terminal shows the file itself */
	if (term_is_tty() || !isatty(STDERR_FILENO) ||
	    pthread_create(&thread, NULL, run_copy, &x) != 0)
		run_copy(&x);
	else
		while (!ctl_join(thread))
			show_cat(&x);
	progress_clear();
	return x.r < 0 ? ctl_failed(path, x.r) : EXIT_GOOD;
}

static int run_cat(struct carton *c, const struct args *a)
{
	char *buf = malloc(BLOCK);
	int status = EXIT_GOOD;

	if (!buf)
		return ctl_failed("cat", -ENOMEM);
	for (int i = 0; i < a->n_paths; i++)
		status = ctl_both(status, cat_one(c, a, a->paths[i], buf));
	free(buf);
	return status;
}

#define TO_PACK .writes = true, .page = "cartonctl-pack"

static ctl_words_fn run_help, run_version;

/* In the order of --help. */
static const struct ctl_command commands[] = {
	{ "info", "SOURCE", "describe the model, or a file of a mount", .run = ctl_info,
	  .example = "m.carton" },
	{ "ls", "SOURCE [PATH...]", "list the files", .run = ctl_ls, .max_paths = -1,
	  .example = "--sort=size m.carton model" },
	{ "tree", "SOURCE [PATH]", "draw the directories with their sizes", .run = ctl_tree,
	  .max_paths = 1, .example = "--depth=2 m.carton" },
	{ "diff", "SOURCE SOURCE", "compare two cartons: files by hash, and tensors",
	  .run_words = ctl_diff, .example = "old.carton new.carton" },
	{ "cat", "SOURCE PATH...", "write files to standard output", .run = run_cat, .min_paths = 1,
	  .max_paths = -1, .example = "m.carton carton.toml" },
	{ "hash", "SOURCE", "print the model hash (sha256 of MANIFEST)", .run = run_hash,
	  .example = "m.carton" },
	{ "verify", "SOURCE...", "check everything and list every problem", .run = ctl_verify,
	  .max_paths = -1, .example = "m.carton hf://org/repo" },
	{ "fetch", "SOURCE [PATH...]", "download all or some files into the cache",
	  .run = ctl_fetch, .max_paths = -1, .example = "hf://org/repo model/config.json" },
	{ "extract", "SOURCE DIR [PATH...]", "copy all or some files to a directory",
	  .run = ctl_extract, .min_paths = 1, .max_paths = -1, .writes = true,
	  .example = "m.carton copy model" },
	{ "init", "DIRECTORY", "write carton.toml after a look at the files", .run_words = ctl_init,
	  TO_PACK, .opens_none = true, .example = "mymodel" },
	{ "pack", "DIRECTORY OUT", "make a carton of unpacked files", .run_words = ctl_pack,
	  TO_PACK, .example = "mymodel mymodel.carton" },
	{ "repack", "SOURCE OUT", "store the files of a carton in another way",
	  .run_words = ctl_repack, TO_PACK, .example = "--compress=store m.carton stored.carton" },
	{ "link", "SOURCE OUT [PATH...]", "leave files out, and name their URLs",
	  .run_words = ctl_link, TO_PACK,
	  .example = "--url='https://x.org/{sha256}' m.carton small.carton" },
	{ "embed", "SOURCE OUT", "fetch such files and put them in", .run_words = ctl_embed,
	  TO_PACK, .example = "small.carton whole.carton" },
	{ "import", "REPOSITORY OUT", "make a small carton of hf://ORG/REPO or oci://...",
	  .run_words = ctl_import, TO_PACK, .example = "hf://org/repo small.carton" },
	{ "push", "SOURCE oci://HOST/NAME:TAG", "send a carton to a registry", .run = ctl_push,
	  .min_paths = 1, .max_paths = 1, .page = "cartonctl-pack",
	  .example = "m.carton oci://registry.example/models/m:1" },
	{ "sign", "SOURCE", "write its signature, for those who mount it", .run_words = ctl_sign,
	  .writes = true, .page = "cartonctl-sign", .example = "--key=key.pem m.carton" },
	{ "status", "[MOUNTPOINT]", "show what mounts do", .run_words = ctl_status,
	  .opens_none = true, .example = "mnt" },
	{ "stop", "MOUNTPOINT", "unmount, and say who keeps it busy", .run_words = ctl_stop,
	  .opens_none = true, .example = "mnt" },
	{ "refresh", "MOUNTPOINT URL", "fetch from here now: a URL with a new signature",
	  .run_words = ctl_refresh, .opens_none = true,
	  .example = "mnt 'https://example.com/m.carton?signature=x'" },
	{ "cache", "list | gc [SIZE] | verify | path SHA256 | export", "look after the cache",
	  .run_words = ctl_cache, .opens_none = true, .example = "gc 20G" },
	{ "help", "[COMMAND]", "show this, or what a command takes", .run_words = run_help },
	{ "version", "", "show the version", .run_words = run_version },
	{ .name = NULL },
};

/* Why a carton is not open, if no problem was logged: the last attempt, or the error. */
static const char *why_not(const char *label, int error)
{
	const char *text = carton_error(error);
	size_t n = strlen(label);

	if (strcmp(text, strerror(-error)) == 0)
		return error_text(error);
	return strncmp(text, label, n) == 0 && strncmp(text + n, ": ", 2) == 0 ? text + n + 2 :
										 text;
}

static int run(const struct ctl_command *command, struct args *a)
{
	bool verify = command->run == ctl_verify;
	struct json_writer json = { .f = stdout };
	struct ctl_log log = { .lock = PTHREAD_MUTEX_INITIALIZER,
			       .collect = verify,
			       .json = verify && a->values.json ? &json : NULL };
	struct ctl_opening opening = { .word = "download", .log = &log };
	struct carton *c = NULL;
	char label[256];
	int r, status;

	log.source = opening.label = carton_source_label(a->source, label, sizeof(label));
	log.opening = true;
	carton_log_set(ctl_on_log, &log);
	ctl_show_opens(&a->values.carton, &opening);
	a->values.carton.keep_going = verify;
	a->values.carton.hash_all = verify;
	if (command->run == run_cat)
		a->values.carton.views = "views";
	/* `ls -l` shows the hashes */
	if (command->run == run_cat || command->run == ctl_tree || command->run == ctl_extract ||
	    (command->run == ctl_ls && !a->values.is_long && !a->values.json))
		a->values.carton.late = CARTON_LATE_READ;
	if (command->run == ctl_info)
		ctl_hide_views(&a->values.carton);
	if (command->run == ctl_extract && ctl_extract_prepare(a) < 0)
		return EXIT_BAD;
	if (command->run == ctl_push) {
		a->values.carton.push_to = a->paths[0];
		if (ctl_push_prepare(a) < 0)
			return EXIT_BAD;
	}
	if (command->run == ctl_ls)
		ctl_ls_prepare(a);
	if (verify)
		verify_begin(a, log.json);
	r = carton_open(a->source, &a->values.carton, &c);
	progress_clear();
	ctl_log_source(&log, log.source, false);
	if (r == 0 && a->values.carton.confine)
		r = sandbox_opened(carton_fetches(c));
	status = r == 0 ? command->run(c, a) : verify ? verify_status(r) : exit_status(r, EXIT_BAD);
	if (r < 0 && !log.problems)
		ctl_on_log(&log, CARTON_LOG_ERROR, label, why_not(label, r));
	if (verify)
		status = verify_end(c, a, &log, status);
	carton_close(c);
	return ctl_flush(status);
}

/* What users of other programs try. */
static const char *const other_names[][2] = {
	{ "umount", "did you mean stop?" },
	{ "unmount", "did you mean stop?" },
	{ "mount", "cartonfs SOURCE MOUNTPOINT mounts a carton" },
};

static int unknown_command(const char *text)
{
	const char *name = ctl_shown(text);

	for (size_t i = 0; i < sizeof(other_names) / sizeof(*other_names); i++)
		if (strcmp(name, other_names[i][0]) == 0)
			return ctl_usage("unknown command: %s; %s", name, other_names[i][1]);
	for (const struct ctl_command *c = commands; c->name; c++)
		if (carton_similar(name, c->name))
			return ctl_usage("unknown command: %s; did you mean %s?", name, c->name);
	return ctl_usage("unknown command: %s", name);
}

static int run_help(char **words, int n, const struct args *a)
{
	const struct ctl_command *command = n ? ctl_find_command(commands, words[0]) : NULL;

	(void)a;
	/* such as `help cache gc`: the page has it */
	if (n > 1 && !(command && n == 2 && ctl_has_alternative(command, words[1])))
		return ctl_usage("help: too many arguments: %s", ctl_shown(words[1]));
	if (n && !command) {
		ctl_help_is_of(NULL);
		return unknown_command(words[0]);
	}
	ctl_put_help(commands, command);
	return ctl_flush(EXIT_GOOD);
}

static int run_version(char **words, int n, const struct args *a)
{
	(void)a;
	if (n)
		return ctl_usage("version: too many arguments: %s", ctl_shown(words[0]));
	ctl_put_version();
	return ctl_flush(EXIT_GOOD);
}

/* Runs a command that reads a carton: the first of the words after the command. */
static int run_on_source(const struct ctl_command *command, int n, char **words, struct args *a)
{
	int status;

	if (n == 0 || !*words[0])
		return ctl_usage("%s: SOURCE is %s", command->name, n ? "empty" : "missing");
	a->source = strdup(words[0]);
	if (!a->source)
		return ctl_failed(command->name, -ENOMEM);
	privacy_hide(words[0]);
	a->paths = words + 1;
	a->n_paths = n - 1;
	for (int i = 0; i < a->n_paths && command->run == ctl_verify; i++) {
		char *copy = strdup(a->paths[i]);

		if (!copy)
			return ctl_failed(command->name, -ENOMEM);
		privacy_hide(a->paths[i]);
		a->paths[i] = copy;
	}
	if (a->n_paths < command->min_paths)
		return ctl_usage("%s: %s is missing", command->name,
				 command->run == ctl_extract ? "DIR" :
				 command->run == ctl_push    ? "oci://HOST/NAME:TAG" :
							       "PATH");
	if (command->max_paths >= 0 && a->n_paths > command->max_paths)
		return ctl_usage("%s: too many arguments: %s", command->name,
				 ctl_shown(a->paths[command->max_paths]));
	if (command->run == ctl_info && ctl_info_mounted(a->source, a, &status))
		return ctl_flush(status);
	return command->run == ctl_verify && a->n_paths ? verify_several(command, a, run) :
							  run(command, a);
}

/* Ctrl-C leaves a clean line, with what the user can do. */
static void end_clean(const struct ctl_command *command)
{
	bool resumes = command->run == ctl_fetch || command->run == ctl_extract;

	/* the process that has the key reads a passphrase from the terminal by itself */
	if (command->run_words != ctl_sign)
		progress_end_clean(resumes ? "cartonctl: interrupted; run it again to resume\n" :
					     NULL);
}

/* Why the `i`th word of this command cannot be -; NULL: it can. */
static const char *dash_fault(const struct ctl_command *command, int i)
{
	const char *at = command->args;

	/* the last stands for all that follow, if it ends with ... */
	for (; i > 0 && strchr(at, ' '); i--)
		at = strchr(at, ' ') + 1;
	if (i > 0 && !strstr(at, "..."))
		return NULL;
	if (strncmp(at, "SOURCE", 6) == 0)
		return "a carton is read at any place, and its end first: save it to a file";
	if (strcmp(at, "DIR") == 0 || strncmp(at, "DIR ", 4) == 0)
		return "cat writes a file to standard output";
	if (strncmp(at, "DIRECTORY", 9) == 0 || strncmp(at, "REPOSITORY", 10) == 0 ||
	    strncmp(at, "MOUNTPOINT", 10) == 0 || strncmp(at, "[MOUNTPOINT", 11) == 0)
		return "nothing is read from standard input";
	return NULL;
}

/* Only what is written can be -: standard output (ctl/destination.h). */
static int check_dashes(const struct ctl_command *command, char **words, int n)
{
	const char *fault;

	for (int i = 0; i < n; i++) {
		fault = strcmp(words[i], "-") == 0 ? dash_fault(command, i) : NULL;
		if (fault)
			return ctl_usage("%s: - is not taken here: %s; a file called so is ./-",
					 command->name, fault);
	}
	return EXIT_GOOD;
}

/* Runs the command in `words`, of which there are `n`. */
static int run_command(int n, char **words, struct args *a)
{
	const struct ctl_command *command;

	if (n == 0)
		return ctl_usage("COMMAND is missing");
	command = ctl_find_command(commands, words[0]);
	if (!command)
		return unknown_command(words[0]);
	if (ctl_check_options(command, a) != EXIT_GOOD ||
	    check_dashes(command, words + 1, n - 1) != EXIT_GOOD)
		return EXIT_USAGE;
	if (a->values.nosandbox)
		a->values.carton.confine = NULL;
	/* those that write do not change the user: see sandbox_enter() */
	if (a->values.carton.confine && !command->writes &&
	    user_default_cache(&a->values.carton.cache_dir) < 0)
		return ctl_failed(command->name, -ENOMEM);
	end_clean(command);
	return command->run ? run_on_source(command, n - 1, words + 1, a) :
			      command->run_words(words + 1, n - 1, a);
}

int main(int argc, char **argv)
{
	struct args a = { .values.carton.confine = sandbox_enter,
			  .values.min_size = LINK_MIN_SIZE };
	int status;

	a.values.carton.confine_ctx = &a.sandbox;
	/* a reader such as head(1) that has enough is no failure; services begin with it ignored */
	signal(SIGPIPE, SIG_DFL);
	umask_keeps_owner();
	signals_begin();
	privacy_no_core_dumps();
	if (descriptors_open_standard() < 0) {
		perror("cartonctl: /dev/null");
		return EXIT_BAD;
	}
	term_open();
	status = ctl_parse(argc, argv, commands, &a);
	if (status == EXIT_GOOD)
		status = ctl_flush(run_command(argc - optind, argv + optind, &a));
	/* what the cache does not have will not be there later */
	if (status == EXIT_LATER && a.values.carton.offline)
		status = EXIT_BAD;
	option_finish(&a.values);
	free(a.source);
	free(a.signature);
	return status;
}
