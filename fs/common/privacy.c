/* SPDX-License-Identifier: Apache-2.0 */
#include "common/privacy.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "carton.h"

#define UNREADABLE "(unreadable)"
#define NAME "-_.abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

/* Appends to the text of *len bytes in `to`, which has room for n. */
static void append(char *to, size_t n, size_t *len, const char *text, size_t text_n)
{
	size_t fits = n - *len < text_n ? n - *len : text_n;

	memcpy(to + *len, text, fits);
	*len += fits;
}

/*
 * Appends one of a list of options. `rest` follows it, and may be the end of a URL with a comma.
 * True: it is that, or this option was changed.
 */
static bool append_option(char *to, size_t n, size_t *len, const char *text, const char *rest)
{
	size_t name = strspn(text, NAME);
	const char *value = text[name] == '=' ? text + name + 1 : text;
	size_t room = strlen(value) + sizeof("https://" UNREADABLE);
	char *label = malloc(room);
	bool changed, cut;

	append(to, n, len, text, (size_t)(value - text));
	if (!label)
		return true;
	carton_source_label(value, label, room);
	changed = strcmp(label, value) != 0;
	/*
	 * a password with an @ and a comma was cut at the comma: the text behind the @ is a part of
	 * the password, not a host
	 */
	cut = strchr(value, ':') && strpbrk(rest, changed ? "@" : "@?#");
	if (*value != '/' && (cut || (!changed && strchr(value, '@'))))
		strcpy(label, UNREADABLE);
	changed = strcmp(label, value) != 0;
	append(to, n, len, label, strlen(label));
	free(label);
	return changed;
}

/* The end of the option that begins at `text`: a comma without a backslash before it, or NUL. */
static size_t option_end(const char *text)
{
	size_t i = 0;

	while (text[i] && text[i] != ',')
		i += text[i] == '\\' && text[i + 1] ? 2 : 1;
	return i;
}

void privacy_hide(char *arg)
{
	size_t n = strlen(arg), name = strspn(arg, NAME), len = 0;
	bool list = *arg == '-' || arg[name] == '=' || arg[name] == ',';
	char *shown = calloc(1, n + 1), *copy = strdup(arg);

	/* if there is no memory, the argument becomes empty */
	for (char *p = copy; shown && p;) {
		size_t end = list ? option_end(p) : n;
		char *next = p[end] ? p + end + 1 : NULL;

		p[end] = '\0';
		if (!list)
			carton_source_label(p, shown, n + 1);
		else if (append_option(shown, n, &len, p, next ? next : ""))
			next = NULL;
		if (next)
			append(shown, n, &len, ",", 1);
		p = next;
	}
	for (size_t i = 0; i < n; i++)
		arg[i] = shown && copy ? shown[i] : '\0';
	if (copy)
		explicit_bzero(copy, n);
	free(copy);
	free(shown);
}

void privacy_no_core_dumps(void)
{
	/*
	 * A limit of 1 also keeps the kernel from piping a dump to a program, where it ignores 0.
	 * The sandbox, where there is one, also sets PR_SET_DUMPABLE.
	 */
	struct rlimit one = { 1, 1 };

	setrlimit(RLIMIT_CORE, &one);
}
