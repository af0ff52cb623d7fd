/* SPDX-License-Identifier: Apache-2.0 */
#include "mount/known.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mount/mount.h"

/* bytes of notes and of what the next process makes of them, at most, and as a share of the carton's memory */
#define MAX_MEMORY (64 << 20)
#define SHARE 8
#define MAX_PATH 4096
#define MIN(a, b) ((a) < (b) ? (a) : (b))

/* A note: the inode number, the size of the path, and the path with its NUL. */
#define HEADER_SIZE (sizeof(uint64_t) + sizeof(uint16_t))

struct pair {
	uint64_t ino;
	struct carton_node *node;
};

struct known {
	int fd;
	off_t start;
	struct pair *by_ino, *by_node; /* of earlier processes, sorted */
	size_t n;
	pthread_mutex_t lock; /* guards what follows, and writing */
	off_t end;
	uint64_t room; /* for further notes, as cost() has them */
	bool full;     /* logged */
};

/* Bytes of memory for a note of that size, here and in the next process. */
static uint64_t cost(size_t size)
{
	return size + 2 * sizeof(struct pair);
}

static bool take(struct known *k, size_t size)
{
	bool fits = cost(size) <= k->room;

	k->room -= fits ? cost(size) : 0;
	return fits;
}

static int compare_inos(const void *a, const void *b)
{
	const struct pair *x = a, *y = b;

	return x->ino < y->ino ? -1 : x->ino > y->ino;
}

static int compare_nodes(const void *a, const void *b)
{
	const struct pair *x = a, *y = b;

	return x->node < y->node ? -1 : x->node > y->node;
}

/*
 * Reads the note at *at; `ret_path` points into `text`. False at the end, or if the note is cut
 * off.
 */
static bool next(const char *text, size_t size, size_t *at, uint64_t *ret_ino,
		 const char **ret_path)
{
	uint16_t len;

	if (size - *at < HEADER_SIZE)
		return false;
	memcpy(ret_ino, text + *at, sizeof(*ret_ino));
	memcpy(&len, text + *at + sizeof(*ret_ino), sizeof(len));
	if (len == 0 || len > size - *at - HEADER_SIZE || text[*at + HEADER_SIZE + len - 1] != '\0')
		return false;
	*ret_path = text + *at + HEADER_SIZE;
	*at += HEADER_SIZE + len;
	return true;
}

/* How many notes there are, and where they end: before one that is cut off, or for which there is no room. */
static size_t count(struct known *k, const char *text, size_t size, size_t *ret_end)
{
	size_t at = 0, end = 0, n = 0;
	const char *path;
	uint64_t ino;

	for (; next(text, size, &at, &ino, &path) && take(k, at - end); n++)
		end = at;
	*ret_end = end;
	return n;
}

/* May an earlier process have given the node that number? A later one is an address in this process. */
static bool is_possible(const struct mount *m, uint64_t ino, const struct carton_node *node)
{
	return ino >> 48 != 0 && ino >> 48 < m->epoch && !carton_number(m->carton, node);
}

/* Of the notes with one number, one counts. */
static void sort(struct known *k, size_t n)
{
	qsort(k->by_ino, n, sizeof(*k->by_ino), compare_inos);
	for (size_t i = 0; i < n; i++)
		if (i == 0 || k->by_ino[i].ino != k->by_ino[i - 1].ino)
			k->by_node[k->n++] = k->by_ino[i];
	memcpy(k->by_ino, k->by_node, k->n * sizeof(*k->by_ino));
	qsort(k->by_node, k->n, sizeof(*k->by_node), compare_nodes);
	for (size_t i = 0; i < k->n; i++)
		atomic_fetch_or(carton_mark(k->by_node[i].node), MARK_NOTED);
}

