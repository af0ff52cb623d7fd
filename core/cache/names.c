/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of objects, for people: which file of which source each one was when it came. Nothing
 * verifies them.
 *
 * v1/names has a line for each: the sha256 in hex, a tab, the path, a tab, the source. Each line is
 * appended by one write(2), so those of several processes do not mix. A full file becomes
 * v1/names.old, in place of an earlier one. The last of several lines for one object counts.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file_size.h"
#include "cache/internal.h"

#define MAX_LINE (HEX_SIZE + 2 * (1 + MAX_CACHE_NAME) + 1)

struct name {
	uint8_t sha256[32];
	const char *path, *source; /* in the text */
};

struct cache_names {
	char *text;
	struct name *list; /* sorted, one for each object */
	size_t n, cap;
};

/* ---- writing ---- */

/* Writes a tab and the text, or the end of a text that is too long. Returns the bytes written. */
static size_t add_text(char *to, const char *text)
{
	size_t n = strlen(text);

	if (n > MAX_CACHE_NAME) {
		text += n - MAX_CACHE_NAME;
		n = MAX_CACHE_NAME;
	}
	to[0] = '\t';
	for (size_t i = 0; i < n; i++)
		to[i + 1] = (unsigned char)text[i] < ' ' || text[i] == 0x7f ? '?' : text[i];
	return n + 1;
}

/* Appends the line, unless the file is full. 0, -EFBIG with the file's number, or -errno. */
static int append(struct cache *c, const char *line, size_t n, ino_t *ret_ino)
{
	struct stat st = { 0 };
	ssize_t written = (ssize_t)n;
	int fd, r = cache_open_file(c->v1, NAMES_FILE, O_WRONLY | O_APPEND | O_CREAT, &fd);

	if (r < 0)
		return r;
	r = fstat(fd, &st) < 0 ? -errno : 0;
	*ret_ino = st.st_ino;
	if (r == 0 && (uint64_t)st.st_size + n > MAX_CACHE_NAMES)
		r = -EFBIG;
	/* also not a part of a line, which the next one would continue */
	if (r == 0 && (uint64_t)st.st_size + n > file_size_limit())
		r = -ENOSPC;
	if (r == 0)
		written = fd_append(fd, line, n);
	/* the disk is full: the next line must not continue this one */
	if (written > 0 && (size_t)written < n)
		written = fd_append(fd, "\n", 1);
	fd_close(fd);
	return written == -EFBIG ? -ENOSPC : written < 0 ? (int)written : r;
}

void cache_name_put(struct cache *c, const uint8_t sha256[32], const char *path, const char *source)
{
	char line[MAX_LINE];
	size_t n = HEX_SIZE - 1;
	struct stat st;
	ino_t full;

	if (!c)
		return;
	hex_encode(sha256, 32, line);
	n += add_text(line + n, path);
	n += add_text(line + n, source);
	line[n++] = '\n';
	if (append(c, line, n, &full) != -EFBIG)
		return;
	/* another process may have done so by now */
	if (fstatat(c->v1, NAMES_FILE, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_ino == full)
		renameat(c->v1, NAMES_FILE, c->v1, NAMES_OLD_FILE);
	append(c, line, n, &full);
}

/* ---- reading ---- */

/* Appends what the file has to `text`, which has room for it. Returns the new length. */
static size_t add_file(struct cache *c, const char *file, char *text, size_t at)
{
	struct stat st;
	size_t n = 0;
	int fd;

	if (cache_open_file(c->v1, file, O_RDONLY, &fd) < 0)
		return at;
	if (fstat(fd, &st) == 0)
		n = (size_t)MIN((uint64_t)st.st_size, MAX_CACHE_NAMES);
	if (pread_full(fd, text + at, n, 0) < 0)
		n = 0;
	fd_close(fd);
	return at + n;
}

/* Splits a line, which ends with a NUL. Text that is no such line is left out. 0 or -ENOMEM. */
static int add_line(struct cache_names *names, char *line)
{
	struct name name = { .path = line + HEX_SIZE };
	struct name *list;
	char *tab;

	if (strlen(line) < HEX_SIZE || line[HEX_SIZE - 1] != '\t' ||
	    !hex_decode(line, 32, name.sha256))
		return 0;
	tab = strchr(name.path, '\t');
	if (!tab)
		return 0;
	*tab = '\0';
	name.source = tab + 1;
	list = array_grow(names->list, &names->cap, names->n + 1, sizeof(*list));
	if (!list)
		return -ENOMEM;
	names->list = list;
	list[names->n++] = name;
	return 0;
}

static int by_sha256(const void *a, const void *b)
{
	return memcmp(((const struct name *)a)->sha256, ((const struct name *)b)->sha256, 32);
}

/* The later one, which is behind the other in the text, comes last. */
static int by_age(const void *a, const void *b)
{
	const struct name *x = a, *y = b;
	int r = by_sha256(x, y);

	return r ? r : (x->path > y->path) - (x->path < y->path);
}

static void sort(struct cache_names *names)
{
	size_t n = 0;

	if (names->n)
		qsort(names->list, names->n, sizeof(*names->list), by_age);
	for (size_t i = 0; i < names->n; i++)
		if (i + 1 == names->n || by_sha256(&names->list[i], &names->list[i + 1]) != 0)
			names->list[n++] = names->list[i];
	names->n = n;
}

int cache_names_read(struct cache *c, struct cache_names **ret)
{
	struct cache_names *names = calloc(1, sizeof(*names));
	size_t n = 0;
	int r = 0;

	if (names)
		names->text = malloc(2 * MAX_CACHE_NAMES + 2);
	if (!names || !names->text) {
		free(names);
		return -ENOMEM;
	}
	n = add_file(c, NAMES_OLD_FILE, names->text, n);
	names->text[n++] = '\n';
	n = add_file(c, NAMES_FILE, names->text, n);
	names->text[n] = '\0';
	for (char *line = names->text, *end; r == 0 && line < names->text + n; line = end + 1) {
		end = memchr(line, '\n', (size_t)(names->text + n - line));
		end = end ? end : names->text + n;
		*end = '\0';
		r = add_line(names, line);
	}
	if (r < 0) {
		cache_names_free(names);
		return r;
	}
	sort(names);
	*ret = names;
	return 0;
}

void cache_names_find(const struct cache_names *names, struct cache_object *object)
{
	struct name key = { .path = NULL };
	const struct name *found;

	memcpy(key.sha256, object->sha256, 32);
	found = names->n ? bsearch(&key, names->list, names->n, sizeof(key), by_sha256) : NULL;
	object->path = found ? found->path : NULL;
	object->source = found ? found->source : NULL;
}

void cache_names_free(struct cache_names *names)
{
	if (!names)
		return;
	free(names->list);
	free(names->text);
	free(names);
}
