/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/file.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/budget.h"
#include "base/file_size.h"
#include "base/pace.h"
#include "base/spill.h"
#include "cache/internal.h"

/* Limits the loss when the process dies, as pace.note_ms does: bytes since the last note. */
#define NOTE_BYTES (1 * MIB)
/* the room that is asked for at a time where the length is not known */
#define STEP (4 * MIB)
/* an unnamed file of known length leaves this free; another as much as the cache does */
#define KEEP_KNOWN (64 * MIB)
/* memory is counted in such steps */
#define COUNTED (4 * KIB)

struct file {
	struct cache *cache;	 /* of the fill */
	struct cache_fill *fill; /* NULL: not a cache entry */
	int fd;			 /* the fill's, else our own */
	bool sparse;		 /* `fd` is our own in any case */
	struct spill *spill;	 /* of a sparse one; or NULL */
	uint64_t max;
	uint64_t announced;	/* the size that a server says; UINT64_MAX: not known */
	atomic_bool failed;	/* the disk; it is logged */
	_Atomic uint64_t limit; /* more bytes are refused, */
	atomic_bool over;	/* which has happened */
	struct budget *budget;	/* file_count(); or NULL */
	_Atomic uint64_t held;	/* what it counts */

	pthread_mutex_t lock; /* guards what follows */
	uint64_t room;	      /* the file may grow to this length without asking */
	uint64_t written;     /* how many bytes, from the first on, are all written */
	uint64_t noted;	      /* how many of these the cache has noted, */
	int64_t noted_ms;     /* and when */
	bool unspilled;	      /* no second file can be made */
};

/* ---- beginning ---- */

/* Takes over the descriptor or the fill, also on failure. */
static int file_new(struct cache_fill *fill, int fd, uint64_t max, struct file **ret)
{
	struct file *d = calloc(1, sizeof(*d));

	if (!d) {
		if (fill)
			cache_fill_abort(fill, true);
		else
			fd_close(fd);
		return -ENOMEM;
	}
	d->fill = fill;
	d->fd = fd;
	d->max = max;
	d->limit = MAX_FILE_SIZE;
	d->announced = UINT64_MAX;
	d->noted_ms = now_ms();
	/* an earlier fill's bytes have their room */
	if (fill)
		d->room = cache_blocks(fd);
	pthread_mutex_init(&d->lock, NULL);
	*ret = d;
	return 0;
}

static int file_of(struct cache *cache, struct cache_fill *fill, struct file **ret)
{
	int r = file_new(fill, cache_fill_fd(fill), UINT64_MAX, ret);

	if (r == 0)
		(*ret)->cache = cache;
	return r;
}

int file_cache(struct cache *cache, const uint8_t key[32], struct file **ret)
{
	struct cache_fill *fill;
	int r = cache_begin(cache, key, &fill);

	return r < 0 ? r : file_of(cache, fill, ret);
}

int file_join(struct cache *cache, const uint8_t key[32], uint64_t size, struct file **ret)
{
	struct cache_fill *fill;
	int r = cache_join(cache, key, size, &fill);

	return r < 0 ? r : file_of(cache, fill, ret);
}

int file_unnamed(struct cache *cache, struct file **ret)
{
	int fd, r = cache_tmpfile(cache, &fd);

	return r < 0 ? r : file_new(NULL, fd, UINT64_MAX, ret);
}

int file_memory(uint64_t max, struct file **ret)
{
	int fd = memfd_create("carton object", MFD_CLOEXEC);

	return fd < 0 ? -errno : file_new(NULL, fd, max, ret);
}

void file_count(struct file *d, struct budget *budget)
{
	d->budget = budget;
}

/* After an error of its disk the copy can be made elsewhere, as if there were no room: -ENOSPC. */
static int disk_error(struct file *d, int r)
{
	if (r >= 0 || r == -ENOSPC || r == -EDQUOT || r == -ENOMEM)
		return r;
	if (!atomic_exchange(&d->failed, true))
		carton_log(CARTON_LOG_NOTICE, NULL, "a %s cannot be used: %s; trying elsewhere",
			   d->fill ? "cache entry" : "temporary file", carton_write_error(r));
	return -ENOSPC;
}

