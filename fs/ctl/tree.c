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
	uint64_t bytes, files;
};

struct drawing {
	struct totals *totals; /* of directories, in the order of the walk */
	size_t n, cap, next;
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
	struct totals sum = { 0 };
	struct carton_node *child;
	struct carton_stat st;
	size_t at;

	carton_stat(node, &st);
	set_name(d, node, st.kind);
	grow(&d->name_columns, term_width(d->name) + 4 * depth);
	if (st.kind != CARTON_DIR)
		return (struct totals){ st.kind == CARTON_FILE ? st.size : 0, 1 };
	at = new_totals(d);
	for (size_t i = 0; !d->failed && (child = carton_child(node, i)); i++) {
		struct totals t = measure(d, child, depth + 1);

		sum.bytes += t.bytes;
		sum.files += t.files;
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

static void draw_children(struct drawing *d, const struct carton_node *dir);

static void draw_child(struct drawing *d, const struct carton_node *node, bool last)
{
	size_t len = d->prefix_len, columns = d->prefix_columns;
	bool deeper = sizeof(d->prefix) - len > 32 && columns + 16 <= d->name_columns;
	struct carton_stat st;

	carton_stat(node, &st);
	set_name(d, node, st.kind);
	/* deeper levels are not indented: there would be no room for a name */
	if (deeper) {
		strcpy(d->prefix + len,
		       last ? term_symbol("└── ", "`-- ") : term_symbol("├── ", "|-- "));
		d->prefix_columns += 4;
	}
	put_row(d, st.kind,
		st.kind == CARTON_DIR ? d->totals[d->next].bytes :
		st.size_known	      ? st.size :
					0);
	if (deeper)
		strcpy(d->prefix + len, last ? "    " : term_symbol("│   ", "|   "));
	d->prefix_len = strlen(d->prefix);
	if (st.kind == CARTON_DIR)
		draw_children(d, node);
	d->prefix[len] = '\0';
	d->prefix_len = len;
	d->prefix_columns = columns;
}

static void draw_children(struct drawing *d, const struct carton_node *dir)
{
	struct carton_node *child, *next;

	d->next++;
	child = carton_child(dir, 0);
	for (size_t i = 1; child; i++, child = next) {
		next = carton_child(dir, i);
		draw_child(d, child, !next);
	}
}

static void draw(struct drawing *d, const struct carton_node *top, const char *label)
{
	unsigned columns = term_columns(OTHER_COLUMNS + NAME_MAX_COLUMNS);
	unsigned most = columns > OTHER_COLUMNS + 16 ? columns - OTHER_COLUMNS : 16;
	char count[TERM_COUNT];

	snprintf(d->name, sizeof(d->name), "%s", label);
	grow(&d->name_columns, term_width(label));
	if (d->name_columns > most)
		d->name_columns = most;
	put_row(d, CARTON_DIR, d->totals[0].bytes);
	draw_children(d, top);
	printf("%s\n", term_count(d->totals[0].files, "file", count));
}

int ctl_tree(struct carton *c, const struct args *a)
{
	struct drawing d = { 0 };
	struct carton_node *top;
	struct carton_stat st;
	char label[4096], *base;
	int r = ctl_root(c, &top);

	if (r == 0 && a->n_paths)
		r = carton_resolve(c, a->paths[0], &top);

	if (r == 0) {
		carton_stat(top, &st);
		r = st.kind == CARTON_DIR ? 0 : -ENOTDIR;
	}
	if (r < 0)
		return ctl_failed(a->n_paths ? a->paths[0] : "tree", r);
	carton_source_label(a->source, label, sizeof(label));
	base = strrchr(label, '/');
	base = base && base[1] ? base + 1 : label;
	measure(&d, top, 0);
	if (d.failed)
		r = -ENOMEM;
	else
		draw(&d, top, a->n_paths ? a->paths[0] : base);
	free(d.totals);
	return r < 0 ? ctl_failed(label, r) : EXIT_GOOD;
}
