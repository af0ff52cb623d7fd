/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one face of the library: a carton, its tree and the verified bytes of its files.
 *
 *	carton_open -> carton_root, carton_lookup, carton_child …	look around, never waits
 *		    -> carton_pin -> carton_read -> carton_unpin	read a file
 *	carton_stop -> (all requests have ended) -> carton_close
 *
 * Every function returns 0 or more on success and -errno on failure; ret_ parameters are then
 * untouched. Each failure is logged (log.h). Once open, a carton may be used by any number of
 * threads. Nodes live as long as the carton. Callbacks come from threads of the library: they may
 * not wait, nor close the carton.
 *
 * Of libcarton.so.0 only these names are exported, each with a version. Structures may grow, and
 * functions change, only together with the number in the name of the library. See libcarton(3).
 */
#ifndef CARTON_H
#define CARTON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "log.h"

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

struct carton;
struct carton_node;
struct carton_request;

enum carton_verify_mode {
	CARTON_VERIFY_OPEN, /* the hash of a file is checked when it is first pinned */
	CARTON_VERIFY_OFF   /* nothing is checked but sizes */
};

/* Files and directories that are opened by name after the process was confined. */
struct carton_paths {
	const char *source;   /* the directory that is read; NULL: a file, open by now, or a URL */
	const char *cache;    /* the directory whose content is read and changed; NULL: none */
	const char *files[2]; /* read, perhaps again; NULL: none */
	const char *const *mirrors; /* directories that are read, ending with NULL; NULL: none */
	const char *writes[2];	    /* directories in which carton_pack() makes files; NULL: none */
	bool network;		    /* false: nothing will be fetched */
	const char *key; /* the user's key of the cache: must not be opened any more; or NULL */
};

/*
 * Gives up the rights that the process does not need. Called once, before a byte of the carton is
 * read and before any thread is started. 0; 1: the process is confined, but can still open `key`;
 * or -errno, logged, which is then what the open returns.
 */
typedef int carton_confine_fn(void *ctx, const struct carton_paths *paths);

/*
 * A file, which may be open and partly read, is damaged after all: its chunks were right by the
 * index, but the whole file has another sha256. Its bytes cannot be read any more, and a callee
 * that has kept some drops them. Called for each file that shows these bytes, generated ones too,
 * on a thread of the carton's; it may wait for reads.
 */
struct carton_node;
typedef void carton_damaged_fn(void *ctx, struct carton_node *file);

/*
 * Bytes so far, and in all: of files that are hashed, sent or written, or of what comes. Called
 * often, also when nothing has come meanwhile, from one thread at a time.
 */
typedef void carton_progress_fn(void *ctx, uint64_t done, uint64_t total);

/* All zero is the default for everything. Strings need to live during carton_open() only. */
struct carton_options {
	enum carton_verify_mode verify;
	const char *manifest_sha256; /* the model hash it must have, 64 hex digits; NULL: any */
	const char *sha256;	     /* the same of a bare file; NULL: it is not verified */
	const char *cache_dir;	     /* NULL: $XDG_CACHE_HOME/cartonfs */
	uint64_t cache_size;	     /* bytes the cache may take; 0: a tenth of its disk */
	bool noseals;		     /* neither use nor leave seals: hash all in each mount */
	bool hash_all;		     /* leave seals, but use none */
	bool chunks;		     /* use the chunk index, so that a large file opens at once */
	uint64_t memory;      /* bytes for tables and kept content; 0: a part of the machine's */
	bool offline;	      /* fetch nothing */
	unsigned connections; /* to one server at once; 0: 8 */
	unsigned timeout_s;   /* without a byte, before a fetch fails; 0: 60 */
	bool wait; /* once it is open, so long also for servers that are not reached; false: 5 s */
	uint64_t max_size;  /* bytes of one fetched file; 0: 1 TiB, or 64 GiB if not announced */
	bool private_links; /* LINKS may lead to private addresses */
	bool hub_token;	    /* of a local carton: the user's token goes with LINKS to HF_ENDPOINT */
	const char *cacert; /* PEM file of authorities to trust instead of the system's */
	const char *header_file; /* `Name: value` lines for the origin of the source's URL only */
	/* templates, asked before LINKS and the source URL; ends with NULL; NULL: none */
	char *const *mirrors;
	const char *views;	    /* the name of the directory of generated views; NULL: none */
	bool views_hidden;	    /* it is found by name, but not listed */
	bool keep_going;	    /* faults of single files are logged, not fatal (for verify) */
	carton_confine_fn *confine; /* NULL: none */
	void *confine_ctx;
	carton_damaged_fn *damaged; /* likewise */
	void *damaged_ctx;
	const char *push_to; /* that of carton_push(), for which the user logs in; NULL: none */
	/*
	 * Only what one of these has signed is opened, and only files that the signature lists are
	 * in the tree: PEM files of public keys, or of authorities; each ends with NULL, or is NULL
	 */
	char *const *verify_keys, *const *verify_cas;
	const char *signer;    /* the subject or another name of the certificate; with verify_cas */
	const char *signature; /* a file or a URL; NULL: where it is looked for */
	const char *beside;    /* the path of `source`, if that is /dev/fd/N; NULL: `source` */
	/*
	 * While the open waits for servers: bytes fetched so far, such as of the list of a
	 * repository. The total is 0, unless the carton is downloaded as a whole, because its
	 * server has no Range requests, or small files of a repository come. Or NULL
	 */
	carton_progress_fn *progress;
	void *progress_ctx;
	int64_t date; /* the date of all nodes, in seconds since 1970; 0: `mtime` of carton_stat */
	bool requester_pays; /* the user pays for requests to buckets of S3 */
	/*
	 * Registries, HOST[:PORT], that are asked by http if they have no https, and that may get
	 * passwords by http; "*": the registries of `source` and push_to. Ends with NULL; NULL:
	 * only this machine
	 */
	char *const *plain_http;
	/*
	 * The user's key, with which the cache says what was verified: a file that no carton can
	 * reach. It is made if missing. NULL: $XDG_STATE_HOME/cartonfs/cache.key, for root
	 * /var/lib/cartonfs/cache.key; if that cannot be used, all content is verified again.
	 */
	const char *cache_key;
	/*
	 * For a repository of a hub: the open does not wait for small files, of which the hub lists
	 * no sha256. They are fetched when they are read, or all of them in the background. The
	 * model hash and the bytes of MANIFEST are known once all of them were read. Ignored with
	 * options that need these at once: manifest_sha256, verify_keys, verify_cas, hash_all,
	 * keep_going, push_to
	 */
	enum { CARTON_LATE_NO, CARTON_LATE_READ, CARTON_LATE_FETCH } late;
};

