/* SPDX-License-Identifier: Apache-2.0 */
/* `cartonctl info`: the model, for people. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/ctl.h"
#include "ctl/tensors.h"
#include "common/numbers.h"
#include "ctl/term.h"
#include "common/text.h"

#define TEXT_COLUMNS 100 /* longer lines are hard to read */
struct info {
	struct carton *c;
	const struct args *args;
	unsigned columns;
	enum carton_fact_kind kind; /* of the last fact */
	bool begun;		    /* there was one */
	bool carton_put, runner_put;
	char runner[1024]; /* on one line: its name and versions */
	char last_name[64];
	unsigned n_options;				     /* that were printed */
	unsigned name_columns, dtype_columns, shape_columns; /* of the table of inputs or outputs */
	uint64_t n[CARTON_FACT_EXAMPLE + 1];
	struct ctl_sums sums;
	uint64_t unread, unread_bytes; /* files with tensors that were not read */
};

/* ---- rows ---- */

static void put_value(const struct info *info, const char *label, const char *value)
{
	term_row(label, value, info->columns);
}

static void put_heading(const char *heading)
{
	putchar('\n');
	term_style(TERM_TITLE);
	puts(heading);
	term_style(TERM_PLAIN);
}

/* ---- the carton ---- */

static void add_stored(void *ctx, struct carton_node *node)
{
	struct carton_storage storage;
	uint64_t *sum = ctx;

	if (!carton_target(node) && carton_storage(node, &storage))
		*sum += storage.bytes;
}

/* Appends ", SIZE WORDS" to a text. */
static void add_part(char *text, size_t n, uint64_t bytes, const char *words)
{
	char size[SIZE_TEXT];
	size_t used = strlen(text);

	if (bytes)
		snprintf(text + used, n - used, "%s%s %s", used ? ", " : "",
			 format_size(bytes, size), words);
}

static void put_carton(struct info *info)
{
	const struct carton_signature *signature = carton_signed(info->c);
	char by[CTL_SIGNED];
	char hash[65], text[160] = "", count[TERM_COUNT], size[SIZE_TEXT], packed[SIZE_TEXT];
	struct carton_counters counters;
	struct carton_places places;
	struct carton_totals totals;
	uint64_t stored = 0, held;

	if (info->carton_put)
		return;
	info->carton_put = true;
	carton_model_hash(info->c, hash);
	putchar('\n');
	put_value(info, "hash", hash);
	if (carton_commit(info->c))
		put_value(info, "commit", carton_commit(info->c));
	ctl_signed(signature->by, signature->ends, by);
	put_value(info, *signature->by ? "signed by" : "signature", by);
	carton_totals(info->c, &totals);
	ctl_walk(carton_root(info->c), add_stored, &stored);
	snprintf(text, sizeof(text), "%s, %s", term_count(totals.files, "file", count),
		 format_size(totals.bytes, size));
	carton_counters(info->c, &counters);
	held = totals.bytes - counters.linked_bytes;
	format_size(stored, packed);
	if (counters.unsized_files)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), "; %llu of unknown size",
			 (unsigned long long)counters.unsized_files);
	/* MANIFEST is not in the sum; if both sizes look the same, the second one is left out */
	else if (stored && stored < held && counters.linked_files)
		snprintf(text + strlen(text), sizeof(text) - strlen(text),
			 "; %s of it in the carton, packed to %s", format_size(held, size), packed);
	else if (stored && stored < held && strcmp(packed, size) != 0)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), "; %s packed", packed);
	put_value(info, "files", text);
	if (counters.linked_files) {
		ctl_linked(counters.linked_files, counters.linked_bytes, counters.unsized_files,
			   text, sizeof(text));
		put_value(info, "in LINKS", text);
	}
	carton_places(info->c, &places);
	text[0] = '\0';
	add_part(text, sizeof(text), places.local, "here");
	add_part(text, sizeof(text), places.cached, "in the cache");
	add_part(text, sizeof(text), places.remote, "to be fetched");
	if (places.cached || places.remote)
		put_value(info, "where", text);
}

/* ---- carton.toml ---- */

static const char *shown(const char *s)
{
	return s && *s ? s : "-";
}

static void grow(unsigned *columns, const char *s)
{
	if (term_width(shown(s)) > *columns)
		*columns = term_width(shown(s));
}

/* The word before this fact on the runner's line; NULL: the fact is not on that line. */
static const char *runner_word(const char *name)
{
	static const char *const words[][2] = {
		{ "runner_name", "" },
		{ "required_framework_version", "framework " },
		{ "runner_compat_version", "compat version " },
	};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (strcmp(name, words[i][0]) == 0)
			return words[i][1];
	return NULL;
}