static int find_all(struct known *k, const char *text, size_t size, const struct mount *m)
{
	size_t at, found = 0, n = count(k, text, size, &size);
	const char *path;
	uint64_t ino;

	k->end = k->start + (off_t)size;
	k->by_ino = calloc(n + 1, sizeof(*k->by_ino));
	k->by_node = calloc(n + 1, sizeof(*k->by_node));
	if (!k->by_ino || !k->by_node)
		return -ENOMEM;
	for (at = 0; next(text, size, &at, &ino, &path);) {
		struct pair *p = &k->by_ino[found];
		int r = carton_resolve(m->carton, path, &p->node);

		/* all readers wait meanwhile, so later files are not tried */
		if (r == -ETIMEDOUT)
			break;
		if (r < 0 || !is_possible(m, ino, p->node))
			continue;
		p->ino = ino;
		found++;
	}
	sort(k, found);
	return 0;
}

static int load(struct known *k, const struct mount *m)
{
	off_t size = lseek(k->fd, 0, SEEK_END);
	char *text;
	int r;

	if (size < 0)
		return -errno;
	/* what is over the limit now is found by its name */
	size = size < k->start ? 0 : MIN(size - k->start, (off_t)k->room);
	text = malloc((size_t)size + 1);
	if (!text)
		return -ENOMEM;
	r = pread(k->fd, text, (size_t)size, k->start) == size ?
		    find_all(k, text, (size_t)size, m) :
		    -EIO;
	free(text);
	/* the next note follows the last one that counts, and nothing follows that */
	if (r == 0 && ftruncate(k->fd, k->end) < 0)
		r = -errno;
	return r;
}

int known_open(int fd, off_t start, const struct mount *m, struct known **ret)
{
	struct known *k = malloc(sizeof(*k));
	int r;

	if (!k)
		return -ENOMEM;
	*k = (struct known){ .fd = fd, .start = start, .lock = PTHREAD_MUTEX_INITIALIZER };
	k->room = MIN(carton_memory(m->carton) / SHARE, MAX_MEMORY);
	r = load(k, m);
	if (r < 0) {
		known_free(k);
		return r;
	}
	*ret = k;
	return 0;
}

void known_free(struct known *k)
{
	if (!k)
		return;
	free(k->by_ino);
	free(k->by_node);
	free(k);
}

void known_note(struct known *k, struct carton_node *node, uint64_t ino)
{
	char note[HEADER_SIZE + MAX_PATH];
	bool full = false;
	uint16_t len;
	size_t size;

	if (!k || atomic_fetch_or(carton_mark(node), MARK_NOTED) & MARK_NOTED)
		return;
	carton_path(node, note + HEADER_SIZE);
	len = (uint16_t)(strlen(note + HEADER_SIZE) + 1);
	memcpy(note, &ino, sizeof(ino));
	memcpy(note + sizeof(ino), &len, sizeof(len));
	size = HEADER_SIZE + len;
	pthread_mutex_lock(&k->lock);
	if (!take(k, size)) {
		full = !k->full;
		k->full = true;
	} else if (pwrite(k->fd, note, size, k->end) == (ssize_t)size) {
		k->end += (off_t)size; /* the next note overwrites one that was cut off */
	}
	pthread_mutex_unlock(&k->lock);
	if (full)
		carton_log(CARTON_LOG_WARNING, NULL,
			   "no more generated files can be noted: that takes an eighth of the "
			   "memory limit; who has further ones open gets an error after a restart; "
			   "allow more with memory=");
}

static const struct pair *find(const struct known *k, const struct pair *key,
			       const struct pair *pairs,
			       int (*compare)(const void *a, const void *b))
{
	return k->n ? bsearch(key, pairs, k->n, sizeof(*key), compare) : NULL;
}

struct carton_node *known_find(const struct known *k, uint64_t ino)
{
	const struct pair key = { .ino = ino };
	const struct pair *found = k ? find(k, &key, k->by_ino, compare_inos) : NULL;

	return found ? found->node : NULL;
}

uint64_t known_ino(const struct known *k, const struct carton_node *node)
{
	const struct pair key = { .node = (struct carton_node *)node };
	const struct pair *found = k ? find(k, &key, k->by_node, compare_nodes) : NULL;

	return found ? found->ino : 0;
}