/*
 * Opens the carton at `source`: a zip file, an unpacked directory (carton format v1), or the http
 * or https URL of a zip file. MANIFEST must be there and well-formed, every path in it must have
 * bytes somewhere, carton.toml must have its hash and spec_version 1, symlinks must lead to files
 * of the hash that MANIFEST gives them.
 *
 * Starts threads: call it after any fork. Returns 0, or, logged with what to do about it:
 *  -EBADMSG	damaged, ambiguous or not a carton; or not the model hash that was asked for
 *  -EOPNOTSUPP	a carton that uses a feature that this program does not read
 *  -EFBIG	over a limit
 *  -EINVAL	an option makes no sense
 *  -EKEYREJECTED	it is not signed as verify_keys and verify_cas want
 *  -ENOENT, -EACCES, -ENOMEM, … as the system says
 */
int carton_open(const char *source, const struct carton_options *options, struct carton **ret);

/*
 * Called when a request has ended, on a thread of the carton's that must not be kept waiting;
 * perhaps before the call that began the request has returned.
 */
typedef void carton_done_fn(void *ctx, int result);

/*
 * As carton_open(), but on a thread of its own: a caller that waits for `done` can give up before a
 * silent server does. -EINPROGRESS: `done` will be called with the result; until then, `source` and
 * the strings of `options` must live, and *ret is for carton_stop() and carton_close() only. Both
 * end the wait soon, with -ENOTCONN; the latter returns after `done` has. *ret is to be closed
 * after a failure, too. Or -EINVAL: `confine`, which would confine that thread alone; -ENOMEM;
 * -EAGAIN.
 */
int carton_open_later(const char *source, const struct carton_options *options,
		      carton_done_fn *done, void *ctx, struct carton **ret);

/*
 * Why the last call of this thread failed that opens a carton, or lists, finds, pins or reads files
 * (carton_open() to carton_info()): `error` is its result. In a carton_done_fn, why the request has
 * failed. One line that is safe to print: the subject, if there is one, and the message, as the log
 * has them, at most 2047 bytes. Never NULL; it changes with the next call of this thread.
 */
const char *carton_error(int error);

/*
 * Is a result one that may be another soon, such as -ECONNREFUSED or -ETIMEDOUT: a server is not
 * reached, overloaded, or fails?
 */
bool carton_error_passes(int error);

/* May it still fetch anything? False: it is local without LINKS, or offline. */
bool carton_fetches(const struct carton *c);

/*
 * From now on fetches the carton from `url`: the same file, such as with a new signature. Another
 * file is noticed, and is -ESTALE for readers. 0; -EINVAL: no URL (logged); -EOPNOTSUPP: it is not
 * fetched; -ENOMEM. Any thread.
 */
int carton_refresh(struct carton *c, const char *url);

/*
 * Is it a bare safetensors file? Then there is no carton.toml; the root has the tensors, which are
 * generated as in a directory of views, and the file; and there is no model hash.
 */
bool carton_is_bare(const struct carton *c);

/* Are its bytes verified? False: verify=off, or a bare file whose hash the user has not given. */
bool carton_is_verified(const struct carton *c);

/* Is it read from a server? */
bool carton_is_remote(const struct carton *c);

/* The commit of the repository of a hub that was opened; NULL: it is something else. */
const char *carton_commit(const struct carton *c);

/*
 * Returns how many files of the repository that was opened are left out, because MANIFEST cannot
 * hold their paths. Calls `fn` (may be NULL) for the first of them, with the path, perhaps cut, and
 * the fault of the path. carton_open() has logged them with CARTON_LEFT_OUT and
 * CARTON_LEFT_OUT_MORE.
 */
