/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store of objects on disk: files named by the sha256 of their bytes, shared by all mounts and
 * all processes of a user. It knows nothing of cartons, http or FUSE, and it computes no hash.
 *
 *	DIR/v1/CACHEDIR.TAG		so that backups leave it out
 *	DIR/v1/lock			two bytes of it are the lock of an object, for the
 *					process that fills it, or those who fill it together
 *	DIR/v1/objects/ab/<hex>		published objects, mode 0400; mtime is the last use
 *	DIR/v1/partials/<hex>		bytes of an object that is being filled, or was
 *	DIR/v1/partials/<hex>.v		how many of them count, and of which version
 *	DIR/v1/notes/<hex>		small texts, of one source each, and hints of any
 *	DIR/v1/names, names.old		the file and source of each object, for people
 *	DIR/v1/seals/<hex>		tags of an object, wherever its bytes are, of one source
 *	DIR/v1/tmp/			names that live for microseconds, and unnamed files
 *
 * Trust. The cache promises names, not bytes: a caller that opens an object hashes it before use,
 * or checks each read against its seal, and drops the object when its bytes are wrong. So no file
 * here is ever fsynced: an object that a power cut tore is found by its hash. The caller that
 * publishes has verified the bytes it publishes.
 *
 * Seals and notes say what was verified. Their names and codes are made with the key of one source
 * (cache_use_key()), which is not in here and is derived from the user's (key.h). So who writes
 * here, and lacks that key, cannot make one that is believed; two sources neither believe nor find
 * each other's. Who has the key can.
 *
 * Locks. Each descriptor of an object holds a shared flock(2) on it, taken by cache_lookup() and
 * cache_fill_publish(); the flock lives as long as the descriptor (or a dup of it), in whatever
 * process. gc takes the exclusive flock before it removes an object, without waiting, and leaves
 * the objects that it cannot lock. Filling, dropping and removing an object also take its bytes of
 * the lock file; processes that fill one sparse partial share them (cache_join()). Every lock is a
 * try: no call of this module waits, but for cache_wait(). Locks vanish with their process, so a
 * kill -9 at any point leaves at worst a partial, which the next one adopts.
 *
 * Threads. Any thread may call with the same `cache`. A `fill` belongs to one thread at a time.
 * A process may have several caches on one directory. Calls touch only what lies beneath DIR/v1,
 * by descriptors, and follow no symlink there.
 */
#ifndef CARTON_CACHE_CACHE_H
#define CARTON_CACHE_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cancel.h"
#include "base/digest.h"
#include "base/source.h"

#define CACHE_PARTIAL_MAX_AGE_S (7 * 24 * 3600) /* an abandoned download is kept so long */
#define CACHE_NOTE_MAX_AGE_S (90 * 24 * 3600)	/* since it was last read or written */
#define CACHE_WAIT_STEP_MS 50			/* cache_wait() looks at least so often */

struct cache;
struct cache_fill;

/*
 * Opens the cache in `dir`; NULL is $XDG_CACHE_HOME/cartonfs, else ~/.cache/cartonfs. Directories
 * that are missing are created with mode 0700; `dir` itself may be open to readers (its v1/ is not
 * unless its owner says so). Sweeps the files that dead processes left. `size_limit` is in bytes of
 * disk; 0 is a tenth of the file system. Besides, a twentieth of the file system is always left
 * free. Returns 0; -EPERM (logged) when the directory or one in it is not this user's, or others
 * may write to it; -ELOOP or -ENOTDIR when `dir` is a symlink or no directory; -EOPNOTSUPP (logged)
 * when the file system has no file locks that work; -ENOENT when there is no home; -errno of the
 * system.
 */
int cache_open(const char *dir, uint64_t size_limit, struct cache **ret_cache);

/*
 * The same in two steps. The first finds the directory and opens it and its v1/, each made when
 * missing; without `make`, it makes nothing, and returns -ENOENT (not logged) where there is no
 * cache. Then the process may change to the user that owns v1/ by now, and give up the right to
 * open anything above it. The second checks who owns both directories, and does all the rest: no
 * file there is read before. As root, `dir` may also be below directories that this user cannot
 * search.
 */
int cache_find(const char *dir, bool make, struct cache **ret_cache);
int cache_start(struct cache *cache, uint64_t size_limit);

/*
 * Seals and notes are of this key from now on; it is copied. NULL, and at the start: there is none,
 * so there are neither. Before other threads use the cache.
 */
void cache_use_key(struct cache *cache, const uint8_t *key);

/*
 * The absolute path of the directory beneath which everything is (v1/). It lives as long as
 * `cache`.
 */
