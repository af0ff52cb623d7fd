/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cartonctl: looks at a carton without mounting it.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl.h"
#include "numbers.h"
#include "progress.h"

#define BLOCK ((size_t)1 << 20)

/* options that have no letter */
enum {
	OPT_CACHE_DIR = 256,
	OPT_CACHE_SIZE,
	OPT_MANIFEST,
	OPT_OFFLINE,
	OPT_CONNECTIONS,
	OPT_TIMEOUT,
	OPT_PRIVATE_LINKS,
	OPT_CACERT,
	OPT_HEADER_FILE,
};

/* Within 24 lines of 80 columns. */
static const char help[] =
	"usage: cartonctl COMMAND [OPTION...] SOURCE [PATH...]\n"
	"\n"
	"Looks at the carton SOURCE, a file, a directory or an http(s) URL, unmounted.\n"
	"\n"
	"  info SOURCE           what the model is, takes, gives and needs\n"
	"  ls SOURCE             every file: size, storage, sha256, path\n"
	"  cat SOURCE PATH...    the bytes of files, once they are verified\n"
	"  hash SOURCE           the model hash (sha256 of MANIFEST)\n"
	"  verify SOURCE         check everything, list every problem\n"
	"  fetch SOURCE [PATH..] fetch files, or all, into the cache; can be continued\n"
	"  cache list            what the cache holds: sha256, bytes, last use\n"
	"  cache gc [SIZE]       keep at most SIZE (0: nothing) of it, the last used\n"
	"  cache verify          check what it holds, drop what is damaged\n"
	"  cache path SHA256     the file of one object\n"
	"\n"
	"  -j, --json            info, ls, verify, cache list: for scripts\n"
	"  --cache-dir=DIR  --cache-size=SIZE  --manifest-sha256=H  --offline\n"
	"  --connections=N  --timeout=S  --private-links  --cacert=FILE\n"
	"  --header-file=FILE    these as the mount options of cartonfs(1)\n"
	"  -h, --help  -V, --version\n"
	"\n"
	"exit status: 0 good, 1 it failed or there are problems, 2 usage\n"
	"See also cartonfs(1), which mounts it.\n";

/* ---- commands ---- */

static int run_info(struct carton *c, const struct args *a)
{
	char *text;
	int r = carton_info(c, a->json, &text);

	if (r < 0) {
		fprintf(stderr, "cartonctl: %s\n", strerror(-r));
		return EXIT_BAD;
	}
	fputs(text, stdout);
	free(text);
	return EXIT_GOOD;
}

static int run_hash(struct carton *c, const struct args *a)
{
	char hex[65];

	(void)a;
	carton_model_hash(c, hex);
	puts(hex);
	return EXIT_GOOD;
}

/* One property of a file, or "-". */
static const char *property(const struct carton_node *node, const char *name, char *buf, size_t n)
{
	return carton_property(node, name, buf, n) < 0 ? "-" : buf;
}

static void print_node(const struct carton_node *node, const char *path, bool json, bool first)
{
	char hash[128], storage[128], size[32];
	struct carton_stat st;
	const char *target = carton_target(node);

	carton_stat(node, &st);
	property(node, "user.carton.sha256", hash, sizeof(hash));
	if (json) {
		printf("%s\n{\"path\":", first ? "" : ",");
		ctl_print_json(path);
		if (st.size_known)
			printf(",\"size\":%" PRIu64, st.size);
		if (carton_property(node, "user.carton.sha256", hash, sizeof(hash)) > 0)
			printf(",\"sha256\":\"%s\"", hash);
		if (carton_property(node, "user.carton.storage", storage, sizeof(storage)) > 0)
			printf(",\"storage\":\"%s\"", storage);
		if (target) {
			fputs(",\"target\":", stdout);
			ctl_print_json(target);
		}
		putchar('}');
		return;
	}
	snprintf(size, sizeof(size), st.size_known ? "%" PRIu64 : "-", st.size);
	printf("%12s  %-20s  %-64s  %s%s%s\n", size,
	       target ? "symlink" : property(node, "user.carton.storage", storage, sizeof(storage)),
	       property(node, "user.carton.sha256", hash, sizeof(hash)), path, target ? " -> " : "",
	       target ? target : "");
}

