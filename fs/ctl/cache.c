/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/ctl.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/numbers.h"
#include "common/progress.h"
#include "common/text.h"
#include "ctl/term.h"

/* at a terminal: as much of a sha256 as `ls` shows, and the columns before the name */
#define SHORT_HASH 12
#define DATE_COLUMNS 16
#define KIND_COLUMNS 4
#define OTHER_COLUMNS (SHORT_HASH + 2 + 10 + 2 + DATE_COLUMNS + 2 + KIND_COLUMNS + 2)
/* and in a narrow one: as much as `cache path` needs */
#define NARROW_COLUMNS (CARTON_CACHE_DIGITS + 2 + 10 + 2)

/* An object of the list, as JSON. */
static void put_json_object(struct json_writer *w, const struct carton_cache_object *object)
{
	json_line(w, 0);
	json_begin(w, NULL, '{');
	json_text(w, "sha256", object->sha256);
	json_number(w, "size", object->size);
	json_time(w, "used", object->used);
	json_bool(w, "seal", object->seal);
	json_text(w, "path", object->path);
	json_text(w, "source", object->source);
	json_bool(w, "partial", object->partial);
	json_end(w, '}');
}

/* Is there room for the columns USED and KIND? */
static bool is_wide(void)
{
	return term_columns(80) >= OTHER_COLUMNS + 16;
}

/* The columns before the name. */
static void put_cells(const char *sha256, const char *size, const char *used, const char *kind)
{
	int digits = is_wide() ? SHORT_HASH : CARTON_CACHE_DIGITS;

	printf("%-*.*s  %10s  ", digits, digits, sha256, size);
	if (is_wide())
		printf("%-*s  %-*s  ", DATE_COLUMNS, used, KIND_COLUMNS, kind);
}

static unsigned name_columns(void)
{
	return term_columns(80) - (is_wide() ? OTHER_COLUMNS : NARROW_COLUMNS);
}

/*
 * "SOURCE: PATH" in that many columns. Where it is too long, only the last part of the source is
 * shown, and either has half of the room, or what the other one leaves.
 */
static void put_name(const struct carton_cache_object *object, unsigned columns)
{
	const char *source = object->source, *path = object->path, *last;
	unsigned whole, part, room;

	if (!source || !path)
		return;
	last = ctl_last_part(source);
	if (!*path) {
		term_short(term_width(source) > columns ? last : source, columns);
		return;
	}
	room = columns - 2;
	whole = term_width(path);
	if (term_width(source) + whole <= room)
		last = source;
	part = term_width(last);
	if (part + whole > room && part > room / 2)
		part = whole < room / 2 ? room - whole : room / 2;
	term_short(last, part);
	fputs(": ", stdout);
	term_short(path, room - part);
}

/* NULL: a file that is there as a whole. */
static const char *kind_of(const struct carton_cache_object *object)
{
	return object->seal ? "seal" : object->partial ? "part" : NULL;
}

/* At a terminal: a row of the table. */
static void put_row(const struct carton_cache_object *object, const char *date)
{
	const char *kind = kind_of(object);
	char size[SIZE_TEXT];

	put_cells(object->sha256, format_size(object->size, size), date, kind ? kind : "file");
	put_name(object, name_columns());
}

/* Elsewhere: a line for each, for programs. */
static void put_plain(const struct carton_cache_object *object, const char *date)
{
	const char *kind = kind_of(object);

	printf("%s  %14" PRIu64 "  %s%s%s", object->sha256, object->size, date, kind ? "  " : "",
	       kind ? kind : "");
	if (object->path && object->source) {
		term_spaces(2);
		term_put(object->source);
		fputs(*object->path ? ": " : "", stdout);
		term_put(object->path);
	}
}

static void put_object(const struct carton_cache_object *object)
{
	time_t used = (time_t)object->used;
	char date[32] = "?";
	struct tm tm;

	if (localtime_r(&used, &tm))
		strftime(date, sizeof(date), "%Y-%m-%d %H:%M", &tm);
	(term_is_tty() ? put_row : put_plain)(object, date);
	putchar('\n');
}

/* ---- list ---- */

struct list {
	struct carton_cache_object *objects;
	size_t n, room;
};

static int add_object(void *ctx, const struct carton_cache_object *object)
{
	struct list *l = ctx;

	if (l->n == l->room) {
		size_t room = l->room ? 2 * l->room : 64;
		struct carton_cache_object *more = reallocarray(l->objects, room, sizeof(*more));

		if (!more)
			return -ENOMEM;
		l->objects = more;
		l->room = room;
	}
	l->objects[l->n] = *object;
	l->objects[l->n].path = object->path ? strdup(object->path) : NULL;
	l->objects[l->n++].source = object->source ? strdup(object->source) : NULL;
	return 0;
}

static void free_list(struct list *l)
{
	for (size_t i = 0; i < l->n; i++) {
		free((char *)l->objects[i].path);
		free((char *)l->objects[i].source);
	}
	free(l->objects);
}

/* The last used first, as what gc removes is at the end. */
static int compare(const void *a, const void *b)
{
	const struct carton_cache_object *x = a, *y = b;

	if (x->used != y->used)
		return x->used < y->used ? 1 : -1;
	return strcmp(x->sha256, y->sha256);
}

static void put_total(uint64_t files, uint64_t seals, uint64_t parts, uint64_t bytes)
{
	char count[TERM_COUNT], size[SIZE_TEXT];

	term_style(TERM_TITLE);
	printf("%-*s  %10s  %s", is_wide() ? SHORT_HASH : CARTON_CACHE_DIGITS, "total",
	       format_size(bytes, size), term_count(files, "file", count));
	if (seals > 0)
		printf(", %s", term_count(seals, "seal", count));
	if (parts > 0)
		printf(", %s of a file", term_count(parts, "part", count));
	term_style(TERM_PLAIN);
	putchar('\n');
	if (seals > 0) {
		term_wrap("A seal has the check values of a file that was verified: the next "
			  "mount need not hash it.",
			  0, term_columns(80));
		putchar('\n');
	}
}

