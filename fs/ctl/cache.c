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

struct list {
	bool json;
	size_t n; /* printed so far */
};

static int print_object(void *ctx, const struct carton_cache_object *object)
{
	struct list *list = ctx;
	char date[32] = "?";
	time_t used = (time_t)object->used;
	struct tm tm;

	if (list->json)
		return printf("%s\n{\"sha256\":\"%s\",\"size\":%" PRIu64 ",\"used\":%" PRId64
			      ",\"seal\":%s}",
			      list->n++ ? "," : "", object->sha256, object->size,
			      (int64_t)object->used, object->seal ? "true" : "false") < 0 ?
			       -EIO :
			       0;
	if (localtime_r(&used, &tm))
		strftime(date, sizeof(date), "%Y-%m-%d %H:%M", &tm);
	return printf("%s  %14" PRIu64 "  %s%s\n", object->sha256, object->size, date,
		      object->seal ? "  seal" : "") < 0 ?
		       -EIO :
		       0;
}

static int list_objects(const struct carton_cache_options *options, bool json)
{
	struct list list = { .json = json };
	int r;

	if (json)
		putchar('[');
	r = carton_cache_list(options, print_object, &list);
	if (json)
		puts("\n]");
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
