/* SPDX-License-Identifier: Apache-2.0 */
/* `cartonctl tree`: the directories of a carton, with the share that each has of the bytes. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/ctl.h"
#include "common/numbers.h"
#include "ctl/term.h"

#define BAR 20
/* the columns after the name: size, bar, percentage, with two spaces before each */
#define OTHER_COLUMNS (2 + 10 + 2 + BAR + 1 + 4)
#define NAME_MAX_COLUMNS 60

/* The sums of a directory and all below it. */
struct totals {
	uint64_t bytes, files, links;
	size_t dirs; /* with itself */
};

struct drawing {
	struct totals *totals; /* of directories, in the order of the walk */
	size_t n, cap;
	unsigned depth, top; /* the options; 0: no limit */
	unsigned name_columns;
	bool failed;	   /* no memory */
	char prefix[8300]; /* of the rows that are drawn; a level takes up to 8 bytes */
	size_t prefix_len, prefix_columns;
	char name[8300]; /* of the current node: not on the stack, since paths may be deep */
};

static size_t new_totals(struct drawing *d)
{
	struct totals *grown = ctl_grow(d->totals, &d->cap, d->n, sizeof(*grown));

	d->failed |= !grown;
	if (!grown)
		return 0;
	d->totals = grown;
	d->totals[d->n] = (struct totals){ 0 };
	return d->n++;
}

static void grow(unsigned *columns, unsigned width)
{
	if (width > *columns)
		*columns = width;
}

/* Sets d->name to the text that is shown as the name of a node. */
static void set_name(struct drawing *d, const struct carton_node *node, enum carton_kind kind)
{
	const char *target = carton_target(node);

	snprintf(d->name, sizeof(d->name), "%s%s%s%s", carton_name(node),
		 kind == CARTON_DIR ? "/" : "", target ? " -> " : "", target ? target : "");
}

/* Sums up all below a node, and finds the widest name. */
static struct totals measure(struct drawing *d, const struct carton_node *node, unsigned depth)
{
	struct totals sum = { .dirs = 1 };
	struct carton_node *child;
	struct carton_stat st;
	size_t at;

	carton_stat(node, &st);
	set_name(d, node, st.kind);
	grow(&d->name_columns, term_width(d->name) + 4 * depth);
	if (st.kind != CARTON_DIR)
		return st.kind == CARTON_FILE ? (struct totals){ st.size, 1, 0, 0 } :
						(struct totals){ 0, 0, 1, 0 };
	at = new_totals(d);
	for (size_t i = 0; !d->failed && (child = carton_child(node, i)); i++) {
		struct totals t = measure(d, child, depth + 1);

		sum.bytes += t.bytes;
		sum.files += t.files;
		sum.links += t.links;
		sum.dirs += t.dirs;
	}
	if (!d->failed)
		d->totals[at] = sum;
	return sum;
}

/* ---- rows ---- */

static void put_percent(uint64_t part, uint64_t whole)
{
	double percent = whole ? (double)part * 100 / (double)whole : 0;

	if (part > 0 && percent < 0.5)
		printf("  <1%%");
	else
		printf(" %3.0f%%", percent);
}

static void put_row(struct drawing *d, enum carton_kind kind, uint64_t bytes)
{
	char size[SIZE_TEXT];
	uint64_t whole = d->totals[0].bytes;
	unsigned left = d->name_columns, used = (unsigned)d->prefix_columns;

	term_style(TERM_FAINT);
	fputs(d->prefix, stdout);
	term_style(kind == CARTON_DIR ? TERM_DIR : kind == CARTON_SYMLINK ? TERM_LINK : TERM_PLAIN);
	left = left > used + 8 ? left - used : 8;
	term_cell(d->name, left);
	term_style(TERM_PLAIN);
	if (kind != CARTON_SYMLINK) {
		printf("  %10s  ", format_size(bytes, size));
		term_bar(bytes, whole, BAR);
		put_percent(bytes, whole);
	}
	putchar('\n');
}

/* A child of a directory that is drawn. */
struct row {
	struct carton_node *node;
	enum carton_kind kind;
	uint64_t bytes;
	size_t at; /* of a directory: its place in d->totals */
};

/* The largest first. */
static int by_bytes(const void *a, const void *b)
{
	const struct row *x = a, *y = b;

	return x->bytes == y->bytes ? strcmp(carton_name(x->node), carton_name(y->node)) :
	       x->bytes < y->bytes  ? 1 :
				      -1;
}

