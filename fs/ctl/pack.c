/* SPDX-License-Identifier: Apache-2.0 */
/* cartonctl pack, repack, link and embed. */
#include "ctl/ctl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/numbers.h"
#include "common/privacy.h"
#include "common/progress.h"
#include "common/text.h"

#define LINES_FROM 1000000000 /* bytes: a smaller carton is packed too quickly for progress lines */

/* Fits 24 lines of 80 columns. */
static const char help[] =
	"usage: cartonctl pack DIRECTORY OUT      make a carton of unpacked files\n"
	"       cartonctl repack SOURCE OUT       store its files in another way\n"
	"       cartonctl link SOURCE OUT --url=URL... [PATH...]\n"
	"                                         leave files out, and name their URLs\n"
	"       cartonctl embed SOURCE OUT        fetch such files and put them in\n"
	"\n"
	"OUT appears when it is complete and verified. The model hash is printed.\n"
	"\n"
	"  --compress=auto         zstd where it saves 5 percent, else Stored (pack)\n"
	"  --compress=store        Stored: same bytes with every version of this program\n"
	"  --compress=zstd[:LEVEL] zstd, level 1 to 19 (3)\n"
	"  --align=BYTES           Stored files begin at a multiple of BYTES (4096)\n"
	"  --jobs=N                threads (one for each processor)\n"
	"  --chunk-index           hash the parts of large files too, so that each can be\n"
	"                          verified alone; not embed; changes the model hash\n"
	"  --url=URL               link: has {sha256} in place of the hash of a file\n"
	"  --objects=DIRECTORY     link: write the files there, under their hashes\n"
	"\n"
	"Other options as for all commands (cartonctl --help). See cartonctl-pack(1).\n";

/* ---- options ---- */

static bool parse_compress(const char *value, struct carton_pack_options *o)
{
	unsigned long level = 0;
	const char *colon = strchr(value, ':');

	if (strcmp(value, "auto") == 0)
		o->compress = CARTON_COMPRESS_AUTO;
	else if (strcmp(value, "store") == 0)
		o->compress = CARTON_COMPRESS_STORE;
	else if (strcmp(value, "zstd") == 0 || strncmp(value, "zstd:", 5) == 0)
		o->compress = CARTON_COMPRESS_ZSTD;
	else
		return false;
	if (colon && (!parse_number(colon + 1, 10, 19, &level) || level == 0))
		return false;
	o->level = (unsigned)level;
	return true;
}

static bool parse_unsigned(const char *value, unsigned long max, unsigned *ret)
{
	unsigned long n;

	if (!parse_number(value, 10, max, &n) || n == 0)
		return false;
	*ret = (unsigned)n;
	return true;
}

/* Checks the options and sets what they say. An exit status. */
static int parse(const struct pack_args *p, const char *command, struct carton_pack_options *o)
{
	if (p->compress && !parse_compress(p->compress, o))
		return ctl_usage("--compress=%s: expected auto, store, zstd or zstd:LEVEL from 1 "
				 "to 19",
				 ctl_shown(p->compress));
	if (p->align && (!parse_unsigned(p->align, 32768, &o->align) || o->align & (o->align - 1)))
		return ctl_usage("--align=%s: expected a power of two from 1 to 32768",
				 ctl_shown(p->align));
	if (p->jobs && !parse_unsigned(p->jobs, 1024, &o->jobs))
		return ctl_usage("--jobs=%s: expected a number from 1 to 1024", ctl_shown(p->jobs));
	if (strcmp(command, "link") == 0 ? p->n_urls == 0 : p->n_urls || p->objects)
		return ctl_usage(p->n_urls || p->objects ?
					 "%s: --url and --objects are for link" :
					 "%s: --url='https://HOST/{sha256}' is missing",
				 command);
	return EXIT_GOOD;
}

