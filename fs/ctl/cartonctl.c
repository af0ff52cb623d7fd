/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cartonctl: reads a carton without mounting it, makes cartons, and maintains the cache.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/ctl.h"
#include "ctl/tensors.h"
#include "common/numbers.h"
#include "common/option_table.h"
#include "common/privacy.h"
#include "common/progress.h"
#include "process/sandbox.h"
#include "ctl/term.h"
#include "common/text.h"
#include "process/user.h"

#define BLOCK ((size_t)1 << 20)

/* Fits 24 lines of 80 columns. */
static const char help[] =
	"usage: cartonctl COMMAND [OPTION...] [ARGUMENT...]\n"
	"SOURCE is a carton: a file, an unpacked directory or an http(s) URL.\n"
	"  info SOURCE             describe the model; --tensors: also what is large\n"
	"  ls SOURCE [PATH...]     list the files; -l, --long: exact; -0: only paths\n"
	"  tree SOURCE [PATH]      draw the directories with their sizes\n"
	"  diff SOURCE SOURCE      compare two cartons: files by hash, and tensors\n"
	"  cat SOURCE PATH...      write files to standard output\n"
	"  hash SOURCE             print the model hash (sha256 of MANIFEST)\n"
	"  verify SOURCE           check everything and list every problem\n"
	"  fetch SOURCE [PATH...]  download all or some files into the cache\n"
	"  extract SOURCE DIR [PATH...]  copy all or some files to a directory\n"
	"  pack DIRECTORY OUT      make a carton; see pack --help: repack, link, embed\n"
	"  status [MOUNTPOINT]     show what mounts do; -w, --watch: again and again\n"
	"  stop MOUNTPOINT         unmount, and say who keeps it busy\n"
	"  refresh MOUNTPOINT URL  fetch from here now: a URL with a new signature\n"
	"  cache list | gc [SIZE] | verify | path SHA256 | export   look after the cache\n"
	"\n"
	"  -j, --json              JSON: info, ls, diff, verify, status, cache list\n"
	"  --cache-dir=DIR  --cache-size=SIZE  --manifest-sha256=H  --offline  --memory=N\n"
	"  --connections=N  --timeout=SECONDS  --max-size=SIZE  --private-links\n"
	"  --cacert=FILE  --header-file=FILE  --mirror=URL  --seals=off  --nosandbox\n"
	"                          as in cartonfs(1)\n"
	"  -h, --help  -V, --version\n"
	"Exit status: 0 success, 1 usage error, failure or problems found\n";

/* ---- commands ---- */

static int run_hash(struct carton *c, const struct args *a)
{
	char hex[65];

	(void)a;
	carton_model_hash(c, hex);
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
	if (r < 0)
		ctl_failed(path, r);
	return r;
}

static int run_cat(struct carton *c, const struct args *a)
{
	char *buf = malloc(BLOCK);
	int status = EXIT_GOOD;

	if (!buf)
		return ctl_failed("cat", -ENOMEM);
	for (int i = 0; i < a->n_paths; i++)
		if (cat_one(c, a->paths[i], buf) < 0)
			status = EXIT_BAD;
	free(buf);
	return status;
}

/* Looks up the files named on the command line; symlinks are followed. */
static int find_files(struct carton *c, const struct args *a, struct carton_node **ret)
{
	int status = EXIT_GOOD;

	for (int i = 0; i < a->n_paths; i++) {
		int r = carton_resolve(c, a->paths[i], &ret[i]);
		struct carton_stat st;

		if (r == 0) {
			carton_stat(ret[i], &st);
			r = st.kind == CARTON_DIR ? -EISDIR : 0;
		}
		if (r < 0)
			status = ctl_failed(a->paths[i], r);
	}
	return status;
}

static int run_fetch(struct carton *c, const struct args *a)
{
	struct carton_node **files = calloc((size_t)a->n_paths + 1, sizeof(*files));
	ssize_t bad = 0;
	int status = files ? find_files(c, a, files) : EXIT_BAD;

	if (status == EXIT_GOOD)
		bad = carton_materialize(c, a->n_paths ? files : NULL, (size_t)a->n_paths,
					 progress_show, "fetch", NULL);
	progress_clear();
	free(files);
	if (bad < 0)
		text_line(stderr, "cartonctl: %s", strerror((int)-bad));
	else if (bad > 0)
		text_line(stderr, "cartonctl: %zd file%s could not be fetched", bad,
			  bad == 1 ? "" : "s");
	return bad ? EXIT_BAD : status;
}