const char *cache_directory(const struct cache *cache);

/*
 * Frees `cache`, after all its fills have ended. The descriptors that it gave stay good. NULL-safe.
 */
void cache_close(struct cache *cache);

/*
 * Opens a published object, read-only, and marks it as used now. The caller owns *ret_fd, and must
 * check the bytes (see Trust). `ret_size` is the file's size, in bytes; NULL if not wanted.
 * Returns 0, -ENOENT when it is not there (or is being removed now), -errno of the system.
 */
int cache_lookup(struct cache *cache, const uint8_t sha256[32], int *ret_fd, uint64_t *ret_size);

/* cache_lookup() as a source, which is the caller's. -ENOENT where there is no cache, too. */
int cache_source(struct cache *cache, const uint8_t sha256[32], struct source **ret);

/* Marks an object as used now. False: it, or the cache, is not there. NULL-safe. */
bool cache_has(struct cache *cache, const uint8_t sha256[32]);

/* Is there an object of that hash and of `size` bytes? Its date of last use stays. */
bool cache_lists(const struct cache *cache, const uint8_t sha256[32], uint64_t size);

/*
 * Marks the object open at `fd`, from cache_lookup(), as damaged: its bytes are not those of its
 * name. No lookup finds that file again, in any process; a newer file under the same name stays.
 * Readers that have the file open keep it. Logs a warning. The caller still owns `fd`. Returns 0 or
 * -errno.
 */
int cache_drop(struct cache *cache, const uint8_t sha256[32], int fd);

/*
 * Writes the absolute path of a published object and a NUL into `ret_path`, which holds `n` bytes.
 * Returns 0, -ENOENT when it is not there, -ENAMETOOLONG.
 */
int cache_path(struct cache *cache, const uint8_t sha256[32], char *ret_path, size_t n);

/*
 * ---- filling ----
 * lookup says -ENOENT; begin, partial, restart; reserve, pwrite, progress; publish or abort.
 */

/*
 * Makes the caller the only one that fills this object, among all threads and processes of the
 * user. Returns
 *	0		*ret_fill: end it with cache_fill_publish() or cache_fill_abort()
 *	-EAGAIN		another one fills the object: cache_wait(), look it up, begin again
 *	-EEXIST		the object was published meanwhile: look it up again
 *	-ENOSPC		no space even for a name, also after a gc
 * or -errno of the system. -EAGAIN may also mean that a gc or a sweep looks at this very object.
 */
int cache_begin(struct cache *cache, const uint8_t sha256[32], struct cache_fill **ret_fill);

/*
 * Makes the caller one of those who fill a sparse partial of `size` bytes, which come in any order:
 * all threads and processes of the user have the same file, until it is published or has no room.
 * What is there may be wrong, and others may write to it at any time; claims.h says who fetches
 * which bytes. `key` is no object's name, and belongs to just this size: another one would cut off
 * bytes of others. Returns 0, to be ended as above; -EAGAIN: another one is joining or publishing,
 * or a gc or a sweep looks at it: soon again; -ENOSPC, or -errno of the system.
 */
int cache_join(struct cache *cache, const uint8_t key[32], uint64_t size,
	       struct cache_fill **ret_fill);

/*
 * Does anyone fill the object now? Returns 1, with the number of bytes that are there; 0; or -errno
 * of the system.
 */
int cache_is_filling(struct cache *cache, const uint8_t sha256[32], uint64_t *ret_filled);

/*
 * Waits until nobody fills the object (it was published or given up, or the process that filled it
 * died); takes no lock. `timeout_ms` is how long the object may stay as it is, as when the other
 * process was stopped; < 0 is for ever. `cancel` may be NULL. Returns 0, -ETIMEDOUT, -ECANCELED, or
 * -errno of the system.
 */
int cache_wait(struct cache *cache, const uint8_t sha256[32], int timeout_ms,
	       struct cancel *cancel);

/*
 * The file to pwrite the object's bytes to, at any offset and in any order, also by several
 * threads. The descriptor stays the same and belongs to the fill: never close it, nor use it after
 * the end.
 */
int cache_fill_fd(const struct cache_fill *fill);

/*
 * Returns the bytes that an earlier fill, or an earlier try of this one, has left: the file holds
 * the first *ret_len bytes of the version that `ret_validator` names (the string given to
 * cache_fill_restart() then). The caller hashes them again. An empty file gives 0 and "". The
 * caller goes on at *ret_len if it fetches the same version, else it calls cache_fill_restart().
 * When a resumed object has the wrong hash, its old part may be the wrong one: restart once from 0
 * before giving up the source. `n` is the size of ret_validator; MAX_CACHE_VALIDATOR + 1 is enough.
 * Returns 0 or -ERANGE.
 */
