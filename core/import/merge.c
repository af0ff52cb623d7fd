/* SPDX-License-Identifier: Apache-2.0 */
#include "import/merge.h"

#include <stdlib.h>

#include "archive/container.h"
#include "base/budget.h"
#include "base/util.h"

#define WHITEOUT ".wh."
#define OPAQUE ".wh..wh..opq"

void merge_init(struct merge *m)
{
	m->names.budget = m->budget;
}

static void give(struct merge *m, uint64_t n)
{
	budget_give(m->budget, n);
	m->taken -= n;
}

static void forget(struct merge *m)
{
	for (size_t i = 0; i < m->n_fresh; i++)
		free(m->fresh[i].tags);
	m->n_fresh = m->n_whiteouts = 0;
}

void merge_begin(struct merge *m, uint32_t layer)
{
	forget(m);
	m->layer = layer;
}

void merge_finish(struct merge *m)
{
	forget(m);
	for (size_t i = 0; i < m->n; i++)
		free(m->list[i].tags);
	free(m->list);
	free(m->fresh);
	free(m->whiteouts);
	budget_give(m->budget, m->taken);
	arena_finish(&m->names);
}

/* ---- paths ---- */

ssize_t merge_path(const char *from, const char *path, char *ret)
{
	const char *slash = from && *path != '/' ? strrchr(from, '/') : NULL;
	size_t len = 0;

	if (slash) {
		len = (size_t)(slash - from);
		memcpy(ret, from, len);
	}
	for (;;) {
		size_t n;

		while (*path == '/')
			path++;
		n = strcspn(path, "/");
		if (n == 0)
			break;
		if (n == 2 && path[0] == '.' && path[1] == '.') {
			if (len == 0)
				return -EBADMSG;
			while (len > 0 && ret[--len] != '/')
				;
		} else if (n > 1 || *path != '.') {
			if (len + 1 + n > MAX_PATH_LEN)
				return -ENAMETOOLONG;
			if (len > 0)
				ret[len++] = '/';
			memcpy(ret + len, path, n);
			len += n;
		}
		path += n;
	}
	ret[len] = '\0';
	return (ssize_t)len;
}

/* Has `path` a component ".."? An entry must not, even if it stays in the tree. */
static bool goes_up(const char *path)
{
	for (const char *p = path; p; p = strchr(p, '/')) {
		p += *p == '/';
		if (p[0] == '.' && p[1] == '.' && (p[2] == '/' || !p[2]))
			return true;
	}
	return false;
}

bool merge_is_below(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	return n == 0 || (strncmp(path, dir, n) == 0 && path[n] == '/');
}

/* ---- members ---- */

static int by_path(const void *a, const void *b)
{
	const struct member *x = a, *y = b;
	int order = path_compare(x->path, y->path);

	return order ? order : (x->at > y->at) - (x->at < y->at);
}

static int refuse(const struct merge *m, const char *path, const char *what)
{
	return log_error(-EBADMSG, path, "in layer %u of %s, %s", m->layer, m->name, what);
}

static int add_whiteout(struct merge *m, char *path, char *base)
{
	int r;

	/* metadata of aufs, which is no whiteout */
	if (strcmp(base, OPAQUE) != 0 && strncmp(base, WHITEOUT WHITEOUT, 8) == 0)
		return 0;
	r = budget_room(m->budget, &m->taken, m->whiteouts, &m->cap_whiteouts, m->n_whiteouts + 1);
	if (r < 0)
		return r;
	m->whiteouts[m->n_whiteouts].self = strcmp(base, OPAQUE) != 0;
	if (m->whiteouts[m->n_whiteouts].self)
		memmove(base, base + strlen(WHITEOUT), strlen(base + strlen(WHITEOUT)) + 1);
	else if (base > path)
		base[-1] = '\0';
	else
		*base = '\0';
	path = arena_text(&m->names, path, strlen(path));
	if (!path)
		return arena_error(&m->names);
	m->whiteouts[m->n_whiteouts++].path = path;
	return 0;
}

/* Copies the tags. Seals of them are written once the digest of the layer was compared. */
static void take_tags(struct merge *m, const struct tar_entry *e, struct member *f)
{
	size_t n = (size_t)((e->in.size + TAG_BLOCK - 1) / TAG_BLOCK) * TAG_SIZE;

	if (!e->in.tags || !budget_try(m->budget, n))
		return;
	m->taken += n;
	f->tags = malloc(n);
	if (f->tags)
		memcpy(f->tags, e->in.tags, n);
}

