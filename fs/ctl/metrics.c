/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `cartonctl status --metrics`: the .cartonfs/metrics of all mounts as one text of Prometheus, in
 * which a family is described once, and each sample has the label `mountpoint`.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/text.h"
#include "ctl/ctl.h"
#include "ctl/mounts.h"
#include "ctl/term.h"

#define HELP "# HELP "
#define MOUNTPOINT "mountpoint="

/* Prints [s, end), of which the mount of another user may have written anything. */
static void put_escaped(const char *s, const char *end)
{
	char *copy = strndup(s, (size_t)(end - s));

	if (copy)
		term_put(copy);
	free(copy);
}

static const char *line_end(const char *line)
{
	return line + strcspn(line, "\n");
}

/* The next line that begins a family, or NULL. */
static const char *next_family(const char *at)
{
	while (*at && strncmp(at, HELP, strlen(HELP)) != 0) {
		at = line_end(at);
		at += *at == '\n';
	}
	return *at ? at : NULL;
}

/* How long "# HELP NAME " is. */
static size_t family_length(const char *family)
{
	return strlen(HELP) + strcspn(family + strlen(HELP), " \n") + 1;
}

/* The same family in the text of another mount, or NULL. */
static const char *find_family(const char *text, const char *family)
{
	while (text && (text = next_family(text)) != NULL) {
		if (strncmp(text, family, family_length(family)) == 0)
			return text;
		text = line_end(text);
	}
	return NULL;
}

/* Behind the label `mountpoint` that a sample has by itself, and its comma. */
static const char *behind_label(const char *label, const char *end)
{
	label += strlen(MOUNTPOINT "\"");
	while (label < end && *label != '"')
		label += *label == '\\' && label + 1 < end ? 2 : 1;
	label += label < end;
	return label + (label < end && *label == ',');
}

/* Prints a sample: its name, the label, what other labels it has, its value. */
static void put_sample(const char *line, const char *end, const char *mountpoint)
{
	const char *rest = line + strcspn(line, "{ \n");
	const char *own = *rest == '{' ? memmem(rest, (size_t)(end - rest), MOUNTPOINT "\"",
						strlen(MOUNTPOINT "\"")) :
					 NULL;

	put_escaped(line, rest);
	fputs("{" MOUNTPOINT, stdout);
	json_label(stdout, mountpoint);
	putchar(*rest == '{' ? ',' : '}');
	if (*rest == '{')
		rest++;
	if (own) {
		put_escaped(rest, own);
		rest = behind_label(own, end);
	}
	put_escaped(rest, end);
	putchar('\n');
}

/* Prints what is said of a family, and then its samples in all mounts. */
static void put_family(const char *family, const struct ctl_mount *list, size_t n,
		       const struct ctl_question *answers)
{
	const char *type = line_end(family);

	put_escaped(family, type);
	putchar('\n');
	if (strncmp(type, "\n# TYPE ", 8) == 0) {
		put_escaped(type + 1, line_end(type + 1));
		putchar('\n');
	}
	for (size_t i = 0; i < n; i++) {
		const char *at = find_family(answers[i].text, family);
		const char *end = at ? next_family(line_end(at)) : NULL;

		for (; at && *at && at != end; at += *at == '\n') {
			if (*at != '#' && *at != '\n')
				put_sample(at, line_end(at), list[i].path);
			at = line_end(at);
		}
	}
}

/* Has one of the first `n` mounts this family? Then it was printed. */
static bool is_printed(const char *family, const struct ctl_question *answers, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (find_family(answers[i].text, family))
			return true;
	return false;
}

int ctl_status_metrics(const struct ctl_mount *list, size_t n)
{
	struct ctl_question *answers = calloc(n + 1, sizeof(*answers));

	if (!answers)
		return ctl_failed("status", -ENOMEM);
	ctl_mounts_ask(list, n, CTL_METRICS, answers);
	if (n)
		puts(HELP "cartonfs_up Does the mount answer?\n# TYPE cartonfs_up gauge");
	for (size_t i = 0; i < n; i++) {
		if (answers[i].r == -ENOENT)
			continue; /* it has ended since it was listed */
		fputs("cartonfs_up{" MOUNTPOINT, stdout);
		json_label(stdout, list[i].path);
		printf("} %d\n", answers[i].text ? 1 : 0);
	}
	for (size_t i = 0; i < n; i++) {
		const char *family = answers[i].text;

		for (; family && (family = next_family(family)); family = line_end(family))
			if (!is_printed(family, answers, i))
				put_family(family, list, n, answers);
	}
	for (size_t i = 0; i < n; i++)
		free(answers[i].text);
	free(answers);
	return EXIT_GOOD;
}
