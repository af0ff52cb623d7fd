/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/ctl.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/numbers.h"
#include "common/progress.h"
#include "common/text.h"
#include "ctl/term.h"

#define HASH_COLUMNS 40 /* at a terminal: with the columns behind it, 80 at most */

/* An object of the list, as JSON. */
static void put_json(struct json_writer *w, const struct carton_cache_object *object)
{
	json_line(w, 0);
	json_begin(w, NULL, '{');
	json_text(w, "sha256", object->sha256);
	json_number(w, "size", object->size);
	json_time(w, "used", object->used);
	json_bool(w, "seal", object->seal);
	json_end(w, '}');
}

struct list {
	struct json_writer *json; /* or NULL */
	uint64_t n, bytes;
};

/* Elsewhere than at a terminal: a line for each, for programs. */
static void put_row(const struct carton_cache_object *object)
{
	char date[32] = "?", size[SIZE_TEXT];
	time_t used = (time_t)object->used;
	struct tm tm;

	if (localtime_r(&used, &tm))
		strftime(date, sizeof(date), "%Y-%m-%d %H:%M", &tm);
	if (!term_is_tty()) {
		printf("%s  %14" PRIu64 "  %s%s\n", object->sha256, object->size, date,
		       object->seal ? "  seal" : "");
		return;
	}
	term_cell(object->sha256, HASH_COLUMNS);
	printf("  %10s  %s%s\n", format_size(object->size, size), date,
	       object->seal ? "  seal" : "");
}

static int print_object(void *ctx, const struct carton_cache_object *object)
{
	struct list *l = ctx;

	if (l->json)
		put_json(l->json, object);
	else
		put_row(object);
	/* a seal is of a file elsewhere */
	l->n += !object->seal;
	l->bytes += object->seal ? 0 : object->size;
	return ferror(stdout) ? -EIO : 0;
}

static void put_line(const char *first, const char *size, const char *rest)
{
	term_style(TERM_TITLE);
	term_cell(first, HASH_COLUMNS);
	printf("  %10s%s", size, rest);
	term_style(TERM_PLAIN);
	putchar('\n');
}

static int list_objects(const struct carton_cache_options *options, bool json)
{
	struct json_writer w = { .f = stdout };
	struct list l = { .json = json ? &w : NULL };
	char count[TERM_COUNT], size[SIZE_TEXT];
	int r;

	if (json)
		json_begin(&w, NULL, '[');
	else if (term_is_tty())
		put_line("SHA256", "SIZE", "  USED");
	r = carton_cache_list(options, print_object, &l);
	if (json)
		json_end_line(&w, ']');
	else if (term_is_tty())
		put_line(term_count(l.n, "object", count), format_size(l.bytes, size), "");
	return r;
}

/* Prints a location for nginx, with which other nodes can use this cache as a mirror. */
static int export(const struct carton_cache_options *options)
{
	char path[4096];
	int r = carton_cache_directory(options, path, sizeof(path));

	if (r == 0)
		printf("# For a server of nginx whose workers run as the owner of the cache (user "
		       "...;).\n"
		       "# Other nodes then mount with -o "
		       "mirror=http://HOST:PORT/carton/{ab}/{sha256}\n"
		       "location ~ \"^/carton/([0-9a-f][0-9a-f])/([0-9a-f]{64})$\" {\n"
		       "    alias \"%s/objects/$1/$2\";\n"
		       "    default_type application/octet-stream;\n"
		       "    limit_except GET { deny all; }\n"
		       "    gzip off;\n"
		       "    etag off;\n"
		       "    disable_symlinks on;\n"
		       "    access_log off;\n"
		       "    log_not_found off;\n"
		       "}\n",
		       path);
	return r;
}

/* 0 or -errno; -EBADMSG: it was reported; -EINVAL: there is no such command. */
static int cache_command(char **words, int n, const struct carton_cache_options *options, bool json)
{
	uint64_t target = options->size ? options->size : UINT64_MAX, freed = 0;
	char path[4096];
	int r;

	if (strcmp(words[0], "list") == 0 && n == 1)
		return list_objects(options, json);
	if (json)
		return -EINVAL;
	if (strcmp(words[0], "gc") == 0 && n <= 2) {
		if (n == 2 && !parse_size(words[1], &target))
			return ctl_usage("cache gc: expected a size such as 500M or 20G: %s",
					 ctl_shown(words[1])),
			       -EBADMSG;
		r = carton_cache_gc(options, target, &freed);
		if (r == 0)
			printf("freed %" PRIu64 " bytes\n", freed);
		return r;
	}
	if (strcmp(words[0], "verify") == 0 && n == 1) {
		ssize_t bad = carton_cache_verify(options, progress_show, "verify");

		progress_clear();
		if (bad >= 0)
			printf("%zd damaged %s removed\n", bad, bad == 1 ? "entry" : "entries");
		return bad > 0 ? -EBADMSG : (int)bad;
	}
	if (strcmp(words[0], "export") == 0 && n == 1)
		return export(options);
	if (strcmp(words[0], "path") == 0 && n == 2) {
		r = carton_cache_path(options, words[1], path, sizeof(path));
		if (r == -EINVAL)
			return ctl_usage("cache path: expected 64 hexadecimal digits: %s",
					 ctl_shown(words[1])),
			       -EBADMSG;
		if (r == 0)
			puts(path);
		return r;
	}
	return -EINVAL;
}

int ctl_cache(char **words, int n, const struct args *a)
{
	const struct carton_cache_options options = { a->values.carton.cache_dir,
						      a->values.carton.cache_size,
						      a->values.carton.confine };
	struct ctl_log log = { .lock = PTHREAD_MUTEX_INITIALIZER };
	int r;

	carton_log_set(ctl_on_log, &log);
	r = n > 0 ? cache_command(words, n, &options, a->values.json) : -EINVAL;
	if (r == -EINVAL) {
		fputs("usage: cartonctl cache list | gc [SIZE] | verify | path SHA256 | export\n",
		      stderr);
		return EXIT_USAGE;
	}
	if (r == -ENOENT && strcmp(words[0], "path") == 0)
		text_line(stderr, "cartonctl: not in the cache: %s", words[1]);
	else if (r < 0 && r != -EBADMSG)
		text_line(stderr, "cartonctl: cache %s: %s", words[0], strerror(-r));
	return ctl_flush(r < 0 ? EXIT_BAD : EXIT_GOOD);
}