typedef void carton_left_out_fn(void *ctx, const char *name, const char *why);
uint64_t carton_left_out(const struct carton *c, carton_left_out_fn *fn, void *ctx);
#define CARTON_LEFT_OUT "is left out: its name %s, so MANIFEST cannot list it"
#define CARTON_LEFT_OUT_MORE "%" PRIu64 " more files are left out for their names"

/* Who has signed what is open; see carton_options. */
#define CARTON_SIGNER 512
struct carton_signature {
	bool checked;		/* false: nobody has asked for it, and the rest is empty */
	char by[CARTON_SIGNER]; /* "key" and its sha256, or the subject of a certificate */
	int64_t ends; /* when the certificate does, seconds since 1970; 0: a key has no end */
};
const struct carton_signature *carton_signed(const struct carton *c);

/* Ends every request: all that wait get -ENOTCONN, and so does every later one. */
void carton_stop(struct carton *c);

/* Stops it if that was not done, waits for its threads, frees it. Nothing is pinned. NULL-safe. */
void carton_close(struct carton *c);

/* Has the cache room for so many bytes more, perhaps in place of what nobody uses? */
bool carton_has_room(struct carton *c, uint64_t bytes);

/* ---- the tree ---- */

enum carton_kind { CARTON_DIR, CARTON_FILE, CARTON_SYMLINK };

struct carton_stat {
	enum carton_kind kind;
	bool executable;
	uint64_t ino;	   /* never 0: 48 bits, by path and content; the root's is 1 */
	uint64_t size;	   /* bytes; of a symlink: of its target; 0 while it is not known */
	bool size_known;   /* false: carton_size() finds out */
	bool size_certain; /* false: as a server says, until the file is pinned */
	uint32_t nlink;
	bool hidden; /* found by name, not to be listed */
	/*
	 * The date, in seconds since 1970. It is options.date, if that is not 0. A file or symlink
	 * in an unpacked directory has its own date. A bare file and its views have the date of the
	 * file, unless it is at a URL and its sha256 is given.
	 *
	 * Any other date follows from the content: it is 1990-01-01 UTC plus 2 s times a number of
	 * 28 bits. The number of a file is the first 7 hex digits of its sha256. That of a symlink,
	 * a directory and a view is from a hash: of the target; of the names and contents below; of
	 * the view's header and the range of the file behind it. A view of a whole file without a
	 * header has the number of the file.
	 */
	int64_t mtime;
};

struct carton_totals {
	uint64_t files;
	uint64_t nodes;
	uint64_t bytes;
};

/* The root directory. That of a bare file is generated: carton_list() comes first. */
struct carton_node *carton_root(const struct carton *c);

/*
 * Makes sure that a directory's children are there: some are generated when they are first asked
 * for. 0; -EINPROGRESS: `done` will be called, as carton_pin(); -EAGAIN: it has to wait, and `done`
 * is NULL; or why not now. The functions below need the children, unless they say otherwise.
 */
int carton_list(struct carton *c, struct carton_node *dir, carton_done_fn *done, void *ctx,
		struct carton_request **ret_request);

/* The child of that name: 0, -ENOENT, -ENOTDIR. */
int carton_lookup(const struct carton_node *dir, const char *name, struct carton_node **ret);

/*
 * The node at a path from the root. A symlink there is followed to its file, and generated
 * directories on the way are waited for: 0, -ENOENT, or why not now.
 */
int carton_resolve(const struct carton *c, const char *path, struct carton_node **ret);

/* The children of a directory in order: the one at `index`, or NULL behind the last. */
struct carton_node *carton_child(const struct carton_node *dir, size_t index);

struct carton_node *carton_parent(const struct carton_node *node);

/*
 * The next node of all that is not generated, depth-first, from the root on; NULL behind the last.
 */
struct carton_node *carton_next(const struct carton *c, struct carton_node *node);

const char *carton_name(const struct carton_node *node);
void carton_path(const struct carton_node *node, char ret_path[4096]);
void carton_stat(const struct carton_node *node, struct carton_stat *ret);
const char *carton_target(const struct carton_node *symlink);
void carton_totals(const struct carton *c, struct carton_totals *ret);

/*
 * The model hash: sha256 of MANIFEST, as 64 hex digits and a NUL. "": a bare file has none, or it
 * is not known yet, see `late` of carton_options.
 */
void carton_model_hash(const struct carton *c, char ret_hex[65]);

/* How the container holds a file. False: it is a view or a directory. */
struct carton_storage {
	const char *method; /* "stored", "deflate", "zstd", or "links": it does not have it */
	bool contained;
	bool as_it_is;	/* contained, and not compressed */
	uint64_t bytes; /* that it takes in the container */
};
bool carton_storage(const struct carton_node *file, struct carton_storage *ret);

/*
 * A property of a file, as an extended attribute shows it: `user.carton.sha256` (-ENODATA as long
 * as that is not known), `user.carton.state` (unverified, verified, sealed, corrupt; while it is
 * opened for the first time `verifying 37%` or `fetching 37%`), `user.carton.storage` (how the
 * container holds it, and in how many bytes); of a view `user.carton.dtype` and
 * `user.carton.shape`. Returns the value's length, without its NUL, as if `n` were enough, or
 * -ENODATA.
 */
