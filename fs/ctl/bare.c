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
		term_row(label, text, columns);
		label = "";
	}
}

/* Are there no tensors? Why was logged. */
static bool has_problem(const char *json)
{
	const char *at = strstr(json, "\n \"problems\": [");

	return at && strstr(at, "{\"problem\": ");
}

/* Did the user give a hash, and has the file another? */
static bool is_wrong(struct carton *c)
{
	struct carton_counters counters;

	carton_counters(c, &counters);
	return counters.corrupt_files > 0;
}

static void put_json(struct carton *c, const struct args *a, const struct carton_node *file,
		     const char *index)
{
	struct json_writer w = { .f = stdout };
	struct carton_stat st;

	carton_stat(file, &st);
	json_begin(&w, NULL, '{');
	json_text(&w, "file", carton_name(file));
	json_number(&w, "bytes", st.size);
	json_bool(&w, "verified", carton_is_verified(c) && !is_wrong(c));
	json_text(&w, "sha256", a->values.carton.sha256);
	json_value(&w, "index", index);
	json_end(&w, '}');
}

static void put_text(struct carton *c, const struct args *a, const struct carton_node *file,
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
	term_row("hash",
		 is_wrong(c)	       ? "not that of --sha256: this is another file" :
		 carton_is_verified(c) ? a->values.carton.sha256 :
					 "not verified; --sha256=HEX verifies it",
		 columns);
	snprintf(text, sizeof(text), "%s, a bare file and no carton", format_size(st.size, size));
	term_row("file", text, columns);
	put_metadata(index, columns);
	ctl_tensors(c, "", ctl_sums_add, &sums);
	ctl_sums_put("the file", "parameter", &sums);
}

int ctl_info_bare(struct carton *c, const struct args *a)
{
	const struct carton_node *file;
	char *index = NULL;
	bool good;
	int r = read_index(c, &index);

	if (r < 0)
		return ctl_failed("info", r);
	file = find_file(c);
	if (a->values.json)
		put_json(c, a, file, index);
	else
		put_text(c, a, file, index);
	good = !has_problem(index);
	free(index);
	return good ? EXIT_GOOD : EXIT_BAD;
}