bool file_is_cached(const struct file *d)
{
	return d->fill;
}

int file_restart(struct file *d, const char *validator)
{
	d->room = d->written = d->noted = 0;
	d->announced = UINT64_MAX;
	d->over = false;
	budget_drop(d->budget, atomic_exchange(&d->held, 0));
	if (d->fill)
		return disk_error(d, cache_fill_restart(d->fill, validator));
	return disk_error(d, fd_resize(d->fd, 0));
}

/* ---- room ---- */

/* Would `n` more bytes leave a twentieth of the file system, or `keep` bytes, free? */
static bool disk_has_room(const struct file *d, uint64_t n, uint64_t keep)
{
	uint64_t missing;

	return cache_disk_short(d->fd, n, keep, &missing) < 0 || missing == 0;
}

bool file_has_room(const struct file *d, uint64_t n)
{
	return disk_has_room(d, n, UINT64_MAX);
}

dev_t file_disk(const struct file *d)
{
	struct stat st;

	return fstat(d->fd, &st) < 0 ? 0 : st.st_dev;
}

/* Checks the room on the disk for an unnamed file; allocates it if the size is certain. */
static int reserve_unnamed(const struct file *d, uint64_t size, bool certain)
{
	uint64_t have = cache_blocks(d->fd);

	if (size > d->max || !disk_has_room(d, size - MIN(size, have), KEEP_KNOWN))
		return -ENOSPC;
	return certain && d->max == UINT64_MAX ? cache_allocate(d->fd, size) : 0;
}

/* Counts the memory up to `end`. 0 or -ENOMEM. Without the lock, as the budget may drop content. */
static int hold(struct file *d, uint64_t end)
{
	uint64_t to = (end + COUNTED - 1) / COUNTED * COUNTED, have = atomic_load(&d->held), more;

	while (d->budget && have < to) {
		more = to - have;
		if (!budget_hold(d->budget, more)) {
			d->over = true;
			return -ENOMEM;
		}
		if (atomic_compare_exchange_strong(&d->held, &have, to))
			break;
		budget_drop(d->budget, more);
	}
	return 0;
}

int file_reserve(struct file *d, uint64_t size, bool certain)
{
	int r;

	d->announced = size;
	if (d->fill && !certain)
		return cache_could_reserve(d->cache, size);
	if (d->fill)
		r = cache_fill_reserve(d->fill, size);
	else
		r = reserve_unnamed(d, size, certain);
	if (r == 0)
		r = hold(d, size);
	if (r == 0)
		d->room = MAX(d->room, size);
	return disk_error(d, r);
}

/* Lets the file grow to `end` bytes, and a step more where that is possible. Lock held. */
static int make_room(struct file *d, uint64_t end)
{
	int r;

	if (end > d->max)
		return -ENOSPC;
	if (end <= d->room || d->sparse)
		return 0;
	if (d->fill) {
		/* no more than will be needed, if the announced size is true */
		uint64_t more = MAX(end, MIN(end + MIN(d->room, STEP), d->announced));

		r = cache_fill_reserve(d->fill, more);
		if (r == -ENOSPC) {
			more = end;
			r = cache_fill_reserve(d->fill, more);
		}
		if (r == 0)
			d->room = more;
		return r;
	}
	/* recent writes may not count in the free space yet, so one more step has to be free */
	if (!file_has_room(d, end - d->room + 2 * STEP))
		return -ENOSPC;
	d->room = end + STEP;
	return 0;
}

/* ---- bytes ---- */

void file_limit(struct file *d, uint64_t max)
{
	d->limit = MIN(max, MAX_FILE_SIZE);
}

bool file_is_over(const struct file *d)
{
	return d->over;
}