ssize_t carton_property(const struct carton_node *node, const char *name, char *ret, size_t n);

/*
 * The number of a node: 1 is the root. Another process that opens the same carton with the same
 * options has the same numbers, if carton_layout() says so; but not of generated nodes, whose
 * numbers have the bit CARTON_GENERATED. No number has a higher bit.
 */
#define CARTON_GENERATED (1ULL << 47)
uint64_t carton_number(const struct carton *c, const struct carton_node *node);

/* Returns the node with that number, or NULL. Any number is safe, also one from outside. */
struct carton_node *carton_by_number(const struct carton *c, uint64_t number);

/*
 * 64 hex digits and a NUL: a hash of the model hash, and of the number, name, kind, mode, and time
 * of each node that was not generated. Reads all of them. 0, -ENOMEM or -EIO.
 */
int carton_layout(const struct carton *c, char ret_hex[65]);

/* ---- reading ---- */

/*
 * Pins a file, so that it can be read until carton_unpin(): this is where it is verified.
 *  0		pinned
 *  -EINPROGRESS	`done` will be called, with 0 when it is pinned; *ret_request is a handle
 *		to be given back with carton_request_free() at any time
 *  -EAGAIN	it has to wait, and `done` is NULL; what takes microseconds is done here
 *  -EBADMSG	some of its bytes are not what MANIFEST says
 *  -EISDIR, -ELOOP	not a file
 *  -ENOSPC, -EIO, -ENOMEM, -ENOTCONN … this attempt failed; the next may not
 */
int carton_pin(struct carton *c, struct carton_node *file, carton_done_fn *done, void *ctx,
	       struct carton_request **ret_request);
void carton_unpin(struct carton_node *file);

/*
 * Gets the bytes of a file while they are verified, so that they need not be copied a second time
 * for readers. The caller must let nobody read them before end(0).
 */
struct carton_observer {
	/*
	 * Gets unverified bytes: each byte once, in any order, on two threads at once. May not wait
	 * long.
	 */
	void (*bytes)(struct carton_observer *observer, uint64_t off, const void *data, size_t n);
	/*
	 * Called once, after bytes() has returned, before any `done` is called: 0: the observer got
	 * all bytes, and they are verified; -EALREADY: it got none; any other error: it must drop
	 * the bytes that it got. The library does not use the observer any more.
	 */
	void (*end)(struct carton_observer *observer, int result);
	/*
	 * A file, open for reading and writing, to which bytes() writes them at their offsets; -1:
	 * there is none. Where a copy of them would be made, this is it: it is read from while the
	 * file is pinned, or kept, and compared with their tags.
	 */
	int fd;
};

/*
 * As carton_pin(), with an observer (may be NULL) that gets the bytes if this call begins to verify
 * them. Its end() is called in any case.
 */
int carton_pin_observed(struct carton_node *file, struct carton_observer *observer,
			carton_done_fn *done, void *ctx, struct carton_request **ret_request);

/* The memory limit of the carton in bytes: the option, or a part of the machine's memory. */
uint64_t carton_memory(const struct carton *c);

/*
 * A byte of each node for the program that serves the tree; 0 at first. Any thread may change it,
 * by atomic operations, such as the compiler's __atomic_fetch_or().
 */
unsigned char *carton_mark(struct carton_node *node);

/*
 * Whoever reads `file` in order will read `next` then (NULL: nothing): where chunks are fetched
 * ahead of readers, they are across the end of it, too. The open of `next` does not fetch them.
 */
void carton_follow(struct carton_node *file, struct carton_node *next);

/*
 * Finds out the size of a file, where only a server can tell. 0: it is known; -EINPROGRESS: `done`
 * will be called, as carton_pin(); -EAGAIN: it has to wait, and `done` is NULL; or the failure.
 */
int carton_size(struct carton *c, struct carton_node *file, carton_done_fn *done, void *ctx,
		struct carton_request **ret_request);

/* Pins it and waits as long as that takes: as carton_pin(), but never -EINPROGRESS or -EAGAIN. */
int carton_pin_wait(struct carton *c, struct carton_node *file);

/* The same, with an observer as carton_pin_observed(). */
int carton_pin_wait_observed(struct carton_node *file, struct carton_observer *observer);

/*
 * Reads up to `n` bytes at `off` of a pinned file: how many, 0 at its end. -EBADMSG when they have
 * changed since they were verified; -EIO, -ENOMEM. With `nowait`, -EAGAIN when they are not in
 * memory. After a failure the buffer may have bytes that were not verified.
 */
ssize_t carton_read(struct carton_node *file, void *ret_buf, size_t n, uint64_t off, bool nowait);

/*
 * A descriptor of a file with exactly the bytes of a pinned file, which the kernel can read by
 * itself: a copy in the cache whose whole sha256 was checked since the carton was opened. The
 * carton owns it; do not use it for other reads. Bytes read from it are not checked again.
 * -ENODATA: there is none.
 */
int carton_copy_fd(const struct carton_node *file);