int merge_add(struct merge *m, const struct tar_entry *e)
{
	char path[MAX_PATH_LEN + 1], *base;
	struct member *f;
	ssize_t len = goes_up(e->path) ? -EBADMSG : merge_path(NULL, e->path, path);
	int r;

	if (len < 0)
		return refuse(m, e->path,
			      len == -EBADMSG ? "leads out of the tree, by \"..\"" :
						"is longer than 4095 bytes");
	if (len == 0)
		return 0;
	if (e->target && strlen(e->target) > MAX_PATH_LEN)
		return refuse(m, path, "is a link to a name that is longer than 4095 bytes");
	base = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
	if (strncmp(base, WHITEOUT, strlen(WHITEOUT)) == 0)
		return add_whiteout(m, path, base);
	r = budget_room(m->budget, &m->taken, m->fresh, &m->cap_fresh, m->n_fresh + 1);
	if (r < 0)
		return r;
	f = &m->fresh[m->n_fresh];
	*f = (struct member){ .off = e->off,
			      .size = e->in.size,
			      .layer = m->layer,
			      .at = (uint32_t)m->n_fresh,
			      .kind = (uint8_t)e->kind,
			      .executable = e->executable,
			      .fresh = true };
	memcpy(f->sha256, e->in.sha256, SHA256_SIZE);
	f->path = arena_text(&m->names, path, (size_t)len);
	if (e->target)
		f->target = arena_text(&m->names, e->target, strlen(e->target));
	if (!f->path || (e->target && !f->target))
		return arena_error(&m->names);
	m->n_fresh++;
	take_tags(m, e, f);
	return 0;
}

void merge_forget(struct merge *m, const char *path)
{
	size_t n = 0;

	for (size_t i = 0; i < m->n_fresh; i++) {
		if (strcmp(m->fresh[i].path, path) == 0)
			free(m->fresh[i].tags);
		else
			m->fresh[n++] = m->fresh[i];
	}
	m->n_fresh = n;
}

/* The index of the first of `n` sorted members that does not sort before `key`. */
static size_t find(const struct member *list, size_t n, const struct member *key)
{
	size_t low = 0;

	while (low < n) {
		size_t mid = low + (n - low) / 2;

		if (by_path(&list[mid], key) < 0)
			low = mid + 1;
		else
			n = mid;
	}
	return low;
}

/* The index of the first member of the list whose path does not sort before `path`. */
static size_t find_path(const struct merge *m, const char *path)
{
	return find(m->list, m->n, &(struct member){ .path = path });
}

struct member *merge_find(const struct merge *m, const char *path)
{
	size_t i = find_path(m, path);

	return i < m->n && strcmp(m->list[i].path, path) == 0 ? &m->list[i] : NULL;
}

/* ---- one layer ---- */

/*
 * Finds the member that `path` names when the entry at `at` is read: in this layer, whose members
 * are sorted, or else in a lower one.
 */
static const struct member *find_before(const struct merge *m, const char *path, uint32_t at)
{
	size_t i = find(m->fresh, m->n_fresh, &(struct member){ .path = path, .at = at });

	return i > 0 && strcmp(m->fresh[i - 1].path, path) == 0 ? &m->fresh[i - 1] :
								  merge_find(m, path);
}

/* Makes a hard link a file, or symlink, like the one it leads to. */
static int resolve_hard(const struct merge *m, struct member *f)
{
	char path[MAX_PATH_LEN + 1];
	const struct member *to = goes_up(f->target) || merge_path(NULL, f->target, path) <= 0 ?
					  NULL :
					  find_before(m, path, f->at);

	if (!to || (to->kind != TAR_FILE && to->kind != TAR_SYMLINK))
		return refuse(m, f->path, "is a hard link to what is no file of the tree");
	f->kind = to->kind;
	f->target = to->target;
	f->off = to->off;
	f->size = to->size;
	f->layer = to->layer;
	f->executable = to->executable;
	memcpy(f->sha256, to->sha256, SHA256_SIZE);
	return 0;
}

/*
 * Resolves hard links in the order of the tar, as one may lead to an earlier one. `places` is room
 * for the index in `fresh` of each entry.
 */
static int resolve_in_order(struct merge *m, uint32_t *places)
{
	int r = 0;

	for (size_t i = 0; i < m->n_fresh; i++)
		places[m->fresh[i].at] = (uint32_t)i;
	for (size_t i = 0; i < m->n_fresh && r == 0; i++)
		if (m->fresh[places[i]].kind == TAR_HARDLINK)
			r = resolve_hard(m, &m->fresh[places[i]]);
	return r;
}