/* Finds the runner's line, the widths of the table's columns, and how many facts each kind has. */
static void measure(void *ctx, const struct carton_fact *f)
{
	struct info *info = ctx;
	const char *word = f->kind == CARTON_FACT_TEXT ? runner_word(f->name) : NULL;
	size_t n = strlen(info->runner);

	if (word)
		snprintf(info->runner + n, sizeof(info->runner) - n, "%s%s%s", n ? ", " : "", word,
			 *word && strcmp(f->text, "*") == 0 ? "of any version" : f->text);
	info->n[f->kind]++;
	if (f->kind != CARTON_FACT_INPUT && f->kind != CARTON_FACT_OUTPUT)
		return;
	grow(&info->name_columns, f->name);
	grow(&info->dtype_columns, f->dtype);
	grow(&info->shape_columns, f->shape);
}

static bool is_title(const char *name)
{
	return strcmp(name, "model_name") == 0 || strcmp(name, "short_description") == 0;
}

static void put_text(struct info *info, const struct carton_fact *f)
{
	static const struct {
		const char *name, *label;
	} labels[] = {
		{ "license", "license" },
		{ "repository", "repository" },
		{ "homepage", "homepage" },
		{ "platform", "platforms" },
	};
	const char *label = "";

	if (is_title(f->name)) {
		if (strcmp(f->name, "model_name") == 0)
			term_style(TERM_TITLE);
		term_wrap(f->text, 0, info->columns);
		term_style(TERM_PLAIN);
		putchar('\n');
		return;
	}
	if (runner_word(f->name)) {
		if (!info->runner_put)
			put_value(info, "runner", info->runner);
		info->runner_put = true;
		return;
	}
	for (size_t i = 0; i < sizeof(labels) / sizeof(labels[0]); i++)
		if (strcmp(f->name, labels[i].name) == 0)
			label = labels[i].label;
	put_value(info, strcmp(info->last_name, f->name) == 0 ? "" : label, f->text);
	snprintf(info->last_name, sizeof(info->last_name), "%s", f->name);
}

/* Prints a cell, which is shortened only if it is wider than the terminal. */
static unsigned put_cell(const char *s, unsigned width, unsigned most)
{
	width = width < most ? width : most;
	term_cell(shown(s), width);
	return width;
}

static void put_tensor(const struct info *info, const struct carton_fact *f)
{
	unsigned at = 2 + 2 + 2, third = info->columns / 3;
	bool more = (f->text && *f->text) || (f->internal_name && *f->internal_name);

	term_spaces(2);
	at += put_cell(f->name, info->name_columns, third);
	term_spaces(2);
	at += put_cell(f->dtype, info->dtype_columns, third / 2);
	term_spaces(2);
	if (!more) {
		term_short(shown(f->shape), info->columns - at);
		putchar('\n');
		return;
	}
	at += 2 + put_cell(f->shape, info->shape_columns, third);
	term_spaces(2);
	if (at + 24 > info->columns) {
		printf("\n%*s", 6, "");
		at = 6;
	}
	if (f->text && *f->text) {
		term_wrap(f->text, at, info->columns - 1);
		if (f->internal_name && *f->internal_name)
			printf("\n%*s", (int)at, "");
	}
	if (f->internal_name && *f->internal_name) {
		term_style(TERM_FAINT);
		fputs("internal name ", stdout);
		term_put(f->internal_name);
		term_style(TERM_PLAIN);
	}
	putchar('\n');
}

static void put_case(const struct info *info, const struct carton_fact *f)
{
	const char *name = f->name && *f->name ? f->name : "(no name)";

	term_spaces(2);
	term_short(name, info->columns - 4);
	if (f->text && *f->text) {
		unsigned at = 2 + term_width(name) + 2;

		term_spaces(2);
		if (at + 24 > info->columns) {
			at = 6;
			printf("\n%*s", (int)at, "");
		}
		term_wrap(f->text, at, info->columns - 1);
	}
	putchar('\n');
}

/* "2 inputs", before the first of them. */
static void begin_kind(struct info *info, enum carton_fact_kind kind)
{
	static const char *const nouns[] = {
		[CARTON_FACT_INPUT] = "input",
		[CARTON_FACT_OUTPUT] = "output",
		[CARTON_FACT_SELF_TEST] = "self test",
		[CARTON_FACT_EXAMPLE] = "example",
	};
	char count[TERM_COUNT];

	if (info->begun && info->kind == kind)
		return;
	info->begun = true;
	info->kind = kind;
	if (nouns[kind])
		put_heading(term_count(info->n[kind], nouns[kind], count));
}