/* Up to `n` bytes at `off` of a pinned file. */
struct carton_range {
	struct carton_node *file;
	uint64_t off;
	size_t n;
};

/*
 * Reads as carton_read() does, but on a thread of the carton's, into a buffer of the request's
 * that carton_request_data() shows once `done` was called with the number of bytes. The request
 * pins what it reads by itself. -EINPROGRESS; -ENOMEM; or -EBADMSG: it cannot be pinned any more.
 */
int carton_read_later(struct carton *c, const struct carton_range *range, carton_done_fn *done,
		      void *ctx, struct carton_request **ret_request);

/* The bytes that a read request got. */
const void *carton_request_data(const struct carton_request *request);

/* True: `done` was not and will not be called. Work that others wait for goes on. */
bool carton_request_cancel(struct carton_request *request);
void carton_request_free(struct carton_request *request); /* NULL-safe */

/* ---- the carton as a whole ---- */

/*
 * Checks all there is to check: every file in parallel, carton.toml, the tensor index, MANIFEST's
 * form, entries that are not listed. Every problem is logged as an error or a warning. Returns the
 * number of problems, or -errno when it could not go on. *ret_why is set if there are some: why is
 * the worst, -EBADMSG before what will stay, and that before what may pass, such as -ETIMEDOUT.
 * `progress` and `ret_why` may be NULL.
 */
ssize_t carton_verify(struct carton *c, carton_progress_fn *progress, void *ctx, int *ret_why);

struct carton_files {
	struct carton_node *const *list;
	size_t n;
};

/*
 * All of these files will be pinned soon: those that lie together at a server are fetched together.
 */
void carton_want(const struct carton_files *files);

/*
 * Verifies files as carton_pin() does, fetching what has to be fetched, so that later pins need not
 * wait: those that are given, or all of them when `files` is NULL. Failures are logged. Returns
 * how many failed, or -errno. `progress` and *ret_why are those of carton_verify().
 */
ssize_t carton_materialize(struct carton *c, const struct carton_files *files,
			   carton_progress_fn *progress, void *ctx, int *ret_why);

/* How far carton_fetch() is. */
struct carton_fetched {
	size_t files;	/* that were asked for, */
	size_t local;	/* of these in a local carton itself, so that nothing is fetched */
	size_t cached;	/* the others that are in the cache, or in a directory of `mirrors` */
	uint64_t came;	/* bytes from servers, so far */
	uint64_t size;	/* and in all; 0: not known */
	uint64_t lacks; /* bytes of room that are missing in the cache */
	int why;	/* that of carton_verify(), if some could not be fetched */
};

/* A large file that is being fetched: bytes from servers, so far and in all (0: not known). */
struct carton_fetching {
	const char *path;
	uint64_t came, size;
};

/* Called as a carton_progress_fn; what it gets is good during the call. */
typedef void carton_fetch_fn(void *ctx, const struct carton_fetched *so_far,
			     const struct carton_fetching *running, size_t n_running);

/*
 * As carton_materialize(), but only the cache will do for what has to be fetched: all that was
 * asked for is at hand afterwards if this returns 0 and ret->local + ret->cached is ret->files.
 * -ENOSPC: there is no room for all of it, and nothing was fetched; -ENOENT: there is no cache.
 * `ret` is set in any case; `progress` may be NULL. Other reads of this carton meanwhile have the
 * cache only, too.
 */
ssize_t carton_fetch(struct carton *c, const struct carton_files *files, carton_fetch_fn *progress,
		     void *ctx, struct carton_fetched *ret);

/*
 * Compares the regular file `fd`, which is read from its start, with `file`, which is not
 * generated: by sha256, without opening the carton's own copy. 0; -EBADMSG: the bytes differ; or
 * the error of reading it.
 */
int carton_compare(struct carton_node *file, int fd);

/* ---- counters ---- */

/*
 * Now, and since it was opened. Files are those that MANIFEST lists, bytes those of files whose
 * size is known. A file that shares its content with another counts as well.
 */
struct carton_counters {
	uint64_t files, bytes;
	uint64_t verified_files, verified_bytes;
	uint64_t corrupt_files, corrupt_bytes;
	/*
	 * Of files that the local carton does not have: those that are here by now, or that the
	 * last search of the cache has found, see carton_look_in_cache();
	 */
	uint64_t cached_bytes;
	uint64_t remote_bytes;		      /* and not */
	uint64_t linked_files, linked_bytes;  /* that only LINKS has */
	uint64_t unsized_files;		      /* of these, those whose size is not known */
	uint64_t late_files;		      /* whose sha256 is not known yet, see `late` */
	uint64_t hashed_bytes, fetched_bytes; /* read to be verified; from servers */
	uint64_t cache_hits, cache_misses;    /* contents that the cache had, and had not */
	uint64_t waiting;		      /* opens that wait */
};

/* Counts without waiting for anything: neither for I/O nor for a lock that is held during I/O. */
void carton_counters(struct carton *c, struct carton_counters *ret);

/*
 * Starts a search of the cache for files that the local carton does not have, on a thread of the
 * carton. Does nothing while a search runs, nor, after its end, for nine times as long as it took.
 * carton_counters() starts a search, too.
 */
