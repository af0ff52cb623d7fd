/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The space of the cache: counts it, and removes the files that were used longest ago and that
 * nobody uses now. No file is removed without the lock of its object.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/pace.h"
#include "cache/internal.h"

#define COUNT_SHARE 64 /* count anew after so small a share of the limit was reserved */

enum kind {
	OBJECT,
	PARTIAL,
	SEAL,
};

struct item {
	uint8_t sha256[32];
	int64_t used_ns; /* last use, since the epoch */
	bool future;	 /* `used_ns` is in the future: the item counts as the oldest */
	uint64_t bytes;	 /* of disk */
	enum kind kind;
	bool damaged;
	bool removable; /* when last looked at */
};

struct count {
	enum kind kind;	    /* of the files that are counted now */
	struct item *items; /* only with `keep` */
	size_t n, cap;
	uint64_t total;
	bool keep;
	struct cache_grant *grants;
};

static uint64_t sat_add(uint64_t a, uint64_t b)
{
	uint64_t sum;

	return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

static int64_t stat_ns(const struct stat *st)
{
	int64_t ns;

	if (__builtin_mul_overflow((int64_t)st->st_mtim.tv_sec, 1000000000, &ns))
		return st->st_mtim.tv_sec < 0 ? 0 : INT64_MAX;
	return ns < 0 ? 0 : ns;
}

/* ---- counting ---- */

/*
 * The bytes that a file takes on disk. Some file systems allocate blocks late, so st_size counts if
 * it is larger; not for a partial, which may have holes.
 */
static uint64_t disk_bytes(const struct stat *st, enum kind kind)
{
	uint64_t bytes = (uint64_t)st->st_blocks * 512;

	return kind == PARTIAL ? bytes : MAX(bytes, (uint64_t)st->st_size);
}

static uint64_t granted_bytes(struct count *count, const uint8_t sha256[32])
{
	uint64_t bytes = 0;

	for (struct cache_grant *g = count->grants; g; g = g->next) {
		if (memcmp(g->sha256, sha256, 32) != 0)
			continue;
		g->met = true;
		bytes = MAX(bytes, g->bytes);
	}
	return bytes;
}

/* A cache_each_fn. */
static int count_add(void *ctx, const uint8_t sha256[32], const struct stat *st)
{
	struct count *count = ctx;
	uint64_t bytes = disk_bytes(st, count->kind);
	struct item *item;

	if (count->kind == PARTIAL)
		bytes = MAX(bytes, granted_bytes(count, sha256));
	count->total = sat_add(count->total, bytes);
	if (!count->keep)
		return 0;
	item = array_grow(count->items, &count->cap, count->n + 1, sizeof(*item));
	if (!item)
		return -ENOMEM;
	count->items = item;
	item = &count->items[count->n++];
	*item = (struct item){ .bytes = bytes, .kind = count->kind, .used_ns = stat_ns(st) };
	item->future = clock_is_future(st->st_mtim.tv_sec);
	item->damaged = count->kind == OBJECT && cache_is_damaged(st->st_mode);
	memcpy(item->sha256, sha256, 32);
	return 0;
}

static int item_cmp(const void *a, const void *b)
{
	const struct item *x = a, *y = b;

	if (x->damaged != y->damaged)
		return x->damaged ? -1 : 1;
	if (x->future != y->future)
		return x->future ? -1 : 1;
	if (x->used_ns != y->used_ns)
		return x->used_ns < y->used_ns ? -1 : 1;
	return memcmp(x->sha256, y->sha256, 32);
}

/* What a file will take that has another name by now, or none. */
static uint64_t still_to_come(const struct cache_grant *g)
{
	uint64_t have = g->fd < 0 ? 0 : cache_blocks(g->fd);

	return g->bytes - MIN(g->bytes, have);
}

/* Counts all files; with `keep` also lists them: the damaged ones first, then by last use. */
static int count_all(struct cache *c, bool keep, struct count *ret_count)
{
	struct count count = { .kind = OBJECT, .keep = keep, .grants = c->grants };
	int r;

	for (struct cache_grant *g = c->grants; g; g = g->next)
		g->met = false;
	r = cache_each(c, count_add, &count);
	count.kind = SEAL;
	if (r == 0)
		r = cache_each_in(c->seals, count_add, &count);
	count.kind = PARTIAL;
	if (r == 0)
		r = cache_each_in(c->partial, count_add, &count);
	if (r < 0) {
		free(count.items);
		return r;
	}
	for (const struct cache_grant *g = c->grants; g; g = g->next)
		if (!g->met)
			count.total = sat_add(count.total, still_to_come(g));
	if (count.n)
		qsort(count.items, count.n, sizeof(*count.items), item_cmp);
	*ret_count = count;
	return 0;
}

/* ---- removing ---- */

/*
 * Does nobody have the object open? Then *ret_fd, which has the exclusive flock, keeps lookups away
 * from it. A damaged object cannot be opened any more: *ret_fd is -1.
 */
static bool object_unused(struct cache *c, const struct item *item, int *ret_fd)
{
	char name[OBJECT_NAME_SIZE];
	struct stat st;
	int fd;

	*ret_fd = -1;
	cache_object_name(item->sha256, name);
	if (fstatat(c->objects, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return false;
	if (cache_is_damaged(st.st_mode))
		return true;
	if (cache_open_object(c, item->sha256, &fd) < 0)
		return false;
	/*
	 * The date has changed since the files were listed: somebody has used this one, so others
	 * go first.
	 */
	if (flock(fd, LOCK_EX | LOCK_NB) < 0 || fstat(fd, &st) < 0 ||
	    stat_ns(&st) != item->used_ns) {
		fd_close(fd);
		return false;
	}
	*ret_fd = fd;
	return true;
}

/*
 * Removes a file that nobody uses or fills; with `probe` only says whether it would. A file that is
 * gone already counts as removed: another process has made the room.
 */
static bool item_remove(struct cache *c, const struct item *item, bool probe)
{
	char name[OBJECT_NAME_SIZE];
	struct cache_lock lock;
	bool done = true;
	struct stat st;
	int fd = -1, r;

	cache_object_name(item->sha256, name);
	/* a seal is read whole when it is used, so nobody needs its file any more */
	if (item->kind == SEAL)
		return probe || unlinkat(c->seals, name + 3, 0) == 0 || errno == ENOENT;
	if (fstatat(item->kind == PARTIAL ? c->partial : c->objects,
		    item->kind == PARTIAL ? name + 3 : name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT;
	r = cache_lock_try(c, item->sha256, &lock);
	/* On a disk too full for a lock file, nobody holds a lock. */
	if (r < 0 && r != -ENOSPC && r != -EDQUOT)
		return false;
	if (item->kind == OBJECT)
		done = object_unused(c, item, &fd);
	if (done && !probe) {
		if (item->kind == PARTIAL)
			cache_remove_partial(c, item->sha256);
		else
			done = unlinkat(c->objects, name, 0) == 0 || errno == ENOENT;
	}
	fd_close(fd);
	if (r == 0)
		cache_lock_release(&lock);
	return done;
}

/* Marks the files that can be removed, up to `need` bytes. Returns how many bytes they have. */
static uint64_t probe_items(struct cache *c, struct count *count, uint64_t need)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < count->n && sum < need; i++) {
		count->items[i].removable = item_remove(c, &count->items[i], true);
		if (count->items[i].removable)
			sum = sat_add(sum, count->items[i].bytes);
	}
	return sum;
}

static uint64_t remove_items(struct cache *c, struct count *count, uint64_t need)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < count->n && sum < need; i++)
		if (count->items[i].removable && item_remove(c, &count->items[i], false))
			sum = sat_add(sum, count->items[i].bytes);
	return sum;
}

/* ---- making room; with space_lock held ---- */

static void counted(struct cache *c, uint64_t used)
{
	c->counted = true;
	c->counted_ms = now_ms();
	c->used = used;
	c->reserved = 0;
}

static bool count_is_stale(const struct cache *c)
{
	return !c->counted || now_ms() - c->counted_ms > pace.count_ms ||
	       c->reserved > c->limit / COUNT_SHARE;
}

static bool fits(struct cache *c, uint64_t bytes)
{
	uint64_t missing;

	return sat_add(c->used, bytes) <= c->limit &&
	       cache_disk_short(c->objects, bytes, UINT64_MAX, &missing) == 0 && missing == 0;
}

/* Is there room without a gc? Counts anew when the last count is too old to tell. */
static int has_room(struct cache *c, uint64_t bytes, bool *ret_room)
{
	struct count count;
	int r;

	if (count_is_stale(c)) {
		r = count_all(c, false, &count);
		if (r < 0)
			return r;
		counted(c, count.total);
	}
	*ret_room = fits(c, bytes);
	return 0;
}

/*
 * Removes files until `bytes` more fit, and at least `least` bytes; none when that is not possible.
 * Removes none if `ret_lacks` is set: that is how many bytes would be missing after all.
 */
static int make_room(struct cache *c, uint64_t bytes, uint64_t least, uint64_t *ret_lacks)
{
	uint64_t missing, more, total, removable, freed = 0;
	struct count count;
	int r;

	r = count_all(c, true, &count);
	if (r < 0)
		return r;
	r = cache_disk_short(c->objects, bytes, UINT64_MAX, &missing);
	if (r == 0) {
		total = sat_add(count.total, bytes);
		missing = MAX(missing, total > c->limit ? total - c->limit : 0);
		missing = MAX(missing, least);
		/* A little more than is missing, or a full cache would be listed each time. */
		more = missing ? sat_add(missing, count.total / COUNT_SHARE) : 0;
		removable = probe_items(c, &count, more);
		if (ret_lacks)
			*ret_lacks = missing - MIN(removable, missing);
		else if (removable >= missing)
			removable = freed = remove_items(c, &count, more);
		counted(c, count.total - MIN(freed, count.total));
		r = removable < missing ? -ENOSPC : 0;
	}
	free(count.items);
	return r;
}

/* With space_lock held. */
static int reserve_locked(struct cache *c, uint64_t bytes, uint64_t least, bool probe)
{
	uint64_t lacks;
	bool room = false;
	int r = 0;

	if (bytes > c->limit)
		return -ENOSPC;
	if (!least)
		r = has_room(c, bytes, &room);
	if (r == 0 && !room)
		r = make_room(c, bytes, least, probe ? &lacks : NULL);
	if (r == 0 && !probe) {
		c->used = sat_add(c->used, bytes);
		c->reserved = sat_add(c->reserved, bytes);
	}
	return r;
}

static int reserve(struct cache *c, uint64_t bytes, uint64_t least, bool probe)
{
	int r;

	pthread_mutex_lock(&c->space_lock);
	r = reserve_locked(c, bytes, least, probe);
	pthread_mutex_unlock(&c->space_lock);
	return r;
}

int cache_reserve(struct cache *c, uint64_t bytes)
{
	return reserve(c, bytes, 0, false);
}

int cache_could_reserve(struct cache *c, uint64_t bytes)
{
	return reserve(c, bytes, 0, true);
}

uint64_t cache_lacks(struct cache *c, uint64_t have, uint64_t bytes)
{
	uint64_t all = sat_add(have, bytes), lacks = 0;

	pthread_mutex_lock(&c->space_lock);
	make_room(c, bytes, 0, &lacks);
	pthread_mutex_unlock(&c->space_lock);
	return MAX(lacks, all > c->limit ? all - c->limit : 0);
}

void cache_log_full(struct cache *c, const char *subject, uint64_t bytes)
{
	int64_t now = now_ms(), before = atomic_exchange(&c->full_ms, now);
	char missing[64] = "";
	uint64_t lacks;

	if (before && now - before < pace.full_ms)
		return;
	lacks = cache_lacks(c, 0, bytes);
	if (lacks)
		snprintf(missing, sizeof(missing), ": %llu bytes (%.1f MiB) are missing",
			 (unsigned long long)lacks, (double)lacks / (double)MIB);
	carton_log(CARTON_LOG_NOTICE, subject,
		   "there is no room for it in the cache%s; the option cache_size allows more, or "
		   "cache_dir names another disk",
		   missing);
}

int cache_evict(struct cache *c, uint64_t bytes)
{
	return reserve(c, 0, bytes, false);
}

void cache_trim(struct cache *c, uint64_t bytes)
{
	bool room;

	pthread_mutex_lock(&c->space_lock);
	c->used = sat_add(c->used, bytes);
	c->reserved = sat_add(c->reserved, bytes);
	if (has_room(c, 0, &room) == 0 && !room)
		make_room(c, 0, 0, NULL);
	pthread_mutex_unlock(&c->space_lock);
}

/* ---- grants ---- */

/* With space_lock held. */
static void grant_set(struct cache *c, struct cache_grant *grant, uint64_t bytes)
{
	struct cache_grant **at = &c->grants;

	if (bytes && !grant->bytes) {
		grant->next = c->grants;
		c->grants = grant;
	} else if (!bytes && grant->bytes) {
		while (*at != grant)
			at = &(*at)->next;
		*at = grant->next;
	}
	grant->bytes = bytes;
}

int cache_grant(struct cache *c, struct cache_grant *grant, uint64_t bytes)
{
	uint64_t have = grant->fd < 0 ? 0 : cache_blocks(grant->fd);
	int r = 0;

	pthread_mutex_lock(&c->space_lock);
	have = MAX(have, grant->bytes);
	if (bytes > have)
		r = reserve_locked(c, bytes - have, 0, false);
	if (r == 0)
		grant_set(c, grant, MAX(bytes, grant->bytes));
	pthread_mutex_unlock(&c->space_lock);
	return r;
}

void cache_grant_cut(struct cache *c, struct cache_grant *grant, uint64_t bytes)
{
	pthread_mutex_lock(&c->space_lock);
	grant_set(c, grant, grant->bytes - MIN(grant->bytes, bytes));
	pthread_mutex_unlock(&c->space_lock);
}

void cache_grant_drop(struct cache *c, struct cache_grant *grant)
{
	cache_grant_cut(c, grant, UINT64_MAX);
}

int cache_grant_rename(struct cache *c, struct cache_grant *grant, const char *from, const char *to)
{
	int r;

	pthread_mutex_lock(&c->space_lock);
	r = renameat(c->partial, from, c->objects, to) < 0 ? -errno : 0;
	if (r == 0)
		grant_set(c, grant, 0);
	pthread_mutex_unlock(&c->space_lock);
	return r;
}

/* ---- gc ---- */

/* Removes all damaged objects, which are first in the list. Returns how many bytes they had. */
static uint64_t remove_damaged(struct cache *c, struct count *count)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < count->n && count->items[i].damaged; i++) {
		if (item_remove(c, &count->items[i], false))
			sum = sat_add(sum, count->items[i].bytes);
		count->items[i].bytes = 0;
	}
	return sum;
}

/* With space_lock held. */
static int gc(struct cache *c, uint64_t target, uint64_t *ret_freed)
{
	uint64_t freed, missing, left;
	struct count count;
	int r;

	r = count_all(c, true, &count);
	if (r < 0)
		return r;
	freed = remove_damaged(c, &count);
	r = cache_disk_short(c->objects, 0, UINT64_MAX, &missing);
	if (r == 0) {
		left = count.total - MIN(freed, count.total);
		missing = MAX(missing, left > target ? left - target : 0);
		probe_items(c, &count, missing);
		freed = sat_add(freed, remove_items(c, &count, missing));
		counted(c, count.total - MIN(freed, count.total));
		*ret_freed = freed;
	}
	free(count.items);
	return r;
}

int cache_gc(struct cache *c, uint64_t target, uint64_t *ret_freed)
{
	uint64_t freed = 0;
	int r;

	cache_clean(c);
	cache_sweep(c);
	pthread_mutex_lock(&c->space_lock);
	r = gc(c, MIN(target, c->limit), &freed);
	pthread_mutex_unlock(&c->space_lock);
	if (r == 0 && ret_freed)
		*ret_freed = freed;
	return r;
}