static int run_verify(struct carton *c, const struct args *a)
{
	ssize_t n = carton_verify(c, progress_show, "verify");

	(void)a;
	progress_clear();
	if (n < 0)
		text_line(stderr, "cartonctl: %s", strerror((int)-n));
	return n == 0 ? EXIT_GOOD : EXIT_BAD;
}

static const struct command {
	const char *name;
	ctl_carton_fn *run; /* gets an open carton, and min_paths to max_paths (-1: any) paths */
	ctl_words_fn *run_words; /* or the words after the command */
	int min_paths, max_paths;
	unsigned flags; /* that it has, enum ctl_flag */
} commands[] = {
	{ "info", ctl_info, NULL, 0, 0, CTL_JSON | CTL_TENSORS },
	{ "ls", ctl_ls, NULL, 0, -1, CTL_JSON | CTL_LONG | CTL_NUL },
	{ "tree", ctl_tree, NULL, 0, 1, 0 },
	{ "cat", run_cat, NULL, 1, -1, 0 },
	{ "hash", run_hash, NULL, 0, 0, 0 },
	{ "verify", run_verify, NULL, 0, 0, CTL_JSON },
	{ "fetch", run_fetch, NULL, 0, -1, 0 },
	{ "extract", ctl_extract, NULL, 1, -1, 0 },
	{ "diff", NULL, ctl_diff, 0, 0, CTL_JSON | CTL_TENSORS },
	{ "status", NULL, ctl_status, 0, 0, CTL_JSON | CTL_WATCH },
	{ "stop", NULL, ctl_stop, 0, 0, 0 },
	{ "cache", NULL, ctl_cache, 0, 0, CTL_JSON },
	{ "refresh", NULL, ctl_refresh, 0, 0, 0 },
	{ "pack", NULL, ctl_pack, 0, 0, CTL_PACK_OPTIONS },
	{ "repack", NULL, ctl_repack, 0, 0, CTL_PACK_OPTIONS },
	{ "link", NULL, ctl_link, 0, 0, CTL_PACK_OPTIONS },
	{ "embed", NULL, ctl_embed, 0, 0, CTL_PACK_OPTIONS },
};
#define N_COMMANDS (sizeof(commands) / sizeof(*commands))

/* On one line for programs; a terminal of 80 columns has no room for that. */
static void print_ok(const struct carton_totals *totals, const char *hex)
{
	char count[TERM_COUNT], size[SIZE_TEXT];

	term_style(TERM_GOOD);
	fputs("ok", stdout);
	term_style(TERM_PLAIN);
	if (term_is_tty())
		printf(": %s, %s\nmodel %s\n", term_count(totals->files, "file", count),
		       format_size(totals->bytes, size), hex);
	else
		printf(": %s, %" PRIu64 " bytes, model %s\n",
		       term_count(totals->files, "file", count), totals->bytes, hex);
}

/* Prints the last line of verify, or the end of its JSON object. Returns the exit status. */
static int print_result(const struct carton *c, const struct ctl_log *log, int status)
{
	struct carton_totals totals = { 0 };
	char hex[65] = "";

	if (log->problems)
		status = EXIT_BAD;
	if (c) {
		carton_totals(c, &totals);
		carton_model_hash(c, hex);
	}
	if (log->json)
		printf("],\"ok\":%s,\"files\":%" PRIu64 ",\"bytes\":%" PRIu64
		       ",\"model_hash\":\"%s\"}\n",
		       status ? "false" : "true", totals.files, totals.bytes, hex);
	else if (status)
		printf("%zu problem%s\n", log->problems, log->problems == 1 ? "" : "s");
	else
		print_ok(&totals, hex);
	return status;
}

