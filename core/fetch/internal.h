/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the files that make up the fetcher. From the bottom up:
 *
 *	conn		one request, and which bytes are missing
 *	answer		how long a file may be, and where the body of an answer goes
 *	transfer	the requests of one try
 *	unsure		the request that tells whether a file has changed
 *	size		those that ask for a size
 *	urls		which place, and what its failure means
 *	fetcher		the state machine, and the end
 *
 * Everything here belongs to the fetch's task.
 */
#ifndef CARTON_FETCH_INTERNAL_H
#define CARTON_FETCH_INTERNAL_H

#include "fetch/fetcher.h"
#include "fetch/server.h"
#include "archive/gunzip.h"

#define MAX_CONNECTIONS 32
#define PARALLEL (8 * MIB)	/* a larger file is worth several connections */
#define PIECE_FIRST (512 * KIB) /* bytes of the first piece */

/* One place, in one fetch. */
struct url {
	struct fetch_place *place;
	const char *url;  /* the place's */
	bool exhausted;	  /* not to be tried again */
	bool bad_hash;	  /* has given wrong bytes once: ask past caches, after all others */
	bool no_resume;	  /* neither resume nor split: that went wrong */
	bool gzip;	  /* its answers are coded so */
	bool maybe_plain; /* its answer was decoded, but may be the very bytes, whatever it says */
	bool as_is;	  /* so nothing is decoded */
	bool no_head;	  /* a HEAD of it is no use */
	bool again;	  /* has refused once, and is asked again on a new connection */
	bool anew;	/* was asked for all bytes, since wrong ones came in part from elsewhere */
	bool too_large; /* more than max_size */
	int error;	/* of the last try, */
	int status;	/* and its status, or 0 */
	char reason[256];
	bool away;	   /* its server is bad, and is waited for */
	struct server *at; /* which has answered, or failed to, when it was asked last; or NULL */
	int64_t failed_ms; /* when it last failed; 0: never */
	atomic_bool logged_once;
	long retry_after_s;
};

struct piece {
	uint64_t off, end; /* in the file at the URL */
	bool again;	   /* the first answer was wrong: a new connection is used */
};

/* One request and what is still to come of it. */
struct conn {
	struct http_stream *stream;	/* NULL: idle */
	struct server *server;		/* which was entered for it; or NULL */
	struct server *first;		/* that of the URL where it began; or NULL */
	struct http_redirect *redirect; /* where it began; NULL: at the first URL */
	struct piece left;		/* end is UINT64_MAX while it is not known */
	bool exact;			/* asks for just this piece of x->version, */
	bool conditional;		/* with a condition: its validator */
	bool answered;
	bool asking;   /* the server was not told of an answer */
	bool extra;    /* counted in options->extra */
	uint64_t size; /* of the piece, when it began, */
	int64_t began_ms;
	int64_t wait_ms; /* and until its answer came */
};

/* Which bytes of [next, end) no request was made for, and which failed requests have left. */
struct pieces {
	uint64_t next, end;
	/*
	 * pieces_cut() fills half of it; the rest is for those under way, one for each connection
	 */
	struct piece returned[2 * MAX_CONNECTIONS];
	size_t n_returned;
	size_t size;	    /* how large pieces should be now, */
	size_t least;	    /* and at least */
	unsigned want, max; /* connections: now, and at most */
};

struct fetcher {
	struct fetch f;
	struct task task;
	struct cancel_hook hook;
	enum { FETCH_START, FETCH_BEGIN, FETCH_TRY, FETCH_CHECK, FETCH_PAUSE, FETCH_OVER } phase;
	int result;
	char *failure; /* the text of the last try that failed, see base/failure.h; or NULL */
	int64_t deadline_ms;

	struct url *urls;
	size_t n_urls, n_mirrors, first, tried; /* the URL to try is number first + tried */
	unsigned rounds, waited;		/* without progress, and those that do not count */
	uint64_t best;				/* how far any try has come */
	int64_t pause_ms;			/* when the next round begins */
	struct queue_slot at_server, at_route;	/* while it waits to send a request */
	struct server *waits_for;		/* the server that it asked last; or NULL */
	int64_t slot_ms;			/* when it asks again; 0: it does not wait */

