/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a list of mounts; and lists as the kernel writes them, which are read as they were
 * meant: the input is then records of four texts, each with its NUL.
 */
#include <string.h>

#include "common/mountinfo.h"

#include "fuzz.h"

#define MAX_MOUNTS 64
#define MAX_TEXTS (4 * MAX_MOUNTS)

struct seen {
	const struct mountinfo *want; /* NULL: not known */
	size_t n, max, bytes;
};

static void check(void *ctx, const struct mountinfo *m)
{
	struct seen *s = ctx;

	CHECK(s->n < s->max);
	s->bytes += strlen(m->device) + strlen(m->path) + strlen(m->type) + strlen(m->options);
	CHECK(!strchr(m->device, ' ') && !strchr(m->type, ' '));
	if (s->want) {
		const struct mountinfo *w = &s->want[s->n];

		CHECK(strcmp(m->device, w->device) == 0 && strcmp(m->path, w->path) == 0);
		CHECK(strcmp(m->type, w->type) == 0);
		CHECK(m->id == w->id && m->parent == w->parent);
		CHECK(strncmp(m->options, w->options, strlen(w->options)) == 0);
		CHECK(strcmp(m->options + strlen(w->options), "\n") == 0);
	}
	s->n++;
}

static void read_all(const char *text, size_t n, struct seen *s)
{
	FILE *f = fmemopen((void *)text, n, "r");

	CHECK(f);
	CHECK(mountinfo_each(f, check, s));
	fclose(f);
}

/* ---- as the kernel writes them ---- */

static void put_escaped(FILE *f, const char *s)
{
	for (; *s; s++)
		if (strchr(" \t\n\\#", *s))
			fprintf(f, "\\%03o", (unsigned char)*s);
		else
			fputc(*s, f);
}

/* What never has a byte that is escaped: the others become an x. */
static void make_plain(char *s)
{
	for (; *s; s++)
		if (strchr(" \t\n\\#", *s))
			*s = 'x';
}

static size_t split(char *text, size_t n, char *ret[MAX_TEXTS])
{
	size_t count = 0;

	for (char *at = text; at < text + n && count < MAX_TEXTS; at += strlen(at) + 1)
		ret[count++] = at;
	return count;
}

static void round_trip(char *text, size_t n)
{
	struct mountinfo want[MAX_MOUNTS];
	char *texts[MAX_TEXTS], *list = NULL;
	size_t size = 0, mounts = split(text, n, texts) / 4;
	FILE *f = open_memstream(&list, &size);

	CHECK(f);
	for (size_t i = 0; i < mounts; i++) {
		char **t = texts + 4 * i;

		make_plain(t[0]);
		make_plain(t[2]);
		want[i] = (struct mountinfo){ (unsigned)i, 1, t[0], t[1], t[2], t[3] };
		for (char *c = t[3]; *c; c++)
			*c = *c == '\n' ? ' ' : *c;
		fprintf(f, "%zu 1 %s / ", i, t[0]);
		put_escaped(f, t[1]);
		/* optional fields */
		fprintf(f, " ro,relatime %s- %s %s %s\n", i % 2 ? "shared:1 master:2 " : "", t[2],
			i % 3 ? "none" : "", t[3]);
	}
	fclose(f);
	if (size) {
		struct seen s = { .want = want, .max = mounts };

		read_all(list, size, &s);
		CHECK(s.n == mounts);
	}
	free(list);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct seen s = { .max = 1 };
	char *text;

	if (n == 0)
		return 0;
	text = malloc(n + 1);
	CHECK(text);
	memcpy(text, data, n);
	text[n] = '\0';
	for (size_t i = 0; i < n; i++)
		s.max += data[i] == '\n';
	read_all(text, n, &s);
	CHECK(s.bytes <= n);
	round_trip(text, n);
	free(text);
	return 0;
}