static int run_ls(struct carton *c, const struct args *a)
{
	struct carton_node *node = carton_root(c);
	char path[4096];
	bool first = true;

	if (a->json)
		putchar('[');
	for (; node; node = carton_next(c, node)) {
		struct carton_stat st;

		carton_stat(node, &st);
		if (st.kind == CARTON_DIR)
			continue;
		carton_path(node, path);
		print_node(node, path, a->json, first);
		first = false;
	}
	if (a->json)
		puts("\n]");
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
		fprintf(stderr, "cartonctl: %s: %s\n", path, strerror(r == -EBADMSG ? EIO : -r));
	return r;
}

static int run_cat(struct carton *c, const struct args *a)
{
	char *buf = malloc(BLOCK);
	int status = EXIT_GOOD;

	if (!buf)
		return EXIT_BAD;
	for (int i = 0; i < a->n_paths; i++)
		if (cat_one(c, a->paths[i], buf) < 0)
			status = EXIT_BAD;
	free(buf);
	return status;
}

/* The files at the paths given, following symlinks. */
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
		if (r < 0) {
			fprintf(stderr, "cartonctl: %s: %s\n", a->paths[i], strerror(-r));
			status = EXIT_BAD;
		}
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
					 progress_show, "fetch");
	progress_clear();
	free(files);
	if (bad < 0)
		fprintf(stderr, "cartonctl: %s\n", strerror((int)-bad));
	else if (bad > 0)
		fprintf(stderr, "cartonctl: %zd files could not be fetched\n", bad);
	return bad ? EXIT_BAD : status;
}

static int run_verify(struct carton *c, const struct args *a)
{
	ssize_t n = carton_verify(c, progress_show, "verify");

	(void)a;
	progress_clear();
	if (n < 0)
		fprintf(stderr, "cartonctl: %s\n", strerror((int)-n));
	return n == 0 ? EXIT_GOOD : EXIT_BAD;
}

static const struct command {
	const char *name;
	int (*run)(struct carton *c, const struct args *a);
	int min_paths, max_paths;
	bool json;
} commands[] = {
	{ "info", run_info, 0, 0, true },     { "ls", run_ls, 0, 0, true },
	{ "cat", run_cat, 1, -1, false },     { "hash", run_hash, 0, 0, false },
	{ "verify", run_verify, 0, 0, true }, { "fetch", run_fetch, 0, -1, false },
};

/* The end of what verify prints: a line for people, the rest of the object for scripts. */
static int verdict(const struct carton *c, const struct ctl_log *log, int status)
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
		printf("ok: %" PRIu64 " files, %" PRIu64 " bytes, model %s\n", totals.files,
		       totals.bytes, hex);
	return status;
}

static int run(const struct command *command, struct args *a)
{
	bool verify = command->run == run_verify;
	struct ctl_log log = { PTHREAD_MUTEX_INITIALIZER, 0, verify, verify && a->json };
	struct carton *c = NULL;
	char label[256];
	int r, status = EXIT_BAD;

	carton_log_set(ctl_on_log, &log);
	a->carton.keep_going = verify;
	if (command->run == run_cat)
		a->carton.views = "views";
	if (log.json)
		fputs("{\"problems\":[", stdout);
	r = carton_open(a->source, &a->carton, &c);
	if (r == 0)
		status = command->run(c, a);
	else if (!log.problems)
		fprintf(stderr, "cartonctl: %s: %s\n",
			carton_source_label(a->source, label, sizeof(label)), strerror(-r));
	if (verify)
		status = verdict(c, &log, status);
	carton_close(c);
	return ctl_finish(status);
}