void carton_look_in_cache(struct carton *c);

/* A file that opens wait for. */
struct carton_waiting {
	const char *path;
	bool fetching;	     /* else it is being verified */
	uint64_t done, size; /* bytes; size 0: not known */
	unsigned opens;
};

/* Calls `fn` for each such file, as carton_counters() without waiting. */
typedef void carton_waiting_fn(void *ctx, const struct carton_waiting *waiting);
void carton_waiting(struct carton *c, carton_waiting_fn *fn, void *ctx);

/*
 * The model's metadata from carton.toml as JSON: 0 and a malloc'ed string; -EBADMSG, -EFBIG,
 * -ENOMEM.
 */
int carton_info(struct carton *c, char **ret_json);

enum carton_fact_kind {
	CARTON_FACT_TEXT, /* `name`: the key in carton.toml, "platform" for each of them; `text` */
	CARTON_FACT_OPTION,    /* of the runner; `text`: KEY = VALUE as in TOML */
	CARTON_FACT_INPUT,     /* `text`: a description; and all others, */
	CARTON_FACT_OUTPUT,    /* `shape` without quotes: [batch, 3, 512, 512] */
	CARTON_FACT_SELF_TEST, /* `text`: a description */
	CARTON_FACT_EXAMPLE
};

/* An absent text is NULL. Any text may hold control characters. */
struct carton_fact {
	enum carton_fact_kind kind;
	const char *name, *text, *dtype, *shape, *internal_name;
};

/*
 * Logs a notice for each file that is a git-lfs pointer. A repository that was cloned without
 * git-lfs has such pointers in place of its large files. Looks into the small files of a local
 * carton; a remote carton is not checked. 0 or -ENOMEM.
 */
int carton_say_pointers(struct carton *c);

/*
 * Calls `fn` for each fact of carton.toml, by kinds, in the order of the file. Failures as
 * carton_info().
 */
typedef void carton_fact_fn(void *ctx, const struct carton_fact *fact);
int carton_facts(struct carton *c, carton_fact_fn *fn, void *ctx);

/* Where the bytes of all files with a known size are. */
struct carton_places {
	uint64_t local;	 /* in the local carton */
	uint64_t cached; /* not there, but in the cache, unverified */
	uint64_t remote; /* have to be fetched */
};
void carton_places(struct carton *c, struct carton_places *ret);

/* `source` as it may be shown: a URL without credentials, query and fragment. Returns `ret`. */
char *carton_source_label(const char *source, char *ret, size_t n);

/*
 * Returns the file of certificate authorities that the environment (SSL_CERT_FILE and others) names
 * for this source, and that is read again, unless the option cacert is given. Malloc'ed; NULL: the
 * environment names none, or directories, which are read when the carton is opened; or no memory.
 */
char *carton_authorities(const char *source);

/* ---- making cartons ---- */

enum carton_pack_mode {
	CARTON_PACK,   /* the files of a directory without MANIFEST, which is made */
	CARTON_REPACK, /* a carton with the same files, stored in another way */
	CARTON_LINK,   /* the same without some files, which LINKS then names */
	CARTON_EMBED,  /* the same with those that its LINKS names; has no LINKS */
	CARTON_IMPORT  /* of carton_import() */
};

enum carton_compress {
	CARTON_COMPRESS_DEFAULT, /* as in the source, if it is a local zip file; else AUTO */
	/*
	 * Files of 8 MiB and more are Stored, and CARTON_PACK makes a chunk index of them. A
	 * smaller file is zstd if that is smaller by a twentieth, else Stored.
	 */
	CARTON_COMPRESS_AUTO,
	CARTON_COMPRESS_STORE,
	CARTON_COMPRESS_ZSTD /* one frame for each file */
};

/* What loads a model, as its carton.toml says. Zero is the default of each field. */
struct carton_runner {
	const char *name;      /* NULL: noop */
	unsigned compat;       /* the runner_compat_version; 0: 1 */
	const char *framework; /* a version requirement; NULL: any version, "*" */
};

/* Zero is the default of each field, but for those that a mode needs. */
struct carton_pack_options {
	enum carton_pack_mode mode;
	enum carton_compress compress;
	unsigned level;	  /* of zstd, 1 to 19; 0: 3, and zstd entries of the source are copied */
	unsigned align;	  /* Stored files begin at a multiple: a power of two to 32768; 0: 4096 */
	unsigned jobs;	  /* threads; 0: one for each processor */
	bool chunk_index; /* not EMBED: make misc/.cartonfs/chunks; that changes the model hash */
	/* PACK: at most 64 patterns of fnmatch(3) for paths to leave out, then NULL; or NULL */
	const char *const *exclude;
	bool dereference;  /* PACK: pack what symlinks lead to, also outside of the directory */
	uint64_t min_size; /* LINK: of files; smaller ones stay, unless `paths` names the file */
	const char *const *urls; /* LINK: at least one, each with {sha256} in it, then NULL */
	/* LINK: files, or directories of files, then NULL; NULL: all but carton.toml */
	const char *const *paths;
	/* LINK: a directory that gets these files under their hashes; or NULL */
	const char *objects;
	struct carton_runner runner;  /* IMPORT */
	carton_progress_fn *progress; /* or NULL */
	void *progress_ctx;
};

