/* SPDX-License-Identifier: Apache-2.0 */
#include "mount/inode_notes.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mount/mount.h"

/*
 * the limit for notes and the tables that the next process makes of them: bytes, and a share of the
 * carton's memory
 */
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

struct inode_notes {
	int fd;
	off_t start;
	struct pair *by_ino, *by_node; /* of earlier processes, sorted */
	size_t n;
	pthread_mutex_t lock; /* guards what follows, and writing */
	off_t end;
	uint64_t room; /* bytes for further notes, counted by cost() */
	bool full;     /* there was no room for a note, which was logged */
};

/* Bytes of memory for a note of that size, here and in the next process. */
static uint64_t cost(size_t size)
{
	return size + 2 * sizeof(struct pair);
}

static bool take(struct inode_notes *notes, size_t size)
{
	bool fits = cost(size) <= notes->room;

	notes->room -= fits ? cost(size) : 0;
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

/* Counts the notes. They end before the first one that is cut off, or that there is no room for. */
static size_t count(struct inode_notes *notes, const char *text, size_t size, size_t *ret_end)
{
	size_t at = 0, end = 0, n = 0;
	const char *path;
	uint64_t ino;

	for (; next(text, size, &at, &ino, &path) && take(notes, at - end); n++)
		end = at;
	*ret_end = end;
	return n;
}

/* May an earlier process have given the node that number? */
static bool is_possible(const struct mount *m, uint64_t ino, const struct carton_node *node)
{
	return ino >> 48 != 0 && ino >> 48 < m->epoch && mount_is_generated(m, node);
}

/* Sorts the notes into both tables. Of several notes with one number, one stays. */
static void sort(struct inode_notes *notes, size_t n)
{
	qsort(notes->by_ino, n, sizeof(*notes->by_ino), compare_inos);
	for (size_t i = 0; i < n; i++)
		if (i == 0 || notes->by_ino[i].ino != notes->by_ino[i - 1].ino)
			notes->by_node[notes->n++] = notes->by_ino[i];
	memcpy(notes->by_ino, notes->by_node, notes->n * sizeof(*notes->by_ino));
	qsort(notes->by_node, notes->n, sizeof(*notes->by_node), compare_nodes);
	for (size_t i = 0; i < notes->n; i++)
		mark_add(notes->by_node[i].node, MARK_NOTED);
}

static int find_all(struct inode_notes *notes, const char *text, size_t size, const struct mount *m)
{
	size_t at, found = 0, n = count(notes, text, size, &size);
	const char *path;
	uint64_t ino;

	notes->end = notes->start + (off_t)size;
	notes->by_ino = calloc(n + 1, sizeof(*notes->by_ino));
	notes->by_node = calloc(n + 1, sizeof(*notes->by_node));
	if (!notes->by_ino || !notes->by_node)
		return -ENOMEM;
	for (at = 0; next(text, size, &at, &ino, &path);) {
		struct pair *p = &notes->by_ino[found];
		int r = carton_resolve(m->carton, path, &p->node);

		/* all readers wait meanwhile, so later files are not tried */
		if (r == -ETIMEDOUT)
			break;
		if (r < 0 || !is_possible(m, ino, p->node))
			continue;
		p->ino = ino;
		found++;
	}
	sort(notes, found);
	return 0;
}

static int load(struct inode_notes *notes, const struct mount *m)
{
	off_t size = lseek(notes->fd, 0, SEEK_END);
	char *text;
	int r;

	if (size < 0)
		return -errno;
	/* nodes of notes over the limit are found by their names */
	size = size < notes->start ? 0 : MIN(size - notes->start, (off_t)notes->room);
	text = malloc((size_t)size + 1);
	if (!text)
		return -ENOMEM;
	r = pread(notes->fd, text, (size_t)size, notes->start) == size ?
		    find_all(notes, text, (size_t)size, m) :
		    -EIO;
	free(text);
	/* cuts off the rest: the next note is written behind the last complete one */
	if (r == 0 && ftruncate(notes->fd, notes->end) < 0)
		r = -errno;
	return r;
}

int inode_notes_new(int fd, off_t start, const struct mount *m, struct inode_notes **ret)
{
	struct inode_notes *notes = malloc(sizeof(*notes));
	int r;

	if (!notes)
		return -ENOMEM;
	*notes = (struct inode_notes){ .fd = fd,
				       .start = start,
				       .lock = PTHREAD_MUTEX_INITIALIZER };
	notes->room = MIN(carton_memory(m->carton) / SHARE, MAX_MEMORY);
	r = load(notes, m);
	if (r < 0) {
		inode_notes_free(notes);
		return r;
	}
	*ret = notes;
	return 0;
}

void inode_notes_free(struct inode_notes *notes)
{
	if (!notes)
		return;
	free(notes->by_ino);
	free(notes->by_node);
	free(notes);
}

void inode_notes_add(struct inode_notes *notes, struct carton_node *node, uint64_t ino)
{
	char note[HEADER_SIZE + MAX_PATH];
	bool full = false;
	uint16_t len;
	size_t size;

	if (!notes || mark_add(node, MARK_NOTED) & MARK_NOTED)
		return;
	carton_path(node, note + HEADER_SIZE);
	len = (uint16_t)(strlen(note + HEADER_SIZE) + 1);
	memcpy(note, &ino, sizeof(ino));
	memcpy(note + sizeof(ino), &len, sizeof(len));
	size = HEADER_SIZE + len;
	pthread_mutex_lock(&notes->lock);
	if (!take(notes, size)) {
		full = !notes->full;
		notes->full = true;
	} else if (pwrite(notes->fd, note, size, notes->end) == (ssize_t)size) {
		notes->end += (off_t)size; /* the next note overwrites one that was cut off */
	}
	pthread_mutex_unlock(&notes->lock);
	if (full)
		carton_log(CARTON_LOG_WARNING, NULL,
			   "the notes of generated files have reached an eighth of the memory "
			   "limit: a program that has further ones open gets an error after a "
			   "restart; allow more with memory=");
}

static const struct pair *find(const struct inode_notes *notes, const struct pair *key,
			       const struct pair *pairs,
			       int (*compare)(const void *a, const void *b))
{
	return notes->n ? bsearch(key, pairs, notes->n, sizeof(*key), compare) : NULL;
}

struct carton_node *inode_notes_find(const struct inode_notes *notes, uint64_t ino)
{
	const struct pair key = { .ino = ino };
	const struct pair *found = notes ? find(notes, &key, notes->by_ino, compare_inos) : NULL;

	return found ? found->node : NULL;
}

uint64_t inode_notes_ino(const struct inode_notes *notes, const struct carton_node *node)
{
	const struct pair key = { .node = (struct carton_node *)node };
	const struct pair *found = notes ? find(notes, &key, notes->by_node, compare_nodes) : NULL;

	return found ? found->ino : 0;
}