static int parse_long(int option, struct args *a)
{
	struct carton_options *o = &a->carton;

	switch (option) {
	case OPT_CACHE_DIR:
		o->cache_dir = optarg;
		return *optarg ? EXIT_GOOD : ctl_usage("--cache-dir is empty", NULL);
	case OPT_CACHE_SIZE:
		return parse_size(optarg, &o->cache_size) && o->cache_size ?
			       EXIT_GOOD :
			       ctl_usage("not a size like 500M or 20G:", optarg);
	case OPT_MANIFEST:
		o->manifest_sha256 = optarg;
		return EXIT_GOOD;
	case OPT_OFFLINE:
		o->offline = true;
		return EXIT_GOOD;
	case OPT_CONNECTIONS:
		return parse_count(optarg, 32, &o->connections) ?
			       EXIT_GOOD :
			       ctl_usage("not a number from 1 to 32:", optarg);
	case OPT_TIMEOUT:
		return parse_count(optarg, 86400, &o->timeout_s) ?
			       EXIT_GOOD :
			       ctl_usage("not a number of seconds:", optarg);
	case OPT_PRIVATE_LINKS:
		o->private_links = true;
		return EXIT_GOOD;
	case OPT_CACERT:
		o->cacert = optarg;
		return EXIT_GOOD;
	case OPT_HEADER_FILE:
		o->header_file = optarg;
		return EXIT_GOOD;
	default:
		return ctl_usage("there is no such option", NULL);
	}
}

static int parse_options(int argc, char **argv, struct args *a)
{
	static const struct option options[] = {
		{ "json", no_argument, NULL, 'j' },
		{ "cache-dir", required_argument, NULL, OPT_CACHE_DIR },
		{ "cache-size", required_argument, NULL, OPT_CACHE_SIZE },
		{ "manifest-sha256", required_argument, NULL, OPT_MANIFEST },
		{ "offline", no_argument, NULL, OPT_OFFLINE },
		{ "connections", required_argument, NULL, OPT_CONNECTIONS },
		{ "timeout", required_argument, NULL, OPT_TIMEOUT },
		{ "private-links", no_argument, NULL, OPT_PRIVATE_LINKS },
		{ "cacert", required_argument, NULL, OPT_CACERT },
		{ "header-file", required_argument, NULL, OPT_HEADER_FILE },
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'V' },
		{ NULL, 0, NULL, 0 },
	};
	int option, status;

	while ((option = getopt_long(argc, argv, "jhV", options, NULL)) >= 0) {
		switch (option) {
		case 'j':
			a->json = true;
			break;
		case 'h':
			fputs(help, stdout);
			exit(ctl_finish(EXIT_GOOD));
		case 'V':
			printf("cartonctl %s\n", CARTON_VERSION);
			exit(ctl_finish(EXIT_GOOD));
		default:
			status = parse_long(option, a);
			if (status)
				return status;
		}
	}
	return EXIT_GOOD;
}

int main(int argc, char **argv)
{
	const struct command *command = NULL;
	struct args a = { 0 };
	int status = parse_options(argc, argv, &a), n = argc - optind;

	if (status)
		return status;
	if (n == 0)
		return ctl_usage("a command is missing", NULL);
	if (strcmp(argv[optind], "cache") == 0)
		return ctl_cache(argv + optind + 1, n - 1, &a);
	for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++)
		if (strcmp(argv[optind], commands[i].name) == 0)
			command = &commands[i];
	if (!command)
		return ctl_usage("there is no command", argv[optind]);
	if (n == 1)
		return ctl_usage("SOURCE is missing for", command->name);
	a.source = argv[optind + 1];
	a.paths = argv + optind + 2;
	a.n_paths = n - 2;
	if (a.n_paths < command->min_paths)
		return ctl_usage("PATH is missing for", command->name);
	if (command->max_paths >= 0 && a.n_paths > command->max_paths)
		return ctl_usage("too many arguments for", command->name);
	if (a.json && !command->json)
		return ctl_usage("--json is not for", command->name);
	return run(command, &a);
}
