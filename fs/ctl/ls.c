/* SPDX-License-Identifier: Apache-2.0 */
/* `cartonctl ls`: the files of a carton. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/ctl.h"
#include "common/json_writer.h"
#include "common/numbers.h"
#include "common/text.h"
#include "ctl/mounts.h"
#include "ctl/status_json.h"
#include "ctl/term.h"

#define SHORT_HASH 12
/* the columns after the path in the short form, with two spaces before each */
#define OTHER_COLUMNS (2 + 10 + 2 + 12 + 2 + SHORT_HASH)
#define PATH_MAX_COLUMNS 60 /* without a terminal, paths are padded to at most so many */

struct list {
	unsigned path_columns;
	bool shorten; /* shorten paths to that width */
	struct ctl_files all;
	uint64_t files, links, bytes, packed, packed_to, linked;
	struct json_writer json;
};

/* The text of the first column: PATH, or PATH -> TARGET. */
static void shown_path(const struct carton_node *node, char *ret, size_t n)
{
	const char *target = carton_target(node);
	char path[4096];

	carton_path(node, path);
	snprintf(ret, n, "%s%s%s", path, target ? " -> " : "", target ? target : "");
}

static void measure(void *ctx, struct carton_node *node)
{
	struct list *l = ctx;
	char path[8200];
	unsigned width;

	shown_path(node, path, sizeof(path));
	width = term_width(path);
	if (width > l->path_columns)
		l->path_columns = width;
}

/* ---- rows ---- */

static void put_path(const struct list *l, const struct carton_node *node)
{
	char path[8200];
	unsigned width;

	shown_path(node, path, sizeof(path));
	if (carton_target(node))
		term_style(TERM_LINK);
	if (l->shorten) {
		term_cell(path, l->path_columns);
	} else {
		term_put(path);
		width = term_width(path);
		if (width < l->path_columns)
			term_spaces(l->path_columns - width);
	}
	if (carton_target(node))
		term_style(TERM_PLAIN);
}

/* "zstd 44%": the method, and how large the packed bytes are. */
static void format_packed(const struct carton_stat *st, const struct carton_storage *s, char *ret,
			  size_t n)
{
	double percent = st->size ? (double)s->bytes * 100 / (double)st->size : 0;

	/* of a few bytes it says nothing */
	if (!s->contained || st->size == 0 || percent > 999 || s->as_it_is)
		snprintf(ret, n, "%s", s->method);
	else
		snprintf(ret, n, "%-7s %3.0f%%", s->method, percent);
}

static void put_row(void *ctx, struct carton_node *node)
{
	struct list *l = ctx;
	char size[SIZE_TEXT] = "-", packed[32] = "-", hash[128] = "-";
	struct carton_storage storage;
	struct carton_stat st;

	carton_stat(node, &st);
	if (st.kind == CARTON_SYMLINK) {
		strcpy(packed, "symlink");
	} else if (st.size_known) {
		format_size(st.size, size);
		l->bytes += st.size;
	}
	l->files += st.kind == CARTON_FILE;
	l->links += st.kind == CARTON_SYMLINK;
	if (st.kind == CARTON_FILE && carton_storage(node, &storage)) {
		format_packed(&st, &storage, packed, sizeof(packed));
		*(storage.contained ? &l->packed : &l->linked) += st.size;
		l->packed_to += storage.bytes;
	}
	carton_property(node, "user.carton.sha256", hash, sizeof(hash));
	put_path(l, node);
	printf("  %10s  %-12s  ", size, packed);
	term_style(TERM_FAINT);
	printf("%.*s", SHORT_HASH, hash);
	term_style(TERM_PLAIN);
	putchar('\n');
}

static void put_long_row(void *ctx, struct carton_node *node)
{
	struct list *l = ctx;
	char size[24] = "-", stored[24] = "-", hash[128] = "-";
	struct carton_storage storage = { .method = "-" };
	struct carton_stat st;

	carton_stat(node, &st);
	if (st.kind == CARTON_SYMLINK)
		storage.method = "symlink";
	else if (st.size_known)
		snprintf(size, sizeof(size), "%" PRIu64, st.size);
	if (st.kind == CARTON_FILE && carton_storage(node, &storage) && storage.contained)
		snprintf(stored, sizeof(stored), "%" PRIu64, storage.bytes);
	carton_property(node, "user.carton.sha256", hash, sizeof(hash));
	put_path(l, node);
	printf("  %12s  %-8s %12s  %s\n", size, storage.method, stored, hash);
}

static void put_name(void *ctx, struct carton_node *node)
{
	char path[4096];

	(void)ctx;
	carton_path(node, path);
	fwrite(path, 1, strlen(path) + 1, stdout);
}

static void put_json(void *ctx, struct carton_node *node)
{
	struct json_writer *w = &((struct list *)ctx)->json;
	char hash[128], storage[128], path[4096];
	struct carton_stat st;

	carton_stat(node, &st);
	carton_path(node, path);
	json_line(w, 0);
	json_begin(w, NULL, '{');
	json_text(w, "path", path);
	if (st.size_known)
		json_number(w, "size", st.size);
	if (carton_property(node, "user.carton.sha256", hash, sizeof(hash)) > 0)
		json_text(w, "sha256", hash);
	if (carton_property(node, "user.carton.storage", storage, sizeof(storage)) > 0)
		json_text(w, "storage", storage);
	if (carton_target(node))
		json_text(w, "target", carton_target(node));
	json_end(w, '}');
}

