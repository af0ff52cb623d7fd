/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file: where the bytes of one object go while they are unverified. One of
 *
 *	a cache entry that is being filled: others find it once it is committed, and what was
 *		written before an abort can be resumed
 *	an unnamed file, where the cache is or where temporary files are
 *	memory, for small objects
 *
 * The order is: file_cache(), file_unnamed() or file_memory(), or what has room (room.h); then for
 * the cache file_partial() or file_restart(); file_reserve(), file_write(), file_progress();
 * file_commit() or file_abort().
 *
 * Room is asked for as bytes are written, in steps of a few MiB: the cache's share and a twentieth
 * of the file system stay free (cache.h), and no object is evicted for a length that only a server
 * says.
 *
 * An error of the disk is logged, and returned as -ENOSPC: the caller can make the copy elsewhere.
 *
 * Threads: file_write(), file_read() and file_progress() may be called by several threads at once.
 * All other calls belong to the owner, while no other thread uses the file.
 */
#ifndef CARTON_CACHE_FILE_H
#define CARTON_CACHE_FILE_H

#include "base/source.h"
#include "cache/cache.h"

struct budget;
struct file;

/* Fills the cache entry `key`. Returns as cache_begin(). */
int file_cache(struct cache *cache, const uint8_t key[32], struct file **ret);

/* One of those who fill a sparse entry of `size` bytes: as cache_join(); then file_sparse(). */
int file_join(struct cache *cache, const uint8_t key[32], uint64_t size, struct file **ret);

/* An unnamed file, as cache_tmpfile(). */
int file_unnamed(struct cache *cache, struct file **ret);

/* At most `max` bytes of memory; more is -ENOSPC. */
int file_memory(uint64_t max, struct file **ret);

/*
 * From now on the budget counts the bytes of the file as they come, until it is ended. Where there
 * is no room, file_write() and file_reserve() give -ENOMEM, and file_is_over() says so. For a file
 * in memory whose length is not known.
 */
void file_count(struct file *d, struct budget *budget);

/* Is it a cache entry, whose bytes can be resumed? */
bool file_is_cached(const struct file *d);

/*
 * Returns the bytes that an earlier fill has left, as cache_fill_partial(); the caller hashes them
 * again with file_read(). 0 bytes where nothing can be resumed.
 */
int file_partial(struct file *d, uint64_t *ret_len, char *ret_validator, size_t n);

/*
 * Empties the file. `validator` names the version of the bytes to come, as for
 * cache_fill_restart().
 */
int file_restart(struct file *d, const char *validator);

/*
 * Makes sure that `size` bytes fit: 0, -ENOSPC or -errno. `certain`: the size is known, not only
 * claimed by a server, so the cache may evict other objects now, and the blocks are allocated.
 */
int file_reserve(struct file *d, uint64_t size, bool certain);

/* Is there room for `n` more bytes on the disk, as if the cache's share were left free? */
bool file_has_room(const struct file *d, uint64_t n);

/* The file system that it is on. */
dev_t file_disk(const struct file *d);

/*
 * From now on file_write() refuses bytes behind the first `max`: -EFBIG, and writes none of that
 * call. file_is_over(): it has refused bytes since file_restart().
 */
void file_limit(struct file *d, uint64_t max);
bool file_is_over(const struct file *d);

/*
 * Writes at an offset. A gap before the offset takes room too, so writes should not run far ahead
 * of the others. 0, -ENOSPC, -EFBIG (file_limit()), -ENOMEM (file_count()), or -errno.
 */
int file_write(struct file *d, const void *data, size_t n, uint64_t off);

/*
 * Reads bytes that were written. 0; -ENOSPC: the bytes are gone, as somebody has cut the file, or
 * the disk cannot read them.
 */
int file_read(struct file *d, void *ret_buf, size_t n, uint64_t off);

/* Says that the first `len` bytes are all written. Cheap enough to follow each write. */
void file_progress(struct file *d, uint64_t len);

/* The end of the bytes that were written. */
uint64_t file_end(const struct file *d);

/* The length of the file, or the length that was announced for it if that is more. */
uint64_t file_wanted(const struct file *d);

/*
 * Ends the file, also on failure. The caller has verified the first `size` bytes; the bytes behind
 * them are dropped. A cache entry is published as `sha256` (NULL: as its key); if publishing
 * fails, the file stays without a name. 0 and a reference to a local file of just these bytes;
 * -errno.
 */
int file_commit(struct file *d, const uint8_t *sha256, uint64_t size, struct source **ret);

/*
 * Ends the file. `keep`: a later fill can resume the bytes that file_progress() has named.
 * NULL-safe.
 */
void file_abort(struct file *d, bool keep);

/* ---- sparse: of `size` bytes, which come in any order ---- */

/*
 * Makes a new file sparse, from file_join() or file_unnamed(). What others have left or leave in it
 * is verified before use. Then file_make_room() asks for room, and file_progress() does nothing. 0
 * or -errno.
 */
int file_sparse(struct file *d, uint64_t size);

/*
 * Parts of `unit` bytes of a sparse file may go to a second file, see file_spill(). Before
 * file_source(). 0 or -ENOMEM.
 */
int file_split(struct file *d, uint64_t unit);

/* A local file of its bytes. 0 or -errno. */
int file_source(const struct file *d, struct source **ret);

/*
 * Makes sure that `n` bytes more fit, which are to be written by the caller. Without room in the
 * cache it goes on as an unnamed file, which has the same bytes; if `drop` is NULL, nothing is
 * dropped, and it stays as it is. `name` is for the log. 0 or -ENOSPC. Any thread.
 */
int file_make_room(struct file *d, uint64_t n, const char *name,
		   bool (*drop)(void *ctx, bool entries), void *ctx);

/* Gives back `n` bytes of that room: nobody writes them now. Any thread. */
void file_give_room(struct file *d, uint64_t n);

/*
 * Moves [off, off+n), for which the disk has no room, to a second file, where temporary files are.
 * The range consists of whole parts, and no thread reads or writes it during the call. Bytes that
 * were written before are not copied. 0; -ENOSPC: the second file would be on the same disk, or its
 * disk is full, too. Any thread.
 */
int file_spill(struct file *d, uint64_t off, uint64_t n);
bool file_has_spilled(const struct file *d);

/*
 * Publishes a cache entry, all of whose bytes are verified, as `sha256`, unless another one who
 * fills it has. Best effort; the file is still to be ended.
 */
void file_publish(struct file *d, const uint8_t sha256[32]);

/*
 * The first `have` bytes of the file, then those of `in` (taken over, also on failure),
 * which are written to it as they are read. Used by one thread. 0 or -ENOMEM; reading also gives
 * what file_write() does.
 */
int file_stream(struct file *d, uint64_t have, struct stream *in, struct stream **ret);

#endif