int file_write(struct file *d, const void *data, size_t n, uint64_t off)
{
	int r;

	if (off > d->limit || n > d->limit - off) {
		d->over = true;
		return -EFBIG;
	}
	/* a sparse file has its room by file_make_room(), which may take long and holds the lock */
	r = 0;
	if (!d->sparse) {
		pthread_mutex_lock(&d->lock);
		r = make_room(d, off + n);
		pthread_mutex_unlock(&d->lock);
	}
	if (r == 0)
		r = hold(d, off + n);
	for (size_t part; n > 0 && r == 0; n -= part, off += part) {
		part = n;
		r = pwrite_full(spill_fd(d->spill, d->fd, off, &part), data, part, off);
		data = (const char *)data + part;
	}
	return disk_error(d, r);
}

int file_read(struct file *d, void *ret_buf, size_t n, uint64_t off)
{
	return disk_error(d, pread_full(d->fd, ret_buf, n, off));
}

/* Lock held, or by the owner. */
static void note(struct file *d)
{
	/* a failure only means that some bytes are fetched again */
	if (d->fill && d->written > d->noted && cache_fill_progress(d->fill, d->written) == 0)
		d->noted = d->written;
	d->noted_ms = now_ms();
}

void file_progress(struct file *d, uint64_t len)
{
	if (d->sparse)
		return;
	pthread_mutex_lock(&d->lock);
	d->written = len;
	if (len > d->noted &&
	    (len - d->noted >= NOTE_BYTES || now_ms() - d->noted_ms >= pace.note_ms))
		note(d);
	pthread_mutex_unlock(&d->lock);
}

int file_partial(struct file *d, uint64_t *ret_len, char *ret_validator, size_t n)
{
	note(d);
	if (d->fill)
		return cache_fill_partial(d->fill, ret_len, ret_validator, n);
	*ret_len = 0;
	*ret_validator = '\0';
	return 0;
}

uint64_t file_end(const struct file *d)
{
	struct stat st;

	return fstat(d->fd, &st) < 0 ? 0 : (uint64_t)st.st_size;
}

uint64_t file_wanted(const struct file *d)
{
	return d->announced == UINT64_MAX ? file_end(d) : MAX(file_end(d), d->announced);
}

/* ---- ending ---- */

static void file_free(struct file *d)
{
	pthread_mutex_destroy(&d->lock);
	spill_unref(d->spill);
	budget_drop(d->budget, d->held);
	free(d);
}

/* Keeps a file that could not be published, without a name: its bytes are verified anyway. */
static int commit_file(struct file *d, uint64_t size, int *ret_fd)
{
	int fd = fd_dup(d->fd), r = fd < 0 ? fd : fd_resize(fd, size);

	if (r < 0)
		fd_close(fd);
	file_abort(d, false);
	*ret_fd = r < 0 ? -1 : fd;
	return r;
}

int file_commit(struct file *d, const uint8_t *sha256, uint64_t size, struct source **ret)
{
	struct source *source = NULL;
	int fd, r = -EOPNOTSUPP;

	if (file_end(d) < size) {
		r = disk_error(d, -EIO); /* the file has lost bytes that were written */
		file_abort(d, false);
		return r;
	}
	if (d->fill)
		r = cache_fill_publish(d->fill, sha256, size, &fd);
	if (r < 0 && d->fill)
		carton_log(CARTON_LOG_NOTICE, NULL,
			   "a verified object cannot be kept in the cache: %s",
			   carton_write_error(r));
	if (r == 0)
		file_free(d);
	else
		r = commit_file(d, size, &fd);
	if (r == 0)
		r = source_from_fd(fd, &source);
	if (r < 0)
		return r;
	/* its size becomes the object's, so no unverified byte may remain */
	if (source->size != size) {
		source_unref(source);
		return -EIO;
	}
	*ret = source;
	return 0;
}

void file_abort(struct file *d, bool keep)
{
	if (!d)
		return;
	if (keep)
		note(d);
	if (!d->fill || d->sparse)
		fd_close(d->fd);
	cache_fill_abort(d->fill, keep);
	file_free(d);
}