/* The children of the directory whose totals are at `at`, malloc'ed, in the order of the rows. */
static struct row *list_rows(struct drawing *d, const struct carton_node *dir, size_t at,
			     size_t *ret_n)
{
	struct row *rows = NULL, *grown;
	struct carton_node *child;
	struct carton_stat st;
	size_t n = 0, cap = 0;

	at++;
	for (; !d->failed && (child = carton_child(dir, n)); n++) {
		grown = ctl_grow(rows, &cap, n, sizeof(*rows));
		d->failed |= !grown;
		if (!grown)
			break;
		rows = grown;
		carton_stat(child, &st);
		rows[n] = (struct row){ child, st.kind, 0, at };
		if (st.kind == CARTON_DIR) {
			rows[n].bytes = d->totals[at].bytes;
			at += d->totals[at].dirs;
		} else if (st.kind == CARTON_FILE && st.size_known) {
			rows[n].bytes = st.size;
		}
	}
	if (d->top && n)
		qsort(rows, n, sizeof(*rows), by_bytes);
	*ret_n = n;
	return rows;
}

static void draw_children(struct drawing *d, const struct carton_node *dir, size_t at,
			  unsigned depth);

static void draw_child(struct drawing *d, const struct row *row, bool last, unsigned depth)
{
	size_t len = d->prefix_len, columns = d->prefix_columns;
	bool deeper = sizeof(d->prefix) - len > 32 && columns + 16 <= d->name_columns;

	if (row->node)
		set_name(d, row->node, row->kind);
	/* deeper levels are not indented: there would be no room for a name */
	if (deeper) {
		strcpy(d->prefix + len,
		       last ? term_symbol("└── ", "`-- ") : term_symbol("├── ", "|-- "));
		d->prefix_columns += 4;
	}
	put_row(d, row->kind, row->bytes);
	if (deeper)
		strcpy(d->prefix + len, last ? "    " : term_symbol("│   ", "|   "));
	d->prefix_len = strlen(d->prefix);
	if (row->kind == CARTON_DIR && (d->depth == 0 || depth < d->depth))
		draw_children(d, row->node, row->at, depth + 1);
	d->prefix[len] = '\0';
	d->prefix_len = len;
	d->prefix_columns = columns;
}

static void draw_children(struct drawing *d, const struct carton_node *dir, size_t at,
			  unsigned depth)
{
	size_t n, shown;
	struct row *rows = list_rows(d, dir, at, &n), rest = { .kind = CARTON_FILE };

	shown = d->top && n > d->top ? d->top : n;
	for (size_t i = 0; i < shown; i++)
		draw_child(d, &rows[i], i + 1 == n, depth);
	for (size_t i = shown; i < n; i++)
		rest.bytes += rows[i].bytes;
	if (shown < n) {
		snprintf(d->name, sizeof(d->name), "%s %zu more", term_symbol("…", "..."),
			 n - shown);
		draw_child(d, &rest, true, depth);
	}
	free(rows);
}

static void draw(struct drawing *d, const struct carton_node *top, const char *label)
{
	unsigned columns = term_columns(OTHER_COLUMNS + NAME_MAX_COLUMNS);
	unsigned most = columns > OTHER_COLUMNS + 16 ? columns - OTHER_COLUMNS : 16;
	char count[2 * TERM_COUNT];

	snprintf(d->name, sizeof(d->name), "%s", label);
	grow(&d->name_columns, term_width(label));
	if (d->name_columns > most)
		d->name_columns = most;
	put_row(d, CARTON_DIR, d->totals[0].bytes);
	draw_children(d, top, 0, 1);
	puts(ctl_count(d->totals[0].files, d->totals[0].links, count));
}

int ctl_tree(struct carton *c, const struct args *a)
{
	struct drawing d = { .depth = a->values.depth, .top = a->values.top };
	struct carton_node *top;
	struct carton_stat st;
	char label[4096];
	int r = ctl_root(c, &top), status = EXIT_GOOD;

	if (r == 0 && a->n_paths)
		status = ctl_resolve(c, a, a->paths[0], &top);
	if (status != EXIT_GOOD)
		return status;
	if (r == 0) {
		carton_stat(top, &st);
		r = st.kind == CARTON_DIR ? 0 : -ENOTDIR;
	}
	if (r < 0)
		return ctl_failed(a->n_paths ? a->paths[0] : "tree", r);
	carton_source_label(a->source, label, sizeof(label));
	measure(&d, top, 0);
	if (!d.failed)
		draw(&d, top, a->n_paths ? a->paths[0] : ctl_last_part(label));
	r = d.failed ? -ENOMEM : 0;
	free(d.totals);
	return r < 0 ? ctl_failed(label, r) : EXIT_GOOD;
}