int cache_fill_partial(const struct cache_fill *fill, uint64_t *ret_len, char *ret_validator,
		       size_t n);

/*
 * Empties the file, and notes the version that the bytes to come belong to (such as an ETag with
 * its URL), so that another fill can resume. NULL or "": no other fill can use them. Gives back the
 * space from cache_fill_reserve(). Returns 0; -EFBIG, with nothing changed, for a validator of more
 * than MAX_CACHE_VALIDATOR bytes; -errno, after which the file is not resumable.
 */
int cache_fill_restart(struct cache_fill *fill, const char *validator);

/*
 * Allocates space so that the file can grow to `size` bytes, after a cache_reserve() of its own: a
 * full disk shows before the download and not in it. The file's size does not change. May be called
 * again with a larger size; a caller that does not trust a length reserves in steps, as every byte
 * may evict another object. On a file system that cannot allocate, it only checks. Returns 0,
 * -ENOSPC, or -errno of the system.
 */
int cache_fill_reserve(struct cache_fill *fill, uint64_t size);

/*
 * cache_fill_more() reserves room for `n` more bytes, anywhere in a file that several fill. It
 * allocates nothing, as a hole means that the bytes have not come. cache_fill_less() gives back `n`
 * of these bytes, which do not come after all. As cache_fill_reserve(). Any thread.
 */
int cache_fill_more(struct cache_fill *fill, uint64_t n);
void cache_fill_less(struct cache_fill *fill, uint64_t n);

/*
 * Notes that the first `len` bytes have all been written: a fill that resumes throws away the bytes
 * behind them. Each call is one small write, so the caller notes every MiB or so. Returns 0 or
 * -errno.
 */
int cache_fill_progress(struct cache_fill *fill, uint64_t len);

/*
 * Makes the file the object `sha256`, at once and whole; the caller has verified that its first
 * `size` bytes are the object (more are cut off). NULL: the object is the one that the fill was
 * begun for; another hash is for bytes whose hash is known only once all of them are there. On
 * success `fill` is freed, and *ret_fd is the object as cache_lookup() gives it. On failure
 * (-EINVAL when the file is shorter than `size`, -ENOENT, -ESTALE or -EAGAIN when another one of
 * those who share it has published it or does so now, -errno) `fill` is still the caller's, to
 * abort.
 */
int cache_fill_publish(struct cache_fill *fill, const uint8_t *sha256, uint64_t size, int *ret_fd);

/*
 * Gives the fill up and frees it. With `keep_partial` the bytes of the last cache_fill_progress()
 * stay for the next fill, if they have a validator; those of a shared one without it are no
 * entry's any more, and go with the last descriptor. NULL-safe.
 */
void cache_fill_abort(struct cache_fill *fill, bool keep_partial);

/* ---- space ---- */

/*
 * Makes an unnamed file (O_RDWR) on the cache's file system, for bytes that must not be published.
 * The file goes with its last descriptor. Reserve its space first. Without a cache (NULL) the file
 * is in $TMPDIR or /var/tmp. Returns 0; -ENOSPC; -EIO (logged) when neither directory can hold it;
 * -errno.
 */
int cache_tmpfile(struct cache *cache, int *ret_fd);

/*
 * Makes room for `bytes` more: removes the least recently used objects and partials that nobody
 * uses, until the bytes fit the limit and the free space, and then 1/64 of the cache more, so that
 * a full cache is not listed at each call. Removes nothing when that would not suffice. The room is
 * not reserved for the caller (cache_fill_reserve() does that). The usage is counted anew after 10
 * s or 1/64 of the limit at the latest, so processes that fill at once may pass the limit by that
 * much for that long; fills of one process do not. The free space is checked at each call. Returns
 * 0, -ENOSPC, or -errno.
 */
int cache_reserve(struct cache *cache, uint64_t bytes);

/*
 * How many bytes would be missing for `bytes` more, if all files that nobody uses were removed but
 * for `have` bytes? 0: there is room. Removes nothing.
 */
uint64_t cache_lacks(struct cache *c, uint64_t have, uint64_t bytes);

/*
 * Sweeps leftovers and damaged objects, then removes the least recently used files that nobody uses
 * until `target` bytes are left (at most the limit of cache_open()) and the free space is kept.
 * *ret_freed (NULL if not wanted) is how many bytes of disk became free; less than asked is no
 * error: the rest is in use. Returns 0 or -errno.
 */
int cache_gc(struct cache *cache, uint64_t target, uint64_t *ret_freed);

