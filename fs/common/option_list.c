/* SPDX-License-Identifier: Apache-2.0 */
#include "common/option_list.h"

#include <string.h>

#define MOUNT "cartonfs"
#define CELL (OPTION_COLUMNS / 2)
#define NAME 18 /* columns of a name in a cell, behind two spaces */
#define SHOWN 80

/* Behind -o, names are as they are in the table; elsewhere they are words of the command line. */
static bool is_mount_option(const struct option_spec *s, const char *taker)
{
	return s->name[0] != '-' && strcmp(taker, MOUNT) == 0;
}

void option_name(const struct option_spec *s, const char *taker, char ret[OPTION_NAME])
{
	bool plain = s->name[0] == '-' || is_mount_option(s, taker);

	snprintf(ret, OPTION_NAME, "%s%s", plain ? "" : "--", s->name);
	for (char *p = ret; *p && !plain; p++)
		if (*p == '_')
			*p = '-';
}

/* The option that the word of `n` bytes at `s` names, in a text from `begin` on; or NULL. */
static const struct option_spec *named(const char *begin, const char *s, size_t n)
{
	static const char behind[] = "option ";
	size_t before = (size_t)(s - begin), len = strlen(behind);
	bool said = before >= len && memcmp(s - len, behind, len) == 0;

	if ((before && !strchr(" (", s[-1])) || (s[n] && !strchr("=,;:) ", s[n])) ||
	    !(said || s[n] == '=' || memchr(s, '_', n)))
		return NULL;
	for (const struct option_spec *spec = option_table; spec->name; spec++)
		if (strlen(spec->name) == n && memcmp(spec->name, s, n) == 0)
			return strcmp(spec->takers, MOUNT) == 0 ? NULL : spec;
	return NULL;
}

char *option_spell(const char *message, char *ret, size_t n)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789_";
	char name[OPTION_NAME];
	size_t used = 0;

	for (const char *s = message; *s && used + 1 < n;) {
		size_t len = strspn(s, letters);
		const struct option_spec *spec = named(message, s, len);

		len = len ? len : 1;
		if (spec)
			option_name(spec, "cartonctl", name);
		used += (size_t)snprintf(ret + used, n - used, "%.*s",
					 spec ? OPTION_NAME : (int)len, spec ? name : s);
		s += len;
	}
	ret[used < n ? used : n - 1] = '\0';
	return ret;
}

/* The first `n` bytes of the name without dashes before it, and with _ for each other dash. */
static bool plain(const char *name, size_t n, char ret[OPTION_NAME])
{
	size_t dashes = strspn(name, "-");

	if (n < dashes || n - dashes >= OPTION_NAME)
		return false;
	snprintf(ret, OPTION_NAME, "%.*s", (int)(n - dashes), name + dashes);
	for (char *p = ret; *p; p++)
		if (*p == '-')
			*p = '_';
	return true;
}

const struct option_spec *option_near(const char *typed, size_t n, const char *taker)
{
	char a[OPTION_NAME], b[OPTION_NAME];

	if (!plain(typed, n, a))
		return NULL;
	for (const struct option_spec *s = option_table; s->name; s++)
		if (s->help && option_is_for(s, taker) && plain(s->name, strlen(s->name), b) &&
		    carton_similar(a, b))
			return s;
	return NULL;
}

/* The same with its letter and its value: "cache_dir=DIR", "-j, --json". */
static void show(const struct option_spec *s, const char *taker, char ret[SHOWN])
{
	char name[OPTION_NAME], letter[8] = "";
	bool may = s->unsaid;

	option_name(s, taker, name);
	if (s->letter && name[1] == '-')
		snprintf(letter, sizeof(letter), "-%c, ", s->letter);
	snprintf(ret, SHOWN, "%s%s%s%s%.32s%s", letter, name, may ? "[" : "", s->value ? "=" : "",
		 s->value ? s->value : "", may ? "]" : "");
}

/* Does it fit into half a line? */
static bool is_short(const struct option_spec *s, const char *shown)
{
	return strlen(shown) < NAME && strlen(s->help) <= CELL - 2 - NAME;
}

unsigned option_put_help(FILE *f, const char *taker, bool line)
{
	bool all = strcmp(taker, MOUNT) != 0;
	char shown[SHOWN];
	unsigned n = 0;
	int at = 0; /* columns of this line so far */

	for (const struct option_spec *s = option_table; s->name; s++) {
		if (!s->help || (s->rare && !all) || !option_is_for(s, taker) ||
		    is_mount_option(s, taker) == line)
			continue;
		n++;
		show(s, taker, shown);
		if (at > 0 && (at > CELL || !is_short(s, shown))) {
			fputc('\n', f);
			at = 0;
		}
		if (at > 0)
			fprintf(f, "%*s", CELL - at, "");
		at = (at > 0 ? CELL : 0) + fprintf(f, "  %-*s%s%s", NAME, shown,
						   strlen(shown) < NAME ? "" : "  ", s->help);
	}
	if (at > 0)
		fputc('\n', f);
	return n;
}

void option_put_words(FILE *f, const char *taker, const char *without)
{
	char name[OPTION_NAME];

	for (const struct option_spec *s = option_table; s->name; s++) {
		const char *word = s->value;

		if (!s->help || !option_is_for(s, taker) || (without && option_is_for(s, without)))
			continue;
		option_name(s, taker, name);
		if (s->letter && name[1] == '-')
			fprintf(f, "-%c\t%s\n", s->letter, s->help);
		if (!word || s->unsaid)
			fprintf(f, "%s\t%s\n", name, s->help);
		for (; word; word = word[strcspn(word, "|")] ? strchr(word, '|') + 1 : NULL)
			fprintf(f, "%s=%.*s\t%s\n", name, (int)strcspn(word, "|"), word, s->help);
	}
}