/*
 * Makes the carton `out` of `source`, which carton_open() would open, or for CARTON_PACK of a
 * directory: with carton.toml, model, tensor_data and misc; or with carton.toml and, instead of
 * these three, the files of the model. What .git, .cache and __pycache__ have is left out.
 *
 * `out` may be /dev/fd/N, an open file such as a pipe: it gets the bytes once they are complete and
 * verified; until then they are in $TMPDIR or /var/tmp. SIGPIPE is the program's.
 *
 * The new carton is verified before it appears; until then, and after a failure, an older file at
 * `out` stays. The bytes depend on the files, their executable bits, the options but `jobs`, and
 * the version of libzstd. `ret_model_hash`: 64 hex digits and a NUL.
 *
 * 0, or, logged:
 *  -EBADMSG	the source is damaged, changes while it is read, or is what a mount, or Carton
 *		itself, refuses
 *  -EINVAL	an option makes no sense, a path is not in the carton, or `out` lies in the
 *		directory `source`
 *  -EEXIST, -EISDIR, -EBUSY	`out` is no regular file, or is being written
 *  -EBADF, -ENOTTY, -EPIPE	the open file cannot be written to, or is a terminal, or unread
 *  -ENOSPC, -EIO, … as the system says; and errors of carton_open()
 */
int carton_pack(const char *source, const char *out, const struct carton_options *open,
		const struct carton_pack_options *options, char ret_model_hash[65]);

/* Zero is the default of each field. */
struct carton_import_options {
	struct carton_runner runner;  /* for its carton.toml */
	const char *const *also;      /* at most 8 other repositories, then NULL; or NULL */
	bool chunk_index;	      /* read all files: see carton_pack_options */
	carton_progress_fn *progress; /* of these, once the repository is open; or NULL */
	void *progress_ctx;
};

struct carton_imported {
	char commit[80]; /* or a digest; "": the service does not say */
	char model_hash[65];
	uint64_t files, bytes; /* of the carton, with those that LINKS has */
	uint64_t linked;       /* contents that LINKS has, */
	uint64_t shared;       /* and of these, that another repository has, too */
	uint64_t size;	       /* bytes of the file `out` */
};

/*
 * Makes the carton `out` of a repository, which carton_open() would open: MANIFEST, LINKS with
 * sizes, and the small files that the repository has no sha256 of. Nothing large is fetched, unless
 * there is to be a chunk index. LINKS has the URLs of other repositories as well, for each sha256
 * that they list, too. The model hash is that of the repository itself, unless there is a chunk
 * index, or a runner. Errors and the rest as carton_pack(); -EINVAL: `source` is no repository.
 */
int carton_import(const char *source, const char *out, const struct carton_options *open,
		  const struct carton_import_options *options, struct carton_imported *ret);

/* Zero is the default of each field. */
struct carton_push_options {
	carton_progress_fn *progress; /* bytes sent, and to be sent; or NULL */
	void *progress_ctx;
	const char *mount_from; /* a repository of the registry that may have the files; or NULL */
	/* attached to the artifact; NULL: misc/model.sig of the carton, if it has that */
	const char *signature;
	size_t signature_len;
};

struct carton_pushed {
	char digest[72];    /* of the artifact: sha256:HEX; the same for the same carton */
	char pin[768];	    /* oci://REGISTRY/NAME@DIGEST */
	bool has_signature; /* a signature is attached to it */
	uint64_t files, blobs, bytes; /* layers; contents of these and the config; their bytes */
	uint64_t sent, sent_bytes;    /* contents that the registry did not have; their bytes */
};

/*
 * Pushes a carton to the registry `to`, oci://REGISTRY/NAME:TAG, which was push_to of its options:
 * each file that MANIFEST lists as a raw layer of a ModelPack artifact, and MANIFEST itself; LINKS
 * is not needed there. Each file is verified before a byte of it is sent, and fetched if it must
 * be; what the registry has is neither. The tag is set at the end, and then a signature attached.
 * 0, or, logged:
 *  -EINVAL	not such a URL; or a carton that is bare, offline, or not verified
 *  -EBADMSG	a file is damaged: nothing of it was sent
 *  -EACCES	the user is not logged in, or must not write to that repository
 *  -EFBIG	too many files for a manifest
 *  -EPROTO, -EIO	the registry refuses a part
 *  -ETIMEDOUT, -ECONNREFUSED, -EREMOTEIO, … the registry is not reached now
 */
int carton_push(struct carton *c, const char *to, const struct carton_push_options *options,
		struct carton_pushed *ret);

/* Zero is the default of each field, but for the key. */
struct carton_sign_options {
	const char *key;  /* a PEM file, or a URI that OpenSSL's store opens, such as pkcs11: */
	const char *cert; /* a PEM file: the certificate of the key, then its chain; NULL: none */
	/* has the passphrase of the key in its first line; NULL: it is asked for at the terminal */
	const char *passphrase_file;
	bool dereference;	      /* a directory: sign what symlinks lead to */
	carton_progress_fn *progress; /* bytes of a directory; or NULL */
	void *progress_ctx;
};