static void put_table(const struct list *l)
{
	uint64_t seals = 0, parts = 0, bytes = 0;

	if (term_is_tty()) {
		term_style(TERM_TITLE);
		put_cells("SHA256", "SIZE", "USED", "KIND");
		fputs("NAME", stdout);
		term_style(TERM_PLAIN);
		putchar('\n');
	}
	for (size_t i = 0; i < l->n; i++) {
		put_object(&l->objects[i]);
		seals += l->objects[i].seal;
		parts += l->objects[i].partial;
		bytes += l->objects[i].size;
	}
	if (term_is_tty())
		put_total(l->n - seals - parts, seals, parts, bytes);
}

static void put_json(const struct list *l)
{
	struct json_writer w = { .f = stdout };

	json_begin(&w, NULL, '[');
	for (size_t i = 0; i < l->n; i++)
		put_json_object(&w, &l->objects[i]);
	json_end_line(&w, ']');
}

static int list_objects(const struct carton_cache_options *options, bool json)
{
	struct list l = { NULL };
	int r = carton_cache_list(options, add_object, &l);

	if (r == 0) {
		if (l.n)
			qsort(l.objects, l.n, sizeof(*l.objects), compare);
		(json ? put_json : put_table)(&l);
	}
	free_list(&l);
	return r;
}

/* ---- the others ---- */

/* Prints a location for nginx, with which other nodes can use this cache as a mirror. */
static int run_export(const char *word, const struct carton_cache_options *options, bool json)
{
	char path[4096];
	int r = carton_cache_directory(options, path, sizeof(path));

	(void)word, (void)json;
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

static int run_list(const char *word, const struct carton_cache_options *options, bool json)
{
	(void)word;
	return list_objects(options, json);
}

static int run_gc(const char *word, const struct carton_cache_options *options, bool json)
{
	uint64_t target = options->size ? options->size : UINT64_MAX, freed = 0;
	char size[SIZE_TEXT];
	int r;

	(void)json;
	if (word && !parse_size(word, &target))
		return ctl_usage("cache gc: expected a size such as 500M or 20G: %s",
				 ctl_shown(word)),
		       -EBADMSG;
	r = carton_cache_gc(options, target, &freed);
	if (r == 0)
		printf("freed %s\n", format_size(freed, size));
	return r;
}

static int run_verify(const char *word, const struct carton_cache_options *options, bool json)
{
	ssize_t bad = carton_cache_verify(options, progress_show, "verify");

	(void)word, (void)json;
	progress_clear();
	if (bad >= 0)
		printf("%zd damaged %s removed\n", bad, bad == 1 ? "entry" : "entries");
	return bad > 0 ? -EBADMSG : (int)bad;
}

static int run_path(const char *word, const struct carton_cache_options *options, bool json)
{
	char path[4096];
	int r = carton_cache_path(options, word, path, sizeof(path));

	(void)json;
	if (r == -EINVAL)
		return ctl_usage("cache path: expected 8 to 64 hexadecimal digits: %s",
				 ctl_shown(word)),
		       -EBADMSG;
	if (r == 0)
		puts(path);
	return r;
}

/* What can be done with the cache. 0 or -errno; -EBADMSG: it was reported. */
static const struct action {
	const char *name;
	const char *word; /* that may follow; NULL: none */
	bool needs_word, json;
	int (*run)(const char *word, const struct carton_cache_options *options, bool json);
} actions[] = {
	{ "list", NULL, false, true, run_list },      { "gc", "SIZE", false, false, run_gc },
	{ "verify", NULL, false, false, run_verify }, { "path", "SHA256", true, false, run_path },
	{ "export", NULL, false, false, run_export }, { .name = NULL },
};

#define ACTIONS "list, gc, verify, path or export"

/* The action that `words` ask for, or NULL: reported. */
static const struct action *find_action(char **words, int n, bool json)
{
	const struct action *a = actions;

	if (n == 0)
		return ctl_usage("cache: " ACTIONS " is missing"), NULL;
	while (a->name && strcmp(a->name, words[0]) != 0)
		a++;
	if (!a->name)
		return ctl_usage("cache: expected " ACTIONS ": %s", ctl_shown(words[0])), NULL;
	if (a->needs_word && n < 2)
		return ctl_usage("cache %s: %s is missing", a->name, a->word), NULL;
	if (n > 1 + (a->word != NULL))
		return ctl_usage("cache %s: too many arguments: %s", a->name,
				 ctl_shown(words[1 + (a->word != NULL)])),
		       NULL;
	if (json && !a->json)
		return ctl_usage("cache %s has no option --json", a->name), NULL;
	return a;
}

int ctl_cache(char **words, int n, const struct args *a)
{
	const struct carton_cache_options options = { a->values.carton.cache_dir,
						      a->values.carton.cache_size,
						      a->values.carton.confine };
	const struct action *action = find_action(words, n, a->values.json);
	struct ctl_log log = { .lock = PTHREAD_MUTEX_INITIALIZER };
	int r;

	if (!action)
		return EXIT_USAGE;
	carton_log_set(ctl_on_log, &log);
	r = action->run(n > 1 ? words[1] : NULL, &options, a->values.json);
	/* most failures were logged */
	if (r < 0 && r != -EBADMSG && !log.problems)
		text_line(stderr, "cartonctl: cache %s: %s", action->name, strerror(-r));
	return ctl_flush(r < 0 ? EXIT_BAD : EXIT_GOOD);
}