static void put_fact(void *ctx, const struct carton_fact *f)
{
	struct info *info = ctx;

	if (f->kind == CARTON_FACT_TEXT && strcmp(f->name, "model_description") == 0)
		return;
	if (f->kind != CARTON_FACT_TEXT || !is_title(f->name))
		put_carton(info);
	begin_kind(info, f->kind);
	switch (f->kind) {
	case CARTON_FACT_TEXT:
		put_text(info, f);
		break;
	case CARTON_FACT_OPTION:
		put_value(info, info->n_options++ ? "" : "options", f->text);
		break;
	case CARTON_FACT_INPUT:
	case CARTON_FACT_OUTPUT:
		put_tensor(info, f);
		break;
	case CARTON_FACT_SELF_TEST:
	case CARTON_FACT_EXAMPLE:
		put_case(info, f);
		break;
	}
}

/*
 * True: the next line belongs to the same paragraph. The line is long, and neither line is a list,
 * a table, code or a heading.
 */
static bool goes_on(const char *line, const char *end)
{
	return end - line > 50 && !strchr(" \t#|>`", *line) && end[1] &&
	       !strchr(" \t\n#|>`-*+!0123456789", end[1]);
}

/* Joins the lines of a paragraph, as Markdown does. */
static void join_lines(char *text)
{
	bool code = false;

	for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
		if (strncmp(line, "```", 3) == 0)
			code = !code;
		else if (!code && goes_on(line, end))
			*end = ' ';
	}
}

static void put_description(void *ctx, const struct carton_fact *f)
{
	const struct info *info = ctx;
	char *text, *copy;

	if (f->kind != CARTON_FACT_TEXT || strcmp(f->name, "model_description") != 0)
		return;
	copy = strdup(f->text);
	if (!copy)
		return;
	join_lines(copy);
	text = copy + strspn(copy, "\n");
	for (size_t n = strlen(text); n > 0 && text[n - 1] == '\n'; n--)
		text[n - 1] = '\0';
	putchar('\n');
	term_wrap(text, 0, info->columns);
	putchar('\n');
	free(copy);
}

/* ---- tensors ---- */

static void sum_file(void *ctx, struct carton_node *file)
{
	struct info *info = ctx;
	struct carton_stat st;
	char path[4096];

	if (!ctl_has_tensors(file))
		return;
	carton_path(file, path);
	carton_stat(file, &st);
	if (!info->args->values.tensors && !ctl_is_cheap(info->c, file)) {
		info->unread++;
		info->unread_bytes += st.size;
	} else {
		ctl_tensors(info->c, path, ctl_sums_add, &info->sums);
	}
}

static void put_tensors(struct info *info)
{
	char count[TERM_COUNT], size[SIZE_TEXT];
	struct ctl_sums stored = { 0 };

	ctl_walk(carton_root(info->c), sum_file, info);
	ctl_sums_put("the model", "parameter", &info->sums);
	if (info->unread)
		printf("\n%s with tensors, %s: --tensors reads and sums them up\n",
		       term_count(info->unread, "file", count),
		       format_size(info->unread_bytes, size));
	if (!carton_is_remote(info->c) || info->args->values.tensors)
		ctl_tensors(info->c, "tensor_data", ctl_sums_add, &stored);
	ctl_sums_put("tensor_data, for tests", "element", &stored);
}

/* ---- all ---- */

static int put_json(struct carton *c)
{
	char *text;
	int r = carton_info(c, &text);

	if (r < 0)
		return ctl_failed("info", r);
	json_document(stdout, text);
	free(text);
	return EXIT_GOOD;
}

int ctl_info(struct carton *c, const struct args *a)
{
	struct info info = { .c = c, .args = a, .columns = term_columns(80) };
	int r;

	if (carton_is_bare(c))
		return ctl_info_bare(c, a);
	r = carton_say_pointers(c);
	if (r < 0)
		return ctl_failed("info", r);
	if (a->values.json)
		return put_json(c);
	if (info.columns > TEXT_COLUMNS)
		info.columns = TEXT_COLUMNS;
	r = carton_facts(c, measure, &info);
	if (r == 0)
		r = carton_facts(c, put_fact, &info);
	if (r < 0)
		return ctl_failed("info", r);
	put_carton(&info);
	put_tensors(&info);
	carton_facts(c, put_description, &info);
	return EXIT_GOOD;
}
