/* SPDX-License-Identifier: Apache-2.0 */
/* `cartonctl info` of a bare safetensors file: what its header says, from its index.json. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/ctl.h"
#include "ctl/tensors.h"
#include "common/numbers.h"
#include "ctl/term.h"
#include "common/text.h"

#define LABEL 13 /* columns, as of other info */

/* All of index.json, malloc'ed: 0 or -errno. */
static int read_index(struct carton *c, char **ret)
{
	struct carton_node *index;
	struct carton_stat st;
	ssize_t n;
	char *text;
	int r = carton_resolve(c, "index.json", &index);

	if (r == 0)
		r = carton_pin_wait(c, index);
	if (r < 0)
		return r;
	carton_stat(index, &st);
	text = malloc(st.size + 1);
	n = text ? carton_read(index, text, st.size, 0, false) : -ENOMEM;
	carton_unpin(index);
	if (n < 0) {
		free(text);
		return (int)n;
	}
	text[n] = '\0';
	*ret = text;
	return 0;
}

/* The file itself, which is shown beside its tensors. */
static const struct carton_node *find_file(const struct carton *c)
{
	const struct carton_node *node;

	for (size_t i = 0; (node = carton_child(carton_root(c), i)); i++)
		if (ctl_has_tensors(node))
			return node;
	return NULL;
}

static void put_value(const char *label, const char *value, unsigned columns)
{
	term_style(TERM_TITLE);
	term_cell(label, LABEL);
	term_style(TERM_PLAIN);
	term_wrap(value, LABEL, columns);
	putchar('\n');
}

/* Behind a JSON string. */
static const char *behind_string(const char *at)
{
	for (at++; *at && *at != '"'; at++)
		at += *at == '\\' && at[1];
	return *at ? at + 1 : at;
}

/* The members of `metadata`, which stand on a line each. */
static void put_metadata(const char *json, unsigned columns)
{
	const char *at = strstr(json, "\n \"metadata\": {"), *label = "metadata";
	char text[512];

	while (at && (at = strchr(at + 1, '\n')) && strncmp(at, "\n  \"", 4) == 0) {
		size_t n;

		json_decode(at + 3, text, sizeof(text) / 4);
		n = strlen(text);
		snprintf(text + n, sizeof(text) - n, ": ");
		n += 2;
		json_decode(behind_string(at + 3) + strlen(": "), text + n, sizeof(text) - n);
		put_value(label, text, columns);
		label = "";
	}
}

/* Why there are no tensors. */
static int put_problem(const char *json)
{
	static const char key[] = "{\"problem\": ";
	const char *at = strstr(json, "\n \"problems\": [");
	char text[512];

	at = at ? strstr(at, key) : NULL;
	if (!at)
		return EXIT_GOOD;
	json_decode(at + strlen(key), text, sizeof(text));
	return ctl_refuse("its header", text);
}

static void put_json(const struct carton *c, const struct args *a, const struct carton_node *file,
		     const char *index)
{
	struct json_writer w = { .f = stdout };
	struct carton_stat st;

	carton_stat(file, &st);
	json_begin(&w, NULL, '{');
	json_text(&w, "file", carton_name(file));
	json_number(&w, "bytes", st.size);
	json_bool(&w, "verified", carton_is_verified(c));
	json_text(&w, "sha256", a->values.carton.sha256);
	json_value(&w, "index", index);
	json_end(&w, '}');
}

static int put_text(struct carton *c, const struct args *a, const struct carton_node *file,
		    const char *index)
{
	unsigned columns = term_columns(80);
	struct ctl_sums sums = { 0 };
	char size[SIZE_TEXT], text[96];
	struct carton_stat st;

	carton_stat(file, &st);
	term_style(TERM_TITLE);
	term_wrap(carton_name(file), 0, columns);
	term_style(TERM_PLAIN);
	fputs("\n\n", stdout);
	put_value("hash",
		  carton_is_verified(c) ? a->values.carton.sha256 :
					  "not verified; --sha256=HEX verifies it",
		  columns);
	snprintf(text, sizeof(text), "%s, a bare file and no carton", format_size(st.size, size));
	put_value("file", text, columns);
	put_metadata(index, columns);
	ctl_tensors(c, "", ctl_sums_add, &sums);
	ctl_sums_put("the file", "parameter", &sums);
	return put_problem(index);
}

int ctl_info_bare(struct carton *c, const struct args *a)
{
	const struct carton_node *file;
	int status = EXIT_GOOD;
	char *index = NULL;
	int r = read_index(c, &index);

	if (r < 0)
		return ctl_failed("info", r);
	file = find_file(c);
	if (a->values.json)
		put_json(c, a, file, index);
	else
		status = put_text(c, a, file, index);
	free(index);
	return status;
}