static int run(const struct command *command, struct args *a)
{
	bool verify = command->run == run_verify;
	struct ctl_log log = { .lock = PTHREAD_MUTEX_INITIALIZER,
			       .collect = verify,
			       .json = verify && (a->flags & CTL_JSON) };
	struct carton *c = NULL;
	char label[256];
	int r, status = EXIT_BAD;

	log.source = carton_source_label(a->source, label, sizeof(label));
	log.opening = true;
	carton_log_set(ctl_on_log, &log);
	a->carton.keep_going = verify;
	a->carton.hash_all = verify;
	if (command->run == run_cat)
		a->carton.views = "views";
	if (command->run == ctl_info)
		a->carton.views = CTL_TENSOR_VIEWS;
	if (command->run == ctl_extract && ctl_extract_prepare(a) < 0)
		return EXIT_BAD;
	if (log.json)
		fputs("{\"problems\":[", stdout);
	r = carton_open(a->source, &a->carton, &c);
	ctl_log_source(&log, log.source, false);
	if (r == 0 && a->carton.confine)
		r = sandbox_opened(carton_fetches(c));
	if (r == 0)
		status = command->run(c, a);
	else if (!log.problems)
		text_line(stderr, "cartonctl: %s: %s", label, strerror(-r));
	if (verify)
		status = print_result(c, &log, status);
	carton_close(c);
	return ctl_flush(status);
}

/* The long options for getopt: carton_option_table by index, with '-' for '_', and a few more. */
#define OPTION_BASE 256
#define OPTIONS_MAX 32

static void build_options(struct option ret[OPTIONS_MAX], char names[OPTIONS_MAX][24])
{
	static const struct option own[] = {
		{ "json", no_argument, NULL, 'j' },
		{ "long", no_argument, NULL, 'l' },
		{ "tensors", no_argument, NULL, 't' },
		{ "watch", no_argument, NULL, 'w' },
		{ "nosandbox", no_argument, NULL, 'n' },
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'V' },
		{ "compress", required_argument, NULL, CTL_COMPRESS },
		{ "align", required_argument, NULL, CTL_ALIGN },
		{ "jobs", required_argument, NULL, CTL_JOBS },
		{ "objects", required_argument, NULL, CTL_OBJECTS },
		{ "url", required_argument, NULL, CTL_URL },
		{ "chunk-index", no_argument, NULL, CTL_CHUNKS },
		{ NULL, 0, NULL, 0 },
	};
	int n = 0;

	for (const struct option_spec *spec = carton_option_table; spec->name; spec++, n++) {
		snprintf(names[n], sizeof(names[n]), "%s", spec->name);
		for (char *p = names[n]; *p; p++)
			if (*p == '_')
				*p = '-';
		ret[n].name = names[n];
		ret[n].has_arg = spec->kind == OPTION_FLAG ? no_argument : required_argument;
		ret[n].flag = NULL;
		ret[n].val = OPTION_BASE + n;
	}
	memcpy(ret + n, own, sizeof(own));
}

/* Says why getopt_long() has refused the option before argv[optind]. */
static int bad_option(char *const *argv, const struct option *options)
{
	const char *word = argv[optind - 1];

	for (; options->name; options++)
		if (optopt == options->val && options->has_arg == required_argument)
			return ctl_usage("option '--%s' requires an argument", options->name);
		else if (optopt == options->val && strncmp(word, "--", 2) == 0)
			return ctl_usage("option '--%s' doesn't allow an argument", options->name);
	if (optopt)
		return ctl_usage("invalid option -- '%c'", optopt);
	/* its value may be a URL with a password */
	return ctl_usage("unrecognized option '%.*s'", (int)strcspn(word, "="), word);
}

