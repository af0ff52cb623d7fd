/* SPDX-License-Identifier: Apache-2.0 */
#include "tensor/json_guard.h"

static int hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static const char half_pair[] = "it has half of a surrogate pair in a \\u escape";

static const char *hex_digit(struct json_guard *g, char c)
{
	int v = hex_value(c);

	if (v < 0)
		return "it has a \\u escape without four hex digits";
	g->code = g->code << 4 | (unsigned)v;
	if (--g->hex_left)
		return NULL;
	if (g->want_low != (g->code >= 0xdc00 && g->code <= 0xdfff))
		return half_pair;
	g->want_low = g->code >= 0xd800 && g->code <= 0xdbff;
	return NULL;
}

static const char *in_string(struct json_guard *g, char c)
{
	if (g->hex_left)
		return hex_digit(g, c);
	if (g->escape) {
		g->escape = false;
		if (g->want_low && c != 'u')
			return half_pair;
		if (c == 'u') {
			g->hex_left = 4;
			g->code = 0;
		}
		return NULL;
	}
	if (g->want_low && c != '\\')
		return half_pair;
	if (c == '\\')
		g->escape = true;
	else if (c == '"')
		g->string = false;
	else if ((unsigned char)c < 0x20)
		return "it has a control character in a string";
	return NULL;
}

static const char *between(struct json_guard *g, char c)
{
	if (g->ended)
		return c == ' ' ? NULL : "it has other bytes than spaces behind its object";
	if (c == '"') {
		g->string = true;
	} else if (c == '{' || c == '[') {
		if (g->depth++ == g->max_depth)
			return "it is nested too deeply";
	} else if (c == '}' || c == ']') {
		if (!g->depth || !--g->depth)
			g->ended = true;
	} else if (((unsigned char)c < 0x20 && c != '\t' && c != '\n' && c != '\r') || c == 0x7f) {
		return "it has a control character between its tokens";
	}
	return NULL;
}

const char *json_guard_feed(struct json_guard *g, const char *s, size_t n)
{
	const char *fault = NULL;

	for (size_t i = 0; i < n && !fault; i++)
		fault = g->string ? in_string(g, s[i]) : between(g, s[i]);
	return fault;
}