	/* one try of one URL */
	struct url *u;
	int64_t try_deadline_ms; /* until bytes come */
	bool bytes_came;
	bool final;	  /* how the try failed is how the fetch ends */
	uint64_t have;	  /* the first so many bytes of a range are in `dest` */
	uint64_t settled; /* and so many are right, see settle() */
	bool led;	  /* the lead is right, or there is none; until then only it is fetched */
	bool probing;	  /* the first request is for the first piece */
	bool head;	  /* FETCH_SIZE: the question under way is a HEAD */
	bool unsure;	  /* the file may have changed: the try first fetches the end of it */
	char *end;	  /* that end, as far as it has come; or NULL */
	bool named;	  /* the answer with the end has the validators of the version */
	struct gunzip *gunzip;
	struct version found;	 /* of a file that is split */
	struct version *version; /* pieces of this version are fetched; NULL: one answer is taken */
	struct pieces pieces;
	struct conn conns[MAX_CONNECTIONS];
	unsigned failures; /* of pieces, without progress */
	uint64_t came;	   /* bytes since the last failure, */
	uint64_t taken;	   /* and in this step */
	int64_t hold_ms;   /* no request before */
	uint64_t bound;	   /* how many bytes there may be; 0: that is not limited, */
	int64_t announced; /* and how many the server says there are; -1: it does not */
	uint64_t arrived;  /* the first so many bytes are in `dest` */
	bool all_arrived;  /* and they are all */
};

/* Are only bytes [x->f.off, x->f.off + x->f.n) of the file at x->u asked for? */
static inline bool fetch_is_part(const struct fetcher *x)
{
	return x->f.what == FETCH_PART || (x->f.what == FETCH_FILE && x->u->place->version);
}

/*
 * The server that requests for a URL wait for: the one that has failed behind a redirect, or as a
 * token server, as long as it is bad; else `first`, that of the URL where they begin.
 */
static inline struct server *url_server(const struct url *u, struct server *first)
{
	int64_t ms;

	return server_error(u->at, &ms) ? u->at : first;
}

/* ---- conn.c ---- */

/* `size`: of the pieces of an earlier fetch from there; 0: none. */
void pieces_begin(struct pieces *p, uint64_t off, uint64_t end, unsigned connections, size_t size);

/* The next piece to ask for; false: none now. `arrived`: all before it is there. */
bool pieces_take(struct pieces *p, uint64_t arrived, struct piece *ret);

/* Takes the piece that begins at `off`, if nobody has; for who reads on. */
bool pieces_follow(struct pieces *p, uint64_t off, struct piece *ret);

/* What is left of a piece whose request failed. */
void pieces_return(struct pieces *p, struct piece left);

/*
 * Cuts a piece that is under way, so that what is behind `end` is asked for again. If too many
 * pieces wait, which takes a server that cuts off its answers again and again, it stays whole, and
 * its request fails at `end`.
 */
void pieces_cut(struct pieces *p, struct piece *piece, uint64_t end);

/* A piece of `n` bytes took so long, the wait for its answer too: adjusts the size of the next. */
void pieces_learn(struct pieces *p, uint64_t n, int64_t ms, int64_t wait_ms);

/*
 * Sends a request for c->left: `q` with the URL, the trust and where to begin. 0; -EAGAIN: the
 * fetch has to wait in a queue (x->slot_ms), and nothing was sent; or -errno, such as why the
 * server is bad, longer than the fetch waits.
 */
int conn_open(struct fetcher *x, struct conn *c, struct http_request *q);

/* Sends another request in place of that one, for the same slot at the server. 0 or -errno. */
int conn_ask_again(struct fetcher *x, struct conn *c, struct http_request *q);

/* Its answer has come, or why there is none (`error`). */
void conn_answered(struct fetcher *x, struct conn *c, const struct http_response *a, int error);

/* What a redirect target answers badly has no meaning: is it such an answer? */
bool conn_lost_way(const struct conn *c, int status);