static int parse_options(int argc, char **argv, struct args *a)
{
	struct option options[OPTIONS_MAX];
	char names[OPTIONS_MAX][24];
	const struct option_spec *spec;
	int option;

	opterr = 0; /* it would print the option as it is */
	build_options(options, names);
	while ((option = getopt_long(argc, argv, "jl0whV", options, NULL)) >= 0) {
		switch (option) {
		case 'j':
			a->flags |= CTL_JSON;
			break;
		case 'l':
			a->flags |= CTL_LONG;
			break;
		case 't':
			a->flags |= CTL_TENSORS;
			break;
		case 'w':
			a->flags |= CTL_WATCH;
			break;
		case '0':
			a->flags |= CTL_NUL;
			break;
		case 'n':
			a->carton.confine = NULL;
			break;
		case 'h':
			if (argc < 2 || !ctl_pack_help(argv[1]))
				fputs(help, stdout);
			exit(ctl_flush(EXIT_GOOD));
		case 'V':
			printf("cartonctl %s\n", CARTON_VERSION);
			exit(ctl_flush(EXIT_GOOD));
		case CTL_COMPRESS:
		case CTL_ALIGN:
		case CTL_JOBS:
		case CTL_OBJECTS:
		case CTL_CHUNKS:
		case CTL_URL:
			a->flags |= CTL_PACK_OPTIONS;
			if (ctl_pack_option(&a->pack, option, optarg) != EXIT_GOOD)
				return EXIT_USAGE;
			if (option == CTL_URL)
				privacy_hide(optarg);
			break;
		case '?':
			return bad_option(argv, options);
		default:
			spec = &carton_option_table[option - OPTION_BASE];
			if (option_set(spec, &a->carton, optarg) < 0)
				return ctl_usage("--%s=%s: expected %s",
						 names[option - OPTION_BASE], ctl_shown(optarg),
						 spec->expected);
			if (optarg)
				privacy_hide(optarg); /* option_set() has copied it */
		}
	}
	return EXIT_GOOD;
}

static int unknown_command(const char *text)
{
	const char *name = ctl_shown(text);

	for (size_t i = 0; i < N_COMMANDS; i++)
		if (option_similar(name, commands[i].name))
			return ctl_usage("unknown command: %s; did you mean %s?", name,
					 commands[i].name);
	return ctl_usage("unknown command: %s", name);
}

/* Is there an option that the command does not have? */
static int check_flags(const struct command *command, unsigned flags)
{
	static const struct {
		enum ctl_flag flag;
		const char *name;
	} names[] = { { CTL_JSON, "--json" },
		      { CTL_LONG, "--long" },
		      { CTL_NUL, "-0" },
		      { CTL_TENSORS, "--tensors" },
		      { CTL_WATCH, "--watch" },
		      { CTL_PACK_OPTIONS,
			"--compress, --align, --jobs, --url, --objects or --chunk-index" } };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (flags & ~command->flags & names[i].flag)
			return ctl_usage("%s has no option %s", command->name, names[i].name);
	return EXIT_GOOD;
}

/* Runs a command that reads a carton: the first of the words after the command. */
static int run_on_source(const struct command *command, int n, char **words, struct args *a)
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
				 command->run == ctl_extract ? "DIR" : "PATH");
	if (command->max_paths >= 0 && a->n_paths > command->max_paths)
		return ctl_usage("%s: too many arguments: %s", command->name,
				 ctl_shown(a->paths[command->max_paths]));
	return run(command, a);
}

/* Runs the command in `words`, of which there are `n`. */
static int run_command(int n, char **words, struct args *a)
{
	const struct command *command = NULL;

	if (n == 0)
		return ctl_usage("COMMAND is missing");
	for (size_t i = 0; i < N_COMMANDS; i++)
		if (strcmp(words[0], commands[i].name) == 0)
			command = &commands[i];
	if (!command)
		return unknown_command(words[0]);
	if (check_flags(command, a->flags) != EXIT_GOOD)
		return EXIT_USAGE;
	/* the others do not change the user, as they write files: see sandbox_enter() */
	if (a->carton.confine && command->run != ctl_extract &&
	    !(command->flags & CTL_PACK_OPTIONS) && user_default_cache(&a->carton.cache_dir) < 0)
		return ctl_failed(command->name, -ENOMEM);
	return command->run ? run_on_source(command, n - 1, words + 1, a) :
			      command->run_words(words + 1, n - 1, a);
}

int main(int argc, char **argv)
{
	struct args a = { .carton.confine = sandbox_enter };
	int status;

	a.carton.confine_ctx = &a.sandbox;
	privacy_no_core_dumps();
	term_open();
	status = parse_options(argc, argv, &a);
	if (status == EXIT_GOOD)
		status = run_command(argc - optind, argv + optind, &a);
	option_finish(carton_option_table, &a.carton);
	ctl_pack_finish(&a.pack);
	free(a.source);
	return status;
}
