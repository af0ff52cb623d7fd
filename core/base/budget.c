/* SPDX-License-Identifier: Apache-2.0 */
#include "base/budget.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/util.h"

/* ---- the default ---- */

/* The number in a file; UINT64_MAX for "max", or when there is none. */
static uint64_t read_limit(const char *path)
{
	char text[32] = "";
	FILE *f = fopen(path, "re");
	uint64_t limit;
	char *end;

	if (!f)
		return UINT64_MAX;
	if (!fgets(text, sizeof(text), f))
		*text = '\0';
	fclose(f);
	limit = strtoull(text, &end, 10);
	return end == text ? UINT64_MAX : limit;
}

/* The least limit of the group at `path` below `top`, and of all above it. Cuts `path`. */
static uint64_t least_limit(const char *top, char *path)
{
	/* of version 2; in a hybrid hierarchy they are where the first name says; of version 1 */
	static const char *const names[] = { "memory.max", "memory.high", "memory.limit_in_bytes" };
	uint64_t least = UINT64_MAX, limit;
	char file[2 * MAX_PATH_LEN];
	char *slash;

	do {
		slash = strrchr(path, '/');
		for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
			snprintf(file, sizeof(file), "%s%s/%s", top, path, names[i]);
			limit = read_limit(file);
			least = MIN(least, limit);
		}
		if (slash)
			*slash = '\0';
	} while (slash);
	return least;
}

uint64_t budget_group_limit(const char *groups, const char *root)
{
	char line[MAX_PATH_LEN], top[MAX_PATH_LEN];
	uint64_t least = UINT64_MAX, limit;
	FILE *f = fopen(groups, "re");

	/* number:controllers:/path; version 2 has no controllers */
	while (f && fgets(line, sizeof(line), f)) {
		char *names = strchr(line, ':'), *path = names ? strchr(names + 1, ':') : NULL;
		const char *below = "";

		if (!path)
			continue;
		*path++ = '\0';
		path[strcspn(path, "\n")] = '\0';
		if (strcmp(names, ":memory") == 0)
			below = "/memory";
		else if (names[1])
			continue;
		snprintf(top, sizeof(top), "%s%s", root, below);
		limit = least_limit(top, path);
		least = MIN(least, limit);
	}
	if (f)
		fclose(f);
	return least;
}

static uint64_t default_limit(void)
{
	uint64_t group = budget_group_limit("/proc/self/cgroup", "/sys/fs/cgroup");
	uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);

	return MAX(MIN(group / 2, memory / 4), MIN_MEMORY);
}

void budget_init(struct budget *b, uint64_t limit)
{
	*b = (struct budget){ .chosen = limit != 0 };
	b->limit = limit ? limit : default_limit();
}

void budget_limit_by_size(struct budget *b, uint64_t file_size)
{
	if (b && !b->chosen &&
	    file_size < (b->limit - MIN(b->limit, MEMORY_START)) / MEMORY_EXPANSION)
		b->limit = MEMORY_START + MEMORY_EXPANSION * file_size;
}

/* ---- counting ---- */

#define SMALL_TABLE 4096

/* Adds `n` to a count that may not exceed `limit`. */
static bool add(_Atomic uint64_t *count, uint64_t n, uint64_t limit)
{
	uint64_t used = atomic_load(count);

	do
		if (used > limit || n > limit - used)
			return false;
	while (!atomic_compare_exchange_weak(count, &used, used + n));
	return true;
}

int budget_refuse(const struct budget *b, uint64_t n)
{
	uint64_t needed = atomic_load(&b->tables) + n, unit = b->limit < MIB ? KIB : MIB;
	const char *name = b->limit < MIB ? "K" : "M";

	/* a buffer was refused, beside others */
	if (needed <= b->limit)
		needed = atomic_load(&b->used) + n;
	/* one is rounded up and the other down, so that they differ */
	carton_log(CARTON_LOG_ERROR, NULL,
		   "listing this carton takes at least %" PRIu64 " %siB of memory, and the limit "
		   "is %" PRIu64 " %siB; if it is trusted, allow more with memory=%" PRIu64 "%s",
		   needed / unit + 1, name, b->limit / unit, name, (needed + needed / 4) / unit + 1,
		   name);
	return -EFBIG;
}

bool budget_hold(struct budget *b, uint64_t n)
{
	if (!b || add(&b->used, n, b->limit))
		return true;
	if (n <= b->limit && b->make_room)
		b->make_room(b->ctx, n);
	return add(&b->used, n, b->limit);
}

void budget_charge(struct budget *b, uint64_t n)
{
	if (b)
		atomic_fetch_add(&b->used, n);
}

bool budget_try(struct budget *b, uint64_t n)
{
	/* the rest is taken by other tables, open files and buffers of fetches */
	if (budget_hold(b, n)) {
		if (b)
			atomic_fetch_add(&b->tables, n);
		return true;
	}
	/* the first two stay; the buffers are held for a moment */
	if (!add(&b->tables, n, b->limit))
		return false;
	budget_charge(b, n);
	return true;
}

int budget_take(struct budget *b, uint64_t n)
{
	/* a small table, such as one for an open, is not refused because of buffers of others */
	if (n <= SMALL_TABLE)
		return budget_try(b, n) ? 0 : budget_refuse(b, n);
	if (!budget_hold(b, n))
		return budget_refuse(b, n);
	if (b)
		atomic_fetch_add(&b->tables, n);
	return 0;
}

int budget_grow(struct budget *b, uint64_t *taken, size_t cap, size_t need, size_t size)
{
	/* as array_grow() does */
	uint64_t n = need <= cap ? 0 : (MAX(need, MAX(2 * cap, (size_t)4)) - cap) * size;
	int r = budget_take(b, n);

	if (r == 0)
		*taken += n;
	return r;
}

void budget_give(struct budget *b, uint64_t n)
{
	if (!b)
		return;
	atomic_fetch_sub(&b->tables, n);
	atomic_fetch_sub(&b->used, n);
}

bool budget_keep(struct budget *b, uint64_t n)
{
	return !b || add(&b->used, n, b->limit);
}

void budget_drop(struct budget *b, uint64_t n)
{
	if (b)
		atomic_fetch_sub(&b->used, n);
}

uint64_t budget_left(const struct budget *b)
{
	uint64_t used = b ? atomic_load(&b->used) : 0;

	return !b ? UINT64_MAX : used < b->limit ? b->limit - used : 0;
}