int ctl_pack_option(struct pack_args *p, int option, const char *value)
{
	switch (option) {
	case CTL_COMPRESS:
		p->compress = value;
		break;
	case CTL_ALIGN:
		p->align = value;
		break;
	case CTL_JOBS:
		p->jobs = value;
		break;
	case CTL_CHUNKS:
		p->chunk_index = true;
		break;
	case CTL_OBJECTS:
		p->objects = value;
		break;
	default:
		if (p->n_urls == sizeof(p->urls) / sizeof(p->urls[0]) - 1)
			return ctl_usage("more than %zu --url", p->n_urls);
		p->urls[p->n_urls] = strdup(value);
		if (!p->urls[p->n_urls])
			return ctl_failed("--url", -ENOMEM);
		p->n_urls++;
	}
	return EXIT_GOOD;
}

void ctl_pack_finish(struct pack_args *p)
{
	while (p->n_urls > 0)
		free(p->urls[--p->n_urls]);
}

/* ---- progress ---- */

struct lines {
	const char *label;
	unsigned tenth; /* shown last */
};

/* Draws a bar at a terminal. Elsewhere prints a line at each tenth, if the carton is large. */
static void show(void *ctx, uint64_t done, uint64_t total)
{
	struct lines *lines = ctx;
	char size[SIZE_TEXT];
	unsigned tenth = total ? (unsigned)(10 * ((double)done / (double)total)) : 0;

	if (isatty(STDERR_FILENO)) {
		progress_show((void *)lines->label, done, total);
	} else if (total >= LINES_FROM && tenth > lines->tenth && done < total) {
		text_line(stderr, "cartonctl: %s: %u%% of %s", lines->label, 10 * tenth,
			  format_size(total, size));
		lines->tenth = tenth;
	}
}

/* ---- commands ---- */

bool ctl_pack_help(const char *command)
{
	static const char *const commands[] = { "pack", "repack", "link", "embed" };

	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		if (strcmp(command, commands[i]) == 0)
			return fputs(help, stdout), true;
	return false;
}

static int run(const struct args *a, const char *source, const char *out,
	       const struct carton_pack_options *o)
{
	struct ctl_log log = { .lock = PTHREAD_MUTEX_INITIALIZER };
	char hash[65], label[256];
	int r;

	carton_log_set(ctl_on_log, &log);
	r = carton_pack(source, out, &a->carton, o, hash);
	progress_clear();
	if (r == 0)
		puts(hash);
	else if (!log.problems)
		ctl_failed(carton_source_label(source, label, sizeof(label)), r);
	if (r < 0)
		text_line(stderr, "cartonctl: %s was not made", out);
	return ctl_flush(r < 0 ? EXIT_BAD : EXIT_GOOD);
}

/* The command called `name`: source, output, and for link paths. */
static int make(enum carton_pack_mode mode, const char *name, char **words, int n,
		const struct args *a)
{
	struct lines lines = { name, 0 };
	struct carton_pack_options o = {
		.mode = mode,
		.urls = mode == CARTON_LINK ? (const char *const *)a->pack.urls : NULL,
		.paths = n > 2 ? (const char *const *)words + 2 : NULL,
		.objects = a->pack.objects,
		.chunk_index = a->pack.chunk_index,
		.progress = show,
		.progress_ctx = &lines,
	};
	char *source;
	int r;

	if (n < 2)
		return ctl_usage("%s: %s is missing", name,
				 n		     ? "OUT" :
				 mode == CARTON_PACK ? "DIRECTORY" :
						       "SOURCE");
	if (n > 2 && mode != CARTON_LINK)
		return ctl_usage("%s: too many arguments: %s", name, ctl_shown(words[2]));
	r = parse(&a->pack, name, &o);
	if (r != EXIT_GOOD)
		return r;
	source = strdup(words[0]);
	if (!source)
		return ctl_failed(name, -ENOMEM);
	privacy_hide(words[0]);
	r = run(a, source, words[1], &o);
	free(source);
	return r;
}

int ctl_pack(char **words, int n, const struct args *a)
{
	return make(CARTON_PACK, "pack", words, n, a);
}

int ctl_repack(char **words, int n, const struct args *a)
{
	return make(CARTON_REPACK, "repack", words, n, a);
}

int ctl_link(char **words, int n, const struct args *a)
{
	return make(CARTON_LINK, "link", words, n, a);
}

int ctl_embed(char **words, int n, const struct args *a)
{
	return make(CARTON_EMBED, "embed", words, n, a);
}