struct carton_new_signature {
	char out[4096]; /* the file that was written */
	bool replaced;	/* another signature was there */
	char hint[65];	/* the sha256 of the public key's PEM text, which verifiers look for */
	char by[256];	/* the subject of the certificate; "": there is none */
	int64_t ends;	/* when that is, in seconds since 1970; 0: there is none */
	uint64_t files;
};

/*
 * Signs a carton, or a directory without a MANIFEST, for OpenSSF Model Signing 1.0, and writes the
 * signature to `out`, or if that is NULL beside the carton as SOURCE.sig, or into the directory as
 * model.sig. Of a carton it lists what MANIFEST lists, but misc/model.sig, and no file is hashed;
 * the files of a directory are, but not .git, .github, .gitignore and .gitattributes at its top.
 * An older signature at `out` is replaced, once the new one is complete. 0, or, logged:
 *  -EINVAL	no such key, or certificates that no verifier would accept; or no `out`, of a URL
 *  -EEXIST, -EISDIR, -EBUSY	`out` is no signature, or is being written
 *  -EBADMSG	a directory with a symlink, a device or a name that is not UTF-8; or with no file
 *  and errors of carton_open()
 */
int carton_sign(const char *source, const char *out, const struct carton_options *open,
		const struct carton_sign_options *options, struct carton_new_signature *ret);

#define CARTON_MAX_NAME 241 /* of a model, with its NUL: a file NAME.carton can be made */

/* What carton_init() writes. Zeroed but for what the caller wants; its strings outlive it. */
struct carton_init {
	const char *name;	     /* NULL: that of the directory */
	struct carton_runner runner; /* no name: what loads the files */
	const char *const *exclude;  /* as for carton_pack() */
	bool dereference;
	/* set by carton_init(), as are those of above that were NULL */
	const char *found;    /* the file that the runner loads; or NULL */
	const char *unloaded; /* the format that none loads; NULL: a runner was given or found */
	char of_directory[CARTON_MAX_NAME]; /* the name, if none was given */
};

/*
 * Looks at the files of a directory, as carton_pack() does, and writes carton.toml into it, which
 * must not be there. The runner is that of the options, or what loads the files, or "noop". 0, or,
 * logged: -EEXIST: it is; -EINVAL: a name or a version that is none;
 * -EBADMSG: files that carton_pack() refuses; or as the system says.
 */
int carton_init(const char *directory, const struct carton_options *options,
		struct carton_init *init);

/* ---- the cache, without a carton ---- */

/*
 * Where it is (NULL: $XDG_CACHE_HOME/cartonfs) and how large it may be (0: a tenth of its disk).
 * Where there is none, carton_cache_directory() makes it; the other functions return -ENOENT.
 */
struct carton_cache_options {
	const char *dir;
	uint64_t size;
	carton_confine_fn *confine; /* called before an object is read; NULL: none */
};

struct carton_cache_object {
	char sha256[65];
	uint64_t size;
	int64_t used; /* when it was last used, seconds since 1970 */
	bool seal;    /* not an object, but the seal of one */
	/*
	 * Which file it was in which source (carton_source_label()) when it came; NULL: not known.
	 * A path of "": a whole carton, or what opening it read. Unverified, and good during the
	 * call only.
	 */
	const char *path, *source;
	/* An object that was fetched in part: `sha256` is its name here, `size` is on disk. */
	bool partial;
};

/* Calls `fn` for each object, seal and partial object, until it returns another value than 0. */
int carton_cache_list(const struct carton_cache_options *options,
		      int (*fn)(void *ctx, const struct carton_cache_object *object), void *ctx);

/*
 * Removes the objects and seals that were used longest ago until at most `target` bytes are left.
 * Never an object that is open.
 */
int carton_cache_gc(const struct carton_cache_options *options, uint64_t target,
		    uint64_t *ret_freed);

/*
 * Hashes all objects, checks all seals, and drops those that are damaged, with a log line for each.
 * Returns how many, or -errno.
 */
ssize_t carton_cache_verify(const struct carton_cache_options *options,
			    carton_progress_fn *progress, void *ctx);

/* The absolute path of the directory (v1) with the objects: 0, -ENAMETOOLONG, or as the others. */
int carton_cache_directory(const struct carton_cache_options *options, char *ret_path, size_t n);

/*
 * Does the open file or directory belong to this user, and may nobody else write to it, as the
 * cache demands of its own directory? 0; -EPERM, and ret_why says why ("belongs to uid ..."); or
 * -errno.
 */
#define CARTON_WHY 128
int carton_check_own(int fd, char ret_why[CARTON_WHY]);

/*
 * Finds the file of an object, unverified, by its 64 hex digits or by at least the first 8. 0;
 * -ENOENT; -ENOTUNIQ: several objects begin with these digits; -EINVAL: `sha256` has other
 * characters, too few or too many; -ENAMETOOLONG.
 */
#define CARTON_CACHE_DIGITS 8
int carton_cache_path(const struct carton_cache_options *options, const char *sha256,
		      char *ret_path, size_t n);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop

#endif
