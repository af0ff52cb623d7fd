/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fetches bytes from URLs into a destination (dest.h). One fetch is one state machine (event.h):
 * while it waits for a server or for the next try it keeps no thread.
 *
 * URLs are tried in their order, the one that worked last first. Connection failures,
 * timeouts, 4xx and 5xx, and answers that are too short lead to the next one; when all have failed,
 * those that may recover are tried again after a pause. Bytes with the wrong hash are requested
 * once more past any cache; then that URL is exhausted.
 *
 * A large file of one version (a strong ETag, or the version that the caller names) is fetched in
 * pieces over several connections; each piece is written where it belongs. A failed piece is
 * requested again from where it broke off.
 *
 * The user's own mirrors come first. They are asked once, without validators, and their failures
 * are not logged: all that counts is the hash.
 *
 * A part of a file that any URL may have is taken from the first that has it. Wrong bytes end that
 * fetch.
 *
 * Deadline: the fetch fails with -ETIMEDOUT after `timeout_ms` without progress, counted from its
 * start. Progress is counted by bytes: at 1 KiB/s or faster a fetch never times out, while a byte
 * now and then does not help it.
 *
 * Threads: any thread may start a fetch. The functions given to it are called on workers, one at a
 * time.
 */
#ifndef CARTON_FETCH_FETCHER_H
#define CARTON_FETCH_FETCHER_H

#include "base/cancel.h"
#include "cache/follow.h"
#include "fetch/version.h"

enum fetch_what {
	FETCH_FILE,  /* all of it, in whatever coding and version */
	FETCH_RANGE, /* [off, off + n) of `version`, or of its other; any else is -ESTALE */
	FETCH_PART,  /* the same of a file of `size` bytes, in any version; `check` compares them */
	FETCH_SUFFIX, /* the last `n` bytes, as one answer */
	FETCH_SIZE,   /* how long it is, which a server may get wrong or not say */
};

/* What was learnt of a URL, for later fetches from it. All zero but for its route. Any thread. */
struct url_state {
	struct route route;
	atomic_bool bad; /* its bytes are wrong: it is not asked */
};

/* What to fetch. Copied; what its pointers lead to lives until `done` was called. */
struct fetch {
	const struct fetch_options *options;
	struct cancel *cancel; /* -ECANCELED once it fires; NULL: never */
	enum fetch_what what;
	char *const *urls; /* FETCH_RANGE and FETCH_SUFFIX: NULL, it is version->url */
	size_t n_urls;
	struct url_state *states; /* of these URLs; or NULL */
	size_t n_by_hash;	  /* the number of mirrors, which come first (mirrors.h) */
	atomic_size_t *first;	  /* of the others, the one that worked last; or NULL */
	enum http_trust trust;
	struct version *version; /* FETCH_RANGE, FETCH_SUFFIX */
	uint64_t off, n;	 /* FETCH_FILE: `n` is how long it should be; 0: not known */
	uint64_t max;		 /* FETCH_FILE: its size, as the carton says; 0: not known */
	uint64_t size;		 /* FETCH_PART */
	uint64_t have;		 /* FETCH_RANGE: so many bytes of it are in `dest` already */
	bool plain;		 /* ask for no content coding, and over one connection */
	int64_t deadline_ms;	 /* now_ms(), which bytes do not move; 0: as above */
	struct dest *dest;	 /* NULL with FETCH_SIZE */
	struct follow *follow;	 /* hashes `dest` as the bytes arrive; or NULL */
	uint64_t at;	   /* of a part or a range: where its bytes begin in `dest` */
	/* Looks at a good answer before its body; what is not 0 ends the fetch. Or NULL. */
	int (*answered)(void *ctx, const struct http_response *answer);
	/*
	 * All bytes are in `dest`, from that URL of `urls`, and `follow` has hashed them. 0;
	 * -EBADMSG: they are wrong (logged); or why that is not known, which ends the fetch. Or
	 * NULL: whatever comes is right.
	 */
	int (*check)(void *ctx, const char *url);
	void (*arrived)(void *ctx, uint64_t bytes); /* bytes that came; or NULL */
	void *arrived_ctx;
	/*
	 * The end. 0; -EBADMSG: all that any URL gave is wrong; -EFBIG: wrong or larger than
	 * max_size; -ESTALE; -ENOSPC; -ECANCELED; -ENODATA: no server says the size; -EOPNOTSUPP:
	 * of FETCH_PART, there is a server that has no such part; or what the best URL failed with:
	 * -EACCES, -ETIMEDOUT, -ECONNREFUSED, … or -EIO. The failure of each URL was logged.
	 * `size` is that of the file, or of the part.
	 */
	void (*done)(void *ctx, int result, uint64_t size);
	void *ctx;
};

/* 0 or -ENOMEM; then `done` will be called, perhaps before this returns. */
int fetch_start(const struct fetch *fetch);

/* The same, but waits for the end: for threads that may. As `done`, which is not used. */
int fetch_run(const struct fetch *fetch, uint64_t *ret_size);

#endif
