/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/room.h"

#include "base/file_size.h"
#include "cache/internal.h"

/* measurements of the free space of one disk differ by less */
#define SAME_DISK (16 * MIB)

bool room_is_full(int error)
{
	return error == -ENOSPC || error == -EDQUOT;
}

/* Another kind of file may be better. */
static bool is_unusable(int error)
{
	return error < 0 && error != -EAGAIN && error != -EEXIST && error != -ENOMEM &&
	       error != -ECANCELED && error != -EMFILE && error != -ENFILE;
}

/*
 * Is it larger than any file may be, in the cache, elsewhere or in memory (file_size.h)? Nothing
 * that is dropped makes room for it then.
 */
static bool is_too_large(const struct room *room)
{
	uint64_t limit = file_size_limit(), known = room->sparse ? room->sparse : room->size;

	if (limit == UINT64_MAX)
		return false;
	return known != UINT64_MAX ? known > limit : MAX(room->reached, room->wanted) >= limit;
}

static int refuse_large(struct room *room)
{
	room->at = ROOM_NONE;
	return log_error(-EFBIG, room->name, "no file can hold it: %s", carton_write_error(-EFBIG));
}

/* ---- the order ---- */

/* May the bytes go to the kind of file that is next? */
static bool is_wanted(const struct room *room)
{
	if (room->only_cache && room->at != ROOM_CACHE)
		return room->at == ROOM_NONE;
	switch (room->at) {
	case ROOM_CACHE:
		return room->cache && room->key;
	case ROOM_BESIDE:
		return room->cache;
	case ROOM_MEMORY:
		return room->memory &&
		       (room->size != UINT64_MAX ? room->size : room->reached) <= room->memory;
	default:
		return true;
	}
}

static void skip_missing(struct room *room)
{
	while (!is_wanted(room))
		room->at++;
}

bool room_in_cache(struct room *room)
{
	skip_missing(room);
	return room->at == ROOM_CACHE;
}

/* How many bytes the cache has no room for; 0: that is not known. */
static uint64_t size_of(const struct room *room)
{
	if (room->sparse)
		return room->sparse;
	return room->size != UINT64_MAX ? room->size : MAX(room->reached, room->wanted);
}

int room_next(struct room *room, int error, uint64_t reached)
{
	room->reached = MAX(room->reached, reached);
	if (room_is_full(error) && is_too_large(room))
		return refuse_large(room);
	if (room_is_full(error) && !room->dropped && room->drop) {
		room->dropped = true;
		if (room->drop(room->ctx, room->at == ROOM_CACHE))
			return 0;
	}
	if (room->at == ROOM_CACHE && room_is_full(error))
		cache_log_full(room->cache, room->name, size_of(room));
	room->dropped = false;
	room->at += room->at < ROOM_NONE;
	skip_missing(room);
	return room->at < ROOM_NONE ? 0 : error;
}

bool room_again(struct room *room, int *result, uint64_t reached)
{
	if (!room_is_full(*result))
		return false;
	*result = room_next(room, *result, reached);
	return *result == 0;
}

/* ---- opening ---- */

static int open_entry(const struct room *room, struct file **ret)
{
	int r = room->sparse ? file_join(room->cache, room->key, room->sparse, ret) :
			       file_cache(room->cache, room->key, ret);

	if (is_unusable(r) && !room_is_full(r) && !atomic_exchange(&room->cache->failed, true))
		carton_log(CARTON_LOG_NOTICE, NULL,
			   "the cache cannot be used: %s; copies are kept for this mount only",
			   strerror(-r));
	return r;
}

/* Has its disk room for as much as is known to come? */
static int check_room(struct room *room, struct file *d)
{
	dev_t disk = file_disk(d);

	if (room->at == ROOM_ELSEWHERE && room->disk == disk)
		return -ENOSPC;
	if (room->at == ROOM_BESIDE)
		room->disk = disk;
	if (room->size != UINT64_MAX)
		return file_reserve(d, room->size, true);
	return room->reached == 0 || file_has_room(d, room->reached + SAME_DISK) ? 0 : -ENOSPC;
}

static int open_file(struct room *room, struct file **ret)
{
	struct file *d;
	int r = file_unnamed(room->at == ROOM_BESIDE ? room->cache : NULL, &d);

	if (r < 0)
		return r;
	r = check_room(room, d);
	if (r < 0)
		file_abort(d, false);
	else
		*ret = d;
	return r;
}

static int open_at(struct room *room, struct file **ret)
{
	switch (room->at) {
	case ROOM_CACHE:
		return open_entry(room, ret);
	case ROOM_MEMORY:
		return file_memory(room->memory, ret);
	case ROOM_NONE:
		return -ENOSPC;
	default:
		return open_file(room, ret);
	}
}

static int open_once(struct room *room, struct file **ret)
{
	struct file *d;
	int r = open_at(room, &d);

	if (r < 0)
		return r;
	r = room->sparse ? file_sparse(d, room->sparse) : 0;
	if (r < 0)
		file_abort(d, true);
	else
		*ret = d;
	return r;
}

int room_open(struct room *room, struct file **ret)
{
	int r, next;

	skip_missing(room);
	if (is_too_large(room))
		return refuse_large(room);
	do {
		r = open_once(room, ret);
		next = is_unusable(r) ? room_next(room, r, 0) : r;
	} while (r < 0 && next == 0);
	return next;
}
