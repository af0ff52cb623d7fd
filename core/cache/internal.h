/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the files of cache/. From the bottom up:
 *
 *	files		names, temporary files, walking
 *	lock		who fills, drops or removes an object
 *	claims		who fetches which bytes of a partial that several fill
 *	clean		removing files that do not belong there
 *	sweep		removing the files that dead processes left
 *	gc		space: counting it, removing files that nobody uses
 *	sidecar		how many bytes of a partial count
 *	fill		the object that is being filled
 *	names		what objects are called, for people
 *	cache		published objects
 *	note		the key, and small texts
 *	seal		tags of objects
 *	open		the directories
 *	key		the file of the key
 *	file, read	unverified bytes, also as a stream; verified objects
 *	room		where unverified bytes go
 */
#ifndef CARTON_CACHE_INTERNAL_H
#define CARTON_CACHE_INTERNAL_H

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include "cache/cache.h"
#include "base/digest.h"
#include "base/util.h"

#define HEX_SIZE 65	     /* a sha256 in hex with its NUL */
#define OBJECT_NAME_SIZE 68  /* "ab/<hex>" */
#define SIDECAR_NAME_SIZE 67 /* "<hex>.v" */
#define SIDECAR_SUFFIX ".v"
#define LOCK_FILE "lock" /* in v1/, as the next two */
#define NAMES_FILE "names"
#define NAMES_OLD_FILE "names.old"

#define SEAL_MAGIC "cartonfs seal 2" /* with its NUL */
#define SEAL_HEADER_SIZE 64

#define OPEN_FLAGS (O_CLOEXEC | O_NOFOLLOW)

struct cache {
	/* Set by cache_find() and cache_start(), then constant. */
	int top;				 /* the directory; -1 after cache_start() */
	int v1;					 /* v1/ */
	int objects, partial, notes, seals, tmp; /* the directories of v1/ */
	char *path;				 /* of v1/, absolute */
	uint64_t limit;
	atomic_bool failed;	 /* to be filled, which was logged */
	_Atomic int64_t full_ms; /* when the cache last had no room, by now_ms(); 0: never */
	bool has_key;		 /* false: there are neither seals nor notes */
	uint8_t key[KEY_SIZE];

	pthread_mutex_t space_lock; /* guards the rest; one thread counts at a time */
	bool counted;
	int64_t counted_ms; /* when `used` was last counted */
	uint64_t used;	    /* bytes then, and bytes that were reserved since */
	uint64_t reserved;  /* of these, since then */
	struct cache_grant *grants;
};

/*
 * Room for one file that is being written. A count takes the file for as large as it will be, until
 * the grant is dropped: on disk it is smaller before its blocks are allocated or written.
 */
struct cache_grant {
	struct cache_grant *next;
	uint8_t sha256[32]; /* of the partial, */
	int fd;		    /* and open; -1: a file that no count finds */
	uint64_t bytes;	    /* of disk that it will take; 0: not in the list */
	bool met;	    /* in the count under way */
};

/* Bytes of LOCK_FILE from `at` on are locked by the open file description of `fd`. */
struct cache_lock {
	int fd;
	off_t at;
};

/*
 * Returns how many bytes of the file system of `fd` have to become free before `n` more leave a
 * twentieth of it free, or `keep` bytes if that is less. 0 or -errno.
 */
int cache_disk_short(int fd, uint64_t n, uint64_t keep, uint64_t *ret_short);

/*
 * Gives the file room for its first `size` bytes, and leaves its length. 0, also where the file
 * system cannot; -ENOSPC; or -errno.
 */
int cache_allocate(int fd, uint64_t size);

/* Returns how many bytes of the disk an open file takes. */
uint64_t cache_blocks(int fd);

void cache_object_name(const uint8_t sha256[32], char ret_name[OBJECT_NAME_SIZE]);
void cache_sidecar_name(const uint8_t sha256[32], char ret_name[SIDECAR_NAME_SIZE]);

/*
 * Opens a regular file beneath `dir`, without ever waiting or following a symlink. 0; -EISDIR: the
 * name is of something else (also a FIFO or a symlink); -errno as openat(2).
 */
int cache_open_file(int dir, const char *name, int flags, int *ret_fd);

/*
 * The same for a published or damaged object, read-only; -ENOTDIR when its bucket is no directory.
 */
int cache_open_object(struct cache *c, const uint8_t sha256[32], int *ret_fd);

/* Is `name` nothing but the hex of n bytes? A sidecar's name only starts so. */
static inline bool cache_name_decode(const char *name, size_t n, uint8_t *ret_data)
{
	return strlen(name) == 2 * n && hex_decode(name, n, ret_data);
}

/* Takes the lock of an object: 0, -EAGAIN when another thread or process has it, or -errno. */
int cache_lock_try(struct cache *c, const uint8_t sha256[32], struct cache_lock *ret_lock);
void cache_lock_release(struct cache_lock *lock);

/* The same beside others who share it: -EAGAIN when somebody has it alone. */
int cache_lock_share(struct cache *c, const uint8_t sha256[32], struct cache_lock *ret_lock);

/* Only one of those who share it gives names to files, or takes them away: 0, -EAGAIN, -errno. */
int cache_lock_name(const struct cache_lock *lock, bool on);

/* 1 when anyone holds the lock of an object, else 0, or -errno. Takes no lock. */
int cache_lock_is_held(struct cache *c, const uint8_t sha256[32]);

/* Was the object marked as damaged? The mark is on the inode, so no newer file gets it. */
static inline bool cache_is_damaged(mode_t mode)
{
	return !(mode & S_IRUSR);
}

/* Is there an object that a lookup would find? Stable while its lock is held. */
bool cache_is_published(struct cache *c, const uint8_t sha256[32]);

