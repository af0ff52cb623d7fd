/* SPDX-License-Identifier: Apache-2.0 */
#include "common/json_writer.h"

#include <inttypes.h>

#include "common/text.h"

/* Writes all that precedes a value. */
static void put_key(struct json_writer *w, const char *key)
{
	if (w->comma)
		fputs(w->spaced ? ", " : ",", w->f);
	if (key)
		fprintf(w->f, "\"%s\":%s", key, w->spaced ? " " : "");
	w->comma = true;
}

void json_begin(struct json_writer *w, const char *key, char bracket)
{
	put_key(w, key);
	fputc(bracket, w->f);
	w->comma = false;
	w->depth++;
}

void json_end(struct json_writer *w, char bracket)
{
	fputc(bracket, w->f);
	w->comma = true;
	if (--w->depth == 0)
		fputc('\n', w->f);
}

void json_end_line(struct json_writer *w, char bracket)
{
	fputc('\n', w->f);
	json_end(w, bracket);
}

void json_line(struct json_writer *w, int indent)
{
	fprintf(w->f, "%s\n%*s", w->comma ? "," : "", indent, "");
	w->comma = false;
}

void json_text(struct json_writer *w, const char *key, const char *value)
{
	put_key(w, key);
	if (value)
		json_string(w->f, value);
	else
		fputs("null", w->f);
}

void json_number(struct json_writer *w, const char *key, uint64_t value)
{
	put_key(w, key);
	fprintf(w->f, "%" PRIu64, value);
}

void json_time(struct json_writer *w, const char *key, int64_t value)
{
	put_key(w, key);
	fprintf(w->f, "%" PRId64, value);
}

void json_bool(struct json_writer *w, const char *key, bool value)
{
	json_value(w, key, value ? "true" : "false");
}

void json_value(struct json_writer *w, const char *key, const char *json)
{
	put_key(w, key);
	json_document(w->f, json);
}