static int resolve_all_hard(struct merge *m)
{
	uint64_t size = m->n_fresh * sizeof(uint32_t);
	uint32_t *places;
	size_t n = 0;
	int r;

	for (size_t i = 0; i < m->n_fresh; i++)
		n += m->fresh[i].kind == TAR_HARDLINK;
	if (n == 0)
		return 0;
	r = budget_take(m->budget, size);
	if (r < 0)
		return r;
	places = malloc(size);
	r = places ? resolve_in_order(m, places) : -ENOMEM;
	free(places);
	budget_give(m->budget, size);
	return r;
}

/* Keeps the last member of each path. Checks that none is below a member that is no directory. */
static int settle(struct merge *m)
{
	size_t n = 0;

	for (size_t i = 0; i < m->n_fresh; i++) {
		if (i + 1 < m->n_fresh && strcmp(m->fresh[i].path, m->fresh[i + 1].path) == 0)
			free(m->fresh[i].tags);
		else
			m->fresh[n++] = m->fresh[i];
	}
	m->n_fresh = n;
	for (size_t i = 1; i < n; i++)
		if (m->fresh[i - 1].kind != TAR_DIR &&
		    merge_is_below(m->fresh[i].path, m->fresh[i - 1].path))
			return refuse(m, m->fresh[i].path,
				      "is below what is a file or a link there, not a directory");
	return 0;
}

/*
 * Removes from lower layers all members below `path`, and with `self` the one at it. Calls come in
 * the order of paths; members before index `*from` were removed by earlier ones.
 */
static void take_away(struct merge *m, const char *path, bool self, size_t *from)
{
	size_t i = find_path(m, path);

	if (i < m->n && strcmp(m->list[i].path, path) == 0)
		m->list[i++].gone |= self;
	for (i = MAX(i, *from); i < m->n && merge_is_below(m->list[i].path, path); i++)
		m->list[i].gone = true;
	*from = MAX(*from, i);
}

static int by_whiteout(const void *a, const void *b)
{
	return path_compare(((const struct whiteout *)a)->path, ((const struct whiteout *)b)->path);
}

static void take_all_away(struct merge *m)
{
	size_t from = 0;

	if (m->n_whiteouts)
		qsort(m->whiteouts, m->n_whiteouts, sizeof(*m->whiteouts), by_whiteout);
	for (size_t i = 0; i < m->n_whiteouts; i++)
		take_away(m, m->whiteouts[i].path, m->whiteouts[i].self, &from);
	from = 0;
	for (size_t i = 0; i < m->n_fresh; i++) {
		struct member *same = merge_find(m, m->fresh[i].path);

		if (m->fresh[i].kind != TAR_DIR)
			take_away(m, m->fresh[i].path, true, &from);
		else if (same)
			same->gone = true;
	}
}

/* Merges both lists into `ret`, without directories and members that are gone. */
static void join(struct merge *m, struct member *ret, size_t *ret_n)
{
	size_t i = 0, k = 0, n = 0;

	while (i < m->n || k < m->n_fresh) {
		bool lower = k == m->n_fresh ||
			     (i < m->n && path_compare(m->list[i].path, m->fresh[k].path) < 0);
		struct member *f = lower ? &m->list[i++] : &m->fresh[k++];

		/* a file of a lower layer gives way to a directory of this one */
		if (n > 0 && !lower && !ret[n - 1].fresh &&
		    merge_is_below(f->path, ret[n - 1].path))
			free(ret[--n].tags);
		if (f->gone || f->kind == TAR_DIR)
			free(f->tags);
		else
			ret[n++] = *f;
	}
	for (i = 0; i < n; i++)
		ret[i].fresh = false;
	m->n_fresh = 0;
	*ret_n = n;
}

int merge_layer(struct merge *m)
{
	struct member *all = NULL;
	size_t n = 0, cap = 0;
	int r;

	if (m->n_fresh)
		qsort(m->fresh, m->n_fresh, sizeof(*m->fresh), by_path);
	r = resolve_all_hard(m);
	if (r == 0)
		r = settle(m);
	if (r == 0)
		r = budget_room(m->budget, &m->taken, all, &cap, m->n + m->n_fresh + 1);
	if (r < 0)
		return r;
	take_all_away(m);
	join(m, all, &n);
	free(m->list);
	give(m, m->cap * sizeof(*m->list));
	m->list = all;
	m->cap = cap;
	m->n = n;
	return 0;
}