/*
 * Makes a file in tmp/ (O_RDWR, mode 0600) with an exclusive flock, so that no sweep removes it. On
 * a file system without such locks, no sweep can remove it either.
 */
int cache_tmp_create(struct cache *c, char ret_name[HEX_SIZE], int *ret_fd);

/*
 * Puts a file of `n` bytes at `name` beneath `dir`, whole or not at all, in place of an earlier
 * file. 0 or -errno.
 */
int cache_put_file(struct cache *c, int dir, const char *name, const void *data, size_t n);

/* Opens a stream of the directory `name` beneath `fd`. 0 or -errno. */
int cache_opendir(int fd, const char *name, DIR **ret_dir);

/*
 * Calls `fn` for each published or damaged object, with its stat. `fn` returns 0 to go on.
 */
typedef int cache_each_fn(void *ctx, const uint8_t sha256[32], const struct stat *st);
int cache_each(struct cache *c, cache_each_fn *fn, void *ctx);

/* The same for each file of a directory (of seals, of partials) that has the name of a sha256. */
int cache_each_in(int fd, cache_each_fn *fn, void *ctx);

/* The name of a seal's file, a MAC with the key of the source. 0; -ENOENT: no key; -EIO. */
int cache_seal_name(const struct cache *c, const uint8_t sha256[32], char ret_name[HEX_SIZE]);

/*
 * Is the file a seal of the current version, of any source? 1, and the sha256 in its header, which
 * nothing has checked; 0: it is not; or -errno.
 */
int cache_seal_says(int fd, uint8_t ret_sha256[32]);

/* The key of the seals that versions up to 0.2 made: it is removed, and so are these seals. */
#define OLD_SECRET "secret"

/*
 * The path of the user's directory "cartonfs", malloc'ed: in the directory that the variable names,
 * else in HOME/`in_home`. 0; -ENOENT: there is no home; -ENOMEM.
 */
int cache_user_dir(const char *variable, const char *in_home, char **ret);

/*
 * Checks that root does not make the directory `path` in the home of another user, for example
 * after sudo -E: the programs of that user could not write to it. `path` has no slash at its end.
 * 0; -EPERM: the directory above, *ret_above (malloc'ed), belongs to *ret_owner; or -ENOMEM.
 */
int cache_check_home(const char *path, char **ret_above, uid_t *ret_owner);

/* mkdir -p with mode 0700: 0, or -errno of the last directory. */
int cache_make_dirs(char *path);

/*
 * cache_reserve() for a file that may grow to `bytes` of disk now. The grant lasts until it is
 * dropped, also on failure if it was given before. cache_grant_cut() makes it smaller by `bytes`,
 * which are not needed.
 */
int cache_grant(struct cache *c, struct cache_grant *grant, uint64_t bytes);
void cache_grant_cut(struct cache *c, struct cache_grant *grant, uint64_t bytes);
void cache_grant_drop(struct cache *c, struct cache_grant *grant);

/*
 * Gives the partial of a grant the name of an object, and drops the grant: each count finds the
 * file under one of the names. 0 or -errno, and then nothing has changed.
 */
int cache_grant_rename(struct cache *c, struct cache_grant *grant, const char *from,
		       const char *to);

/*
 * Returns what cache_reserve() would, without removing or counting anything: for a length that may
 * be wrong.
 */
int cache_could_reserve(struct cache *c, uint64_t bytes);

/*
 * Removes objects of at least `bytes` in all, although the disk seems to have room. As
 * cache_reserve().
 */
int cache_evict(struct cache *c, uint64_t bytes);

/*
 * Logs, once in an incident, that a copy of `bytes` (0: not known) has no room in the cache, and
 * which options help.
 */
void cache_log_full(struct cache *c, const char *subject, uint64_t bytes);

/* Reads all names that cache_name_put() has noted. 0 or -ENOMEM. */
struct cache_names;
int cache_names_read(struct cache *c, struct cache_names **ret);
void cache_names_free(struct cache_names *names); /* NULL-safe */

/* Sets the path and the source of object->sha256, which live as long as `names`; or NULL. */
void cache_names_find(const struct cache_names *names, struct cache_object *object);

/* What the sidecar of a partial says. */
struct sidecar {
	int fd;		 /* -1: the partial is not resumable */
	uint64_t len;	 /* how many bytes of the partial count */
	char *validator; /* its own; NULL: the partial cannot be resumed */
};

/* Opens a good one. 0 also without one, and then *s stays as it is; or -errno. */
int sidecar_read(struct cache *c, const uint8_t sha256[32], struct sidecar *s);

/* Makes one of s->validator, with no bytes yet, in place of an earlier one. 0 or -errno. */
int sidecar_write(struct cache *c, const uint8_t sha256[32], struct sidecar *s);

/* Notes how many bytes count; does nothing without a file. 0 or -errno. */
int sidecar_note(struct sidecar *s, uint64_t len);

/* Removes it: no byte of the partial counts any more. 0 or -errno. */
int sidecar_remove(struct cache *c, const uint8_t sha256[32], struct sidecar *s);

void sidecar_close(struct sidecar *s);

/* Removes what dead processes left in partials/ and tmp/, and what an older version left. */
void cache_sweep(struct cache *c);

/*
 * Removes a file, or a directory with what is in it, and follows no symlink. 0; -ELOOP: it is too
 * deep; -errno.
 */
int cache_remove_any(int dir, const char *name);

/* Removes a partial and its sidecar; their lock is held. */
void cache_remove_partial(struct cache *c, const uint8_t sha256[32]);

/*
 * Brings the cache under its limit after `bytes` were written that nobody had reserved. Best
 * effort.
 */
void cache_trim(struct cache *c, uint64_t bytes);

#endif
