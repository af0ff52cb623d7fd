/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fetches bytes from URLs into a file (cache/file.h). One fetch is one state machine (event.h):
 * while it waits for a server or for the next try it keeps no thread.
 *
 * There is a list of places (URLs) where the bytes may be. They are tried in their order, the one
 * that worked last first. Connection failures, timeouts, 4xx and 5xx, and answers that are too
 * short lead to the next one; when all have failed, those that may recover are tried again after a
 * pause: a few times, or as long as there is time where the server itself is bad (server.h). Wrong
 * bytes are requested once more past any cache, after all other places; then that place is
 * exhausted.
 *
 * A large file of one version (a strong ETag, or the version that the caller names) is fetched in
 * pieces over several connections; each piece is written where it belongs. A failed piece is
 * requested again from where it broke off.
 *
 * The user's own mirrors come first. They are asked once, and their failures are not logged. An
 * object that is asked for by its hash needs no validators, since that is all that counts.
 *
 * Wrong bytes of a part end the fetch: the owner knows what of it is still wanted. So do those of a
 * range in another file, since what says where it begins may be wrong.
 *
 * Deadline: the fetch fails with -ETIMEDOUT after `timeout_ms` without progress, counted from its
 * start, or from its first turn where it has to queue for a server that serves others. Progress is
 * counted by bytes: at 1 KiB/s or faster a fetch never times out, while a byte now and then does
 * not help it.
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
	/* all of it, in whatever coding and version; of a place that names one: [off, off + n) */
	FETCH_FILE,
	/* [off, off + n), of the version that the place names; else of a file of `size` bytes */
	FETCH_PART,
	/*
	 * The last `n` bytes, as one answer, of any version. Ends with 1 if the server refuses
	 * them, or drops the connection, but may still answer FETCH_RANGE.
	 */
	FETCH_SUFFIX,
	FETCH_RANGE, /* [off, off + n), as one answer, of any version */
	FETCH_SIZE,  /* how long it is, which a server may get wrong or not say */
};

/* A place: a URL, and what was learnt of it. All zero but for what is constant. */
struct fetch_place {
	/* constant */
	const char *url;
	enum http_trust trust;
	bool mirror; /* one of the user's */
	struct version
		*version; /* ranges of this one are asked for; any other is -ESTALE. Or NULL */
	/* any thread */
	struct route route;  /* to the file; its owner calls route_init() and route_finish() */
	atomic_bool bad;     /* its bytes are wrong, or it has none: it is not asked */
	atomic_size_t piece; /* how large pieces of a file were last; 0: none yet */
};

/* What to fetch. Copied; what its pointers lead to lives until `done` was called. */
struct fetch {
	const struct fetch_options *options;
	struct cancel *cancel; /* -ECANCELED once it fires; NULL: never */
	enum fetch_what what;
	struct fetch_place *places; /* mirrors come first */
	size_t n_places;
	atomic_size_t *first;  /* of the others, the one that worked last; or NULL */
	uint64_t off, n;       /* FETCH_FILE: `n` is how long it should be; 0: not known */
	uint64_t max;	       /* FETCH_FILE: its size, as the carton says; 0: not known */
	uint64_t size;	       /* FETCH_PART */
	uint64_t have;	       /* of a range, so much is in `dest` already */
	bool whole;	       /* all of a carton, by fetch_run(): show how much there is, too */
	bool plain;	       /* ask for no content coding, and over one connection */
	const char *accept;    /* which media types to ask for; or NULL */
	int64_t deadline_ms;   /* now_ms(), which bytes do not move; 0: as above */
	struct file *dest;     /* NULL with FETCH_SIZE */
	struct follow *follow; /* hashes `dest` as the bytes arrive; or NULL */
	uint64_t at;	       /* FETCH_PART: where its bytes begin in `dest` */
	/*
	 * Of a range, bytes of the same file that come first, in one request with it if they end
	 * where it begins. They go to `lead_dest`; then led() looks at them, once, before any byte
	 * of the range is written. led() returns 0, or the error that ends the fetch. n_lead 0:
	 * there is no lead.
	 */
	uint64_t lead, n_lead;
	struct file *lead_dest;
	int (*led)(void *ctx, struct fetch_place *from);
	/* Looks at a good answer before its body; what is not 0 ends the fetch. Or NULL. */
	int (*answered)(void *ctx, const struct http_response *answer);
	/* Tells the user what a refusal means that will not pass. Or NULL: it is logged here. */
	void (*refused)(void *ctx, const struct http_response *answer);
	/*
	 * All bytes are in `dest`, the last of them from that place, and `follow` has hashed them.
	 * 0; -EBADMSG: they are wrong (logged); or why that is not known, which ends the fetch. Or
	 * NULL: whatever comes is right.
	 */
	int (*check)(void *ctx, struct fetch_place *from);
	void (*arrived)(void *ctx, uint64_t bytes); /* bytes that came; or NULL */
	/* FETCH_FILE: as many will come, as a server says; or NULL */
	void (*announced)(void *ctx, uint64_t bytes);
	/* Does no reader wait now? Then it gives way to others (server.h). NULL: one does. */
	bool (*background)(void *ctx);
	void *arrived_ctx; /* of these three */
	/*
	 * FETCH_PART: the first `arrived` bytes are in `dest`. Returns how many of them are right:
	 * these are not written to again, whatever comes of the others. Or NULL.
	 */
	uint64_t (*settle)(void *ctx, uint64_t arrived);
	/*
	 * The end. 0; -EBADMSG: all that any place gave is wrong; -EFBIG: wrong or larger than
	 * max_size; -ESTALE; -ENOSPC; -ECANCELED; -ENODATA: no server says the size; -EOPNOTSUPP:
	 * of FETCH_PART, there is a server that has no such part; or what the best place failed
	 * with: -EACCES, -ETIMEDOUT, -ECONNREFUSED, … or -EIO. The failure of each was logged.
	 * `size` is that of the file, or of the part.
	 */
	void (*done)(void *ctx, int result, uint64_t size);
	void *ctx;
};

/* 0 or -ENOMEM; then `done` will be called, perhaps before this returns. */
int fetch_start(const struct fetch *fetch);

/*
 * Fetches and waits for the end, so the calling thread must be one that may block. Returns what
 * fetch_start() would give to done(), and sets *ret_size. Calls neither done() nor arrived() nor
 * announced(). If the calling thread is the one that opens the carton, the user sees how many bytes
 * have come.
 */
int fetch_run(const struct fetch *fetch, uint64_t *ret_size);

/* Shows the user how far the open is, if this is the thread that opens the carton. Did it? */
bool fetch_show(const struct fetch_options *options, uint64_t done, uint64_t total);

#endif