/* ---- all ---- */

static void add_node(void *ctx, struct carton_node *node)
{
	ctl_add_file(&((struct list *)ctx)->all, node);
}

/* The largest first; of the same size, in the order of the tree. */
static int by_size(const void *a, const void *b)
{
	struct carton_node *const *x = a, *const *y = b;
	struct carton_stat s, t;

	carton_stat(*x, &s);
	carton_stat(*y, &t);
	s.size = s.kind == CARTON_FILE ? s.size : 0;
	t.size = t.kind == CARTON_FILE ? t.size : 0;
	if (s.size != t.size)
		return s.size < t.size ? 1 : -1;
	return (s.ino > t.ino) - (s.ino < t.ino);
}

/* Lists the files that the paths name, or the whole tree. An exit status. */
static int list_all(struct carton *c, const struct args *a, struct list *l)
{
	struct carton_node *root;
	int r = ctl_root(c, &root), status = EXIT_GOOD;

	if (r < 0)
		return ctl_failed("ls", r);
	if (a->n_paths == 0)
		ctl_walk(root, add_node, l);
	for (int i = 0; i < a->n_paths; i++) {
		struct carton_node *node;
		int one = ctl_resolve(c, a, a->paths[i], &node);

		if (one == EXIT_GOOD)
			ctl_walk(node, add_node, l);
		status = ctl_both(status, one);
	}
	if (l->all.no_memory)
		return ctl_failed("ls", -ENOMEM);
	if (a->values.sort && l->all.n)
		qsort(l->all.list, l->all.n, sizeof(*l->all.list), by_size);
	return status;
}

static void put_all(struct list *l, ctl_node_fn *fn)
{
	for (size_t i = 0; i < l->all.n; i++)
		fn(l, l->all.list[i]);
}

/* Chooses the width of the first column, so that no row is wider than the terminal. */
static void set_columns(const struct args *a, struct list *l)
{
	unsigned most = PATH_MAX_COLUMNS;

	put_all(l, measure);
	l->shorten = term_is_tty() && !a->values.is_long;
	if (l->shorten)
		most = term_columns(0) > OTHER_COLUMNS + 16 ? term_columns(0) - OTHER_COLUMNS : 16;
	if (l->path_columns > most)
		l->path_columns = most;
	if (l->path_columns < 10)
		l->path_columns = 10;
}

static void put_total(const struct list *l)
{
	char count[2 * TERM_COUNT], size[SIZE_TEXT];

	term_style(TERM_TITLE);
	term_cell(ctl_count(l->files, l->links, count), l->path_columns);
	printf("  %10s", format_size(l->bytes, size));
	if (l->packed) {
		double percent = (double)l->packed_to * 100 / (double)l->packed;

		/* of what LINKS names, the carton has nothing */
		if (l->linked)
			printf("  %3.0f%% of %s in it", percent, format_size(l->packed, size));
		else
			printf("  %11.0f%%", percent);
	}
	term_style(TERM_PLAIN);
	putchar('\n');
}

static void put_table(const struct args *a, struct list *l)
{
	bool is_long = a->values.is_long;

	/* no path was found, so there is no row */
	if (!l->all.n)
		return;
	set_columns(a, l);
	term_style(TERM_TITLE);
	term_cell("PATH", l->path_columns);
	if (is_long)
		printf("  %12s  %-8s %12s  %s", "SIZE", "STORAGE", "STORED", "SHA256");
	else
		printf("  %10s  %-12s  %s", "SIZE", "PACKED", "SHA256");
	term_style(TERM_PLAIN);
	putchar('\n');
	put_all(l, is_long ? put_long_row : put_row);
	if (!is_long)
		put_total(l);
}

/* ---- a mount ---- */

/* Logs the files that the status of a mount names as left out, in the words of carton_open(). */
static void say_left_out(const char *json)
{
	const char *at = json_member(json, "left_out");
	uint64_t n = json_number_of(json, "left_out_files"), named = 0;
	char *element;

	for (; (element = json_next_element(&at)); named++) {
		char path[4096], fault[128];

		json_decode(json_in_element(element, "path"), path, sizeof(path));
		json_decode(json_in_element(element, "fault"), fault, sizeof(fault));
		carton_log(CARTON_LOG_NOTICE, path, CARTON_LEFT_OUT, fault);
		free(element);
	}
	if (n > named)
		carton_log(CARTON_LOG_NOTICE, NULL, CARTON_LEFT_OUT_MORE, n - named);
}

void ctl_ls_prepare(const struct args *a)
{
	struct ctl_question q = { .text = NULL };
	struct ctl_mount *list;
	size_t n;

	if (!ctl_is_directory(a->source) || ctl_mounts(a->source, &list, &n) < 0)
		return;
	if (n > 0)
		ctl_mounts_ask(list, 1, CTL_STATUS, &q);
	if (q.text)
		say_left_out(q.text);
	free(q.text);
	ctl_mounts_free(list, n);
}

int ctl_ls(struct carton *c, const struct args *a)
{
	struct list l = { .json.f = stdout };
	int status = list_all(c, a, &l);

	if (a->values.nul) {
		put_all(&l, put_name);
	} else if (!a->values.json) {
		put_table(a, &l);
	} else {
		json_begin(&l.json, NULL, '[');
		put_all(&l, put_json);
		json_end_line(&l.json, ']');
	}
	free(l.all.list);
	return status;
}