/* ---- sparse ---- */

int file_sparse(struct file *d, uint64_t size)
{
	int fd;

	if (d->fill) {
		/* the file is used on without the fill */
		fd = fd_dup(d->fd);
		if (fd < 0)
			return fd;
		d->fd = fd;
	} else {
		int r = fd_resize(d->fd, size);

		if (r < 0)
			return r;
	}
	d->sparse = true;
	d->limit = size;
	return 0;
}

int file_source(const struct file *d, struct source **ret)
{
	int fd = fd_dup(d->fd), r = fd < 0 ? fd : source_from_fd(fd, ret);

	if (r == 0)
		(*ret)->spill = spill_ref(d->spill);
	return r;
}

int file_split(struct file *d, uint64_t unit)
{
	d->spill = spill_new(d->limit, unit);
	return d->spill ? 0 : -ENOMEM;
}

/* Makes the second file, where temporary files are, on another disk. Lock held. */
static int begin_spill(struct file *d)
{
	struct stat st, main;
	int fd, r = cache_tmpfile(NULL, &fd);

	if (r < 0)
		return r;
	if (fstat(fd, &st) < 0 || fstat(d->fd, &main) < 0 || st.st_dev == main.st_dev)
		r = -ENOSPC;
	else
		r = fd_resize(fd, d->limit);
	if (r < 0)
		fd_close(fd);
	else
		d->spill->fd = fd;
	return r;
}

int file_spill(struct file *d, uint64_t off, uint64_t n)
{
	uint64_t missing;
	int r = 0;

	pthread_mutex_lock(&d->lock);
	if (d->unspilled)
		r = -ENOSPC;
	else if (d->spill->fd < 0)
		r = begin_spill(d);
	d->unspilled |= r < 0;
	if (r == 0 && cache_disk_short(d->spill->fd, n, UINT64_MAX, &missing) == 0 && missing > 0)
		r = -ENOSPC;
	if (r == 0)
		spill_add(d->spill, off, n);
	/* an entry of the cache is one file: without these bytes it would have holes */
	if (r == 0 && d->fill) {
		cache_fill_abort(d->fill, false);
		d->fill = NULL;
	}
	pthread_mutex_unlock(&d->lock);
	return r < 0 ? -ENOSPC : 0;
}

bool file_has_spilled(const struct file *d)
{
	return d->spill && d->spill->fd >= 0;
}

int file_make_room(struct file *d, uint64_t n, const char *name,
		   bool (*drop)(void *ctx, bool entries), void *ctx)
{
	bool full;

	pthread_mutex_lock(&d->lock);
	full = d->fill && cache_fill_more(d->fill, n) < 0;
	if (full && drop && drop(ctx, true))
		full = cache_fill_more(d->fill, n) < 0;
	/* unnamed files are outside the limit of the cache, but take room on its disk */
	if (full && drop && !file_has_room(d, n) && drop(ctx, false))
		full = cache_fill_more(d->fill, n) < 0;
	if (full && drop) {
		cache_log_full(d->cache, name, d->limit - MIN(d->limit, cache_blocks(d->fd)));
		cache_fill_abort(d->fill, false);
		d->fill = NULL;
	}
	if (!d->fill)
		full = !file_has_room(d, n) && (!drop || !drop(ctx, false) || !file_has_room(d, n));
	pthread_mutex_unlock(&d->lock);
	return full ? -ENOSPC : 0;
}

void file_give_room(struct file *d, uint64_t n)
{
	pthread_mutex_lock(&d->lock);
	if (d->fill)
		cache_fill_less(d->fill, n);
	pthread_mutex_unlock(&d->lock);
}

void file_publish(struct file *d, const uint8_t sha256[32])
{
	int fd;

	pthread_mutex_lock(&d->lock);
	if (d->fill && cache_fill_publish(d->fill, sha256, d->limit, &fd) == 0) {
		d->fill = NULL;
		fd_close(fd);
	}
	pthread_mutex_unlock(&d->lock);
}