/*
 * Removes files of any kind that do not belong into the cache (a FIFO or a directory in place of an
 * object, a file in place of a bucket); each is logged. Returns how many were removed. cache_gc()
 * calls it too.
 */
size_t cache_clean(struct cache *cache);

/* ---- notes: small texts under a name, for what has no sha256 of its own ---- */

/*
 * cache_note_put() keeps `text` (at most MAX_CACHE_VALIDATOR bytes) under `key`, in place of an
 * earlier note; cache_note_get() reads the note with a NUL into `ret_text`, which holds `n` bytes.
 * It is as it was put by a process with the key of this source, perhaps not the last time. Returns
 * 0; -ENOENT: there is none, or no key of the source; -ERANGE; -EFBIG; -errno of the system.
 */
int cache_note_put(struct cache *cache, const uint8_t key[32], const char *text);
int cache_note_get(struct cache *cache, const uint8_t key[32], char *ret_text, size_t n);

/* Removes a note, if there is one. */
void cache_note_drop(struct cache *cache, const uint8_t key[32]);

/*
 * The same for all sources, and without a key: anybody may have put it. So what a hint says is
 * verified before use, or only makes the caller stricter.
 */
int cache_hint_put(struct cache *cache, const uint8_t key[32], const char *text);
int cache_hint_get(struct cache *cache, const uint8_t key[32], char *ret_text, size_t n);
void cache_hint_drop(struct cache *cache, const uint8_t key[32]);

/* ---- seals: the tags of verified bytes (digest.h), which a later mount need not hash ---- */

/* Returns the key of all tags in seals of this source. 0; -ENOENT: there are no seals. */
int cache_tag_key(const struct cache *cache, uint8_t ret_key[KEY_SIZE]);

/*
 * Returns a name, or a word, for one purpose: a MAC of `n` bytes under the key of the source.
 * Nobody who lacks the key can tell it, nor get content of that name into a MANIFEST. 0; -ENOENT:
 * there is no key; -ENOMEM or -EIO.
 */
int cache_mac(const struct cache *cache, const char *purpose, const void *of, size_t n,
	      uint8_t ret_mac[SHA256_SIZE]);

/*
 * Keeps the tags of an object of `size` bytes, made with the key above while each byte was hashed,
 * in place of earlier ones. 0; -EINVAL: smaller than MIN_SEALED or larger than MAX_SEALED, or there
 * is no key; -ENOSPC; or -errno.
 */
int cache_seal_put(struct cache *cache, const uint8_t sha256[32], uint64_t size,
		   uint8_t (*tags)[TAG_SIZE]);

/*
 * Returns the tags, which the caller frees, and marks the seal as used. 0; -ENOENT: there is no
 * seal of that size, or it was damaged and is dropped (logged); -ENOMEM; or -errno.
 */
int cache_seal_get(struct cache *cache, const uint8_t sha256[32], uint64_t size,
		   uint8_t (**ret_tags)[TAG_SIZE]);

/*
 * Checks for damage a seal of any source, by the name of its file (cache_list()), but does not mark
 * it as used. 0; -ENOENT; -EBADMSG: it was damaged and is dropped (logged); or -errno.
 */
int cache_seal_check(struct cache *cache, const uint8_t name[32]);

/* Removes a seal: the bytes that were read did not match it. */
void cache_seal_drop(struct cache *cache, const uint8_t sha256[32]);

/* ---- what is there ---- */

/*
 * Notes the path and the source that an object came from, for people. A path of "": no single file.
 * Both are cut at the front if longer than MAX_CACHE_NAME, and lose their control characters. Those
 * noted long ago are forgotten. Best effort. NULL-safe.
 */
void cache_name_put(struct cache *cache, const uint8_t sha256[32], const char *path,
		    const char *source);

struct cache_object {
	uint8_t sha256[32]; /* of the object; a seal says it, and nothing has checked that */
	uint8_t name[32];   /* of the file */
	uint64_t size;	    /* bytes of the object or of the seal's file; of a partial, on disk */
	int64_t used;	    /* last use, seconds since the epoch */
	enum cache_kind {
		CACHE_OBJECT,
		CACHE_SEAL,
		CACHE_PARTIAL,
	} kind;
	const char *path, *source; /* as cache_name_put() got them; NULL: not known */
};

/* `object` is good during the call only. Other calls on the cache are fine; not 0 ends the list. */
typedef int cache_list_fn(void *ctx, const struct cache_object *object);

/*
 * Calls `fn` for each published object, then for each seal, then for each partial, in no order.
 * Returns 0, what `fn` returned, or -errno.
 */
int cache_list(struct cache *cache, cache_list_fn *fn, void *ctx);

#endif