/* Is the server bad that has answered the fetch last, or failed to? */
bool conn_is_away(const struct fetcher *x);

void conn_close(struct fetcher *x, struct conn *c);

/* How many there are. */
unsigned conns_active(const struct fetcher *x);

/* Why the server is bad that the fetch waits for; -EBUSY: it is just busy. */
int conn_waits_why(const struct fetcher *x);

/* The fetch leaves the queues that it waits in. */
void conn_give_up(struct fetcher *x);

/* ---- answer.c ---- */

/*
 * Are all bytes of the file compared with a hash? Then a body that is not coded as its server says
 * is taken as it is.
 */
bool answer_has_hash(const struct fetcher *x);

/* An answer to FETCH_FILE: limits `dest`. 0; -EFBIG: it announces more. */
int bound_answer(struct fetcher *x, const struct http_response *a);

/*
 * A try has ended with -EFBIG. If the bound was the reason, logs it, empties `dest`, and
 * returns -EBADMSG where the carton says how long the file is, else -EFBIG with x->u->too_large.
 */
int bound_passed(struct fetcher *x);

/* How much of the file an earlier fetch from this URL has left, of which ETag; false: nothing. */
bool answer_partial(const struct fetcher *x, uint64_t *ret_len, char *ret_etag, size_t n);

/* The answer to a request that is not for just a piece. 0: its body follows; or why not. */
int answer_take(struct fetcher *x, struct conn *c, const struct http_response *a);

/* ---- transfer.c ---- */

/* Begins a try of x->u. 0; -EAGAIN: it waits in a queue (x->slot_ms); or why not. */
int transfer_begin(struct fetcher *x);

/*
 * Takes what has come and asks for more. 0: all bytes are there; -EINPROGRESS; -EREMCHG: a redirect
 * target has failed, so that the same try begins at the URL; or why it failed.
 */
int transfer_step(struct fetcher *x);

/* Ends all requests of the try. */
void transfer_end(struct fetcher *x);

/* Until when the next bytes must come, in now_ms(); why none came, which is logged. */
int64_t transfer_deadline(const struct fetcher *x);
int transfer_late(struct fetcher *x);

/* ---- unsure.c: a try of x->unsure, as transfer_begin() and transfer_step() ---- */

/*
 * The answer to the request of a piece has other validators than the version, or is a 412. 0: the
 * piece may be asked for again, without a condition; -EREMCHG: the try begins anew, with x->unsure;
 * -ESTALE: it is another version, logged, or a file with a hash is not served in pieces.
 */
int unsure_answer(struct fetcher *x, const struct conn *c, const struct http_response *a);

/* -EREMCHG: the same version; -ESTALE: another one, logged. */
int unsure_begin(struct fetcher *x);
int unsure_step(struct fetcher *x);

/* ---- size.c: a try of FETCH_SIZE, as transfer_begin() and transfer_step() ---- */

/* The size is x->arrived. */
int size_begin(struct fetcher *x);
int size_step(struct fetcher *x);

/* ---- urls.c ---- */

int urls_init(struct fetcher *x);

/* The index of the one to try next. */
size_t url_index(const struct fetcher *x);

/* Is it the only one that is left? */
bool url_is_last(const struct fetcher *x);

/* Which to try next, from x->tried on; NULL: the round is over. */
struct url *url_next(struct fetcher *x);

/*
 * The same, but leaves out those whose servers are overloaded, as long as there are others. NULL:
 * none.
 */
struct url *url_ready(struct fetcher *x);

/* A URL whose server does not answer leaves as much time for each of those behind it. */
int64_t url_deadline(const struct fetcher *x);

/* For how many ms a server that is not reached is waited for. */
int64_t url_patience(const struct fetcher *x);

/* Decides what the failed try means for its URL, and logs it; true: try it again at once. */
bool url_failed(struct fetcher *x, int error);

/* How long to wait at least before a URL may be tried again, in s; -1: there is no use. */
long url_wait(const struct fetcher *x);

/* The error of the whole fetch. */
int url_sum_up(const struct fetcher *x);

#endif
