/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the files of this folder. From the bottom up: curl.c loads the library; helper.c looks
 * for credentials in a process of its own; scheme.c has the table of schemes, whose rows are in
 * s3.c, hf.c and oci.c; reference.c and registries.c say where a registry is; redact.c, url.c,
 * address.c, response.c, challenge.c and docker.c read text; stream.c is where owners of streams
 * and the network threads meet: a stream's lock guards its bytes and its outcome, http's lock
 * guards the queues of actions for the threads; tokens.c, secrets.c, flood.c, upload.c, hop.c and
 * thread.c run on these threads, which drive libcurl; http.c starts and stops them. No other folder
 * includes libcurl's headers.
 */
#ifndef CARTON_HTTP_INTERNAL_H
#define CARTON_HTTP_INTERNAL_H

#include "http/curl.h"
#include "http/http.h"
#include "http/policy.h"
#include "http/response.h"
#include "http/scheme.h"
#include "base/util.h"

enum http_action {
	HTTP_ACT_START = 1,
	HTTP_ACT_RESUME = 2,
	HTTP_ACT_CLOSE = 4,
};

/* One thread decrypts about 5 Gbit/s. More than four decrypt faster than content is hashed. */
#define HTTP_MAX_THREADS 4

/* the format of a log line: twice text or "", and why not */
#define HTTP_BUNDLE_UNREAD "the file of trusted authorities%s%s cannot be read: %s"

#define HTTP_STALL_SAMPLES 11 /* ten intervals */

/* CPU time that one transfer may take in one call of libcurl; 16 MiB of TLS take some 10 ms. */
#define HTTP_MAX_TURN_MS 1000

struct http_sample {
	int64_t when_ms;
	int64_t bytes;
};

/* A network thread, with connections of its own. A stream stays on the one where it began. */
struct http_thread {
	struct http *http;
	CURLM *multi;
	pthread_t id;
	bool running; /* the thread was started; for http_new() and http_stop() only */

	/* guarded by http->lock, as is multi's wakeup */
	unsigned streams;			/* that were given to it and are not closed */
	struct http_stream *queue, **queue_end; /* each holds a reference */

	/* used by the thread only */
	struct http_stream *live;	  /* each holds a reference */
	int64_t checked_ms;		  /* when stalls were last looked for */
	const struct http_stream *served; /* who reads in this call of libcurl; NULL: nobody yet */
	int64_t served_ms;		  /* CPU time of the thread when that began */
	int last_socket; /* the highest descriptor that libcurl has used for a socket */
};

struct http {
	/* constant after http_new() */
	long name_timeout_ms, connect_timeout_ms, stall_ms, stall_rate;
	struct budget *budget;
	bool private_links, requester_pays;
	char *cacert;		   /* a PEM file; or NULL */
	struct buf authorities;	   /* a PEM text in its place; or empty */
	bool no_system;		   /* and the system's authorities are not trusted */
	bool no_file;		   /* the file of the system's authorities is not there */
	struct http_target source; /* the URL that the user typed, */
	char *source_url;	   /* or this, if requests for it need a login; else NULL */
	bool source_is_registry;   /* it is oci://, so that http may replace https */
	struct login *logins;	   /* the list is constant; see scheme.h */
	const struct registries *registries;
	struct http_proxies proxies;
	unsigned n_threads;
	struct http_thread threads[HTTP_MAX_THREADS];

	_Atomic int64_t unreached_ms; /* when a connection last failed, by now_ms(); 0: never */

	pthread_mutex_t lock;
	bool stopping; /* guarded by lock */

	pthread_mutex_t secrets; /* guards what follows, and the logins when they are used */
	char *header_file;	 /* or NULL */
	char **headers;
	unsigned headers_version;	 /* counts their changes, from 1 */
	struct timespec headers_changed; /* when the file that is loaded was changed last, */
	ino_t headers_inode;
	int64_t headers_checked_ms; /* and when that was looked at */
	bool userinfo_logged;	    /* the warning that it is not sent was logged, */
	bool overheard_logged;	    /* and that for a login, */
	bool unsent_logged;	    /* and that it is not sent by http */
	struct http_token *tokens;  /* see tokens.c */
	struct http_stream *asking; /* the streams that ask for a token, or wait for one */
	unsigned last_token;
};

struct http_token_request;

struct http_redirect {
	atomic_uint refs;
	char *url;
	int64_t expiry;	  /* when to leave it, in seconds since 1970; 0: never */
	unsigned allowed; /* as of http_stream */
	bool left_origin;
};

struct http_stream {
	struct http *http;
	atomic_uint refs;

	/* the request, constant after http_start_request() */
	bool head_only, identity, undecoded, new_connection, untold, pushes;
	uint64_t plain;	   /* a body so long is not coded; 0: any may be */
	const char *sends; /* the method of a request with a body; NULL: it has none */
	struct http_body body;
	enum http_trust trust;
	char range[48];
	struct curl_slist *lines;
	http_wake_fn *wake;
	void *ctx;

	pthread_mutex_t lock;
	/*
	 * guarded by lock; bytes between tail and head belong to the owner, the rest to the thread
	 */
	char *ring;
	size_t ring_size, read_size; /* the other is libcurl's; both are counted in the budget */
	uint64_t head, tail;
	uint64_t seen_head; /* head when the owner last looked */
	bool ready;	    /* response is valid */
	bool done;	    /* nothing more comes */
	bool paused;	    /* the thread waits for room */
	bool closed;	    /* the owner is gone: neither ctx nor logged_once may be used */
	atomic_bool *logged_once;
	bool probe;
	int error;     /* with done: 0 or -errno */
	char *failure; /* the text of the error, see base/failure.h; or NULL */
	struct http_response response;

	/* guarded by http->lock */
	unsigned actions;
	struct http_stream *queue_next;

	struct http_thread *thread; /* constant after http_start_request() */

	/* used by that thread only, after http_start_request() has filled target */
	struct http_stream *live_next, **live_link;
	CURL *easy;
	struct curl_slist *sent;
	struct http_target target;
	char *seen[HTTP_MAX_REDIRECTS + 1];
	unsigned n_seen;
	struct login *login;   /* signs it, as long as it has not left its origin; or NULL */
	char *signed_url;      /* the URL that the owner asked for, before request_url() */
	bool moved;	       /* the login has given another URL to ask, once */
	bool from_redirect;    /* began at a redirect target: allowed and left_origin are its */
	bool left_origin;      /* a redirect has: no credentials any more */
	unsigned headers_sent; /* the version of the user's; 0: none */
	int64_t skew_s; /* the clock that it was signed by is ahead of ours by this; see s3.c */
	bool refused_once;
	bool again;   /* they were refused, and have changed since */
	int ports[2]; /* of its connection: ours, the other side's */
	bool proxied, connected, held, header_done, redirected, refused, finished;
	bool raw;	      /* libcurl decodes no content coding */
	bool recode, recoded; /* the request is, or was, made again with the other `raw` */
	bool keeps; /* the answer, until its body has come, so that the scheme can explain it */
	struct buf kept;			  /* that body; or what a token server sends */
	struct http_token_request *token_request; /* or NULL */
	struct http_stream *asking_next;	  /* guarded by http->secrets, like the next two */
	bool asks;	   /* the request is for that token, not for the owner */
	bool token_waits;  /* another stream asks for it */
	bool token_wanted; /* the answer says where to ask, or asks for the login */
	bool token_tried;
	unsigned token;	     /* that was sent; 0: none */
	unsigned login_sent; /* the version of the registry's login, likewise */
	unsigned allowed;    /* address classes, HTTP_ALLOW */
	enum http_address_class class, refused_class;
	struct http_header response_header;
	uint64_t received, discarded;
	uint64_t sent_body; /* bytes of the body that libcurl has taken */
	int64_t expected;   /* bytes that must be received; -1: unknown */
	int fault;	    /* why a callback ended the transfer */
	const char *fault_why;
	enum { HTTP_LOOKS_UP, HTTP_LOOKED_UP, HTTP_CONNECTS } name; /* of the hop */
	struct http_sample samples[HTTP_STALL_SAMPLES];
	unsigned n_samples;
	char error_text[CURL_ERROR_SIZE];
};

/* The address classes that a server may send the stream to: by a redirect, or for a token. */
static inline unsigned http_allowed_next(const struct http_stream *s)
{
	if (s->http->private_links)
		return s->allowed;
	return HTTP_ALLOW(HTTP_ADDRESS_PUBLIC) | (s->trust == HTTP_USER ? HTTP_ALLOW(s->class) : 0);
}

/* Appends a copy of a line. 0 or -ENOMEM. */
static inline int http_add_line(struct curl_slist **list, const char *line)
{
	struct curl_slist *l = curl_slist_append(*list, line);

	if (!l)
		return -ENOMEM;
	*list = l;
	return 0;
}

/*
 * Is it a valid name of a region, [a-z0-9-]{1,32}? A server sends it, and it becomes a part of the
 * name of the host that gets the signature.
 */
bool http_region_ok(const char *text);

/* ---- stream.c ---- */

/* NULL: out of memory. */
struct http_stream *http_stream_new(struct http *http);
struct http_stream *http_stream_ref(struct http_stream *stream);
void http_stream_unref(struct http_stream *stream);

/* Network thread: how large the buffers are, when it begins: where memory is short, small. */
void http_stream_plan(struct http_stream *s);

/* Network thread: hands the owner the response; n bytes of the body (false: no room); the end. */
void http_stream_publish(struct http_stream *stream, const struct http_response *response);
bool http_stream_put(struct http_stream *stream, const char *data, size_t n);
void http_stream_end(struct http_stream *stream, int error);

/* Any thread: the stream's own one is to do that. 0; -ESHUTDOWN. */
int http_stream_post(struct http_stream *stream, enum http_action action);

/* Network thread: the next stream with actions, or NULL. The caller gets the queue's reference. */
struct http_stream *http_next(struct http_thread *thread, unsigned *ret_actions);

/* Logs with `url` as its subject, without userinfo, query and fragment. */
void http_log(enum carton_log_level level, const char *url, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/*
 * Logs with log_attempt() why the stream failed: as a warning, or as a debug message if an earlier
 * attempt was logged already. Takes the stream's lock.
 */
void http_log_failure(struct http_stream *stream, const char *url, const char *why);

/* ---- tokens.c: takes http->secrets, but where it says that the lock is held ---- */

/*
 * The answer has come: is it a 401 after which a token is worth asking for? Then the stream has a
 * token request.
 */
bool http_token_wanted(struct http_stream *stream);

/*
 * Makes the token request the stream's next one; or drops it, with another token that was got
 * since. False: another stream asks for the same; call it again when the stream is resumed. When it
 * has been answered, end keeps the token and takes up the stream's own request: 0; -EACCES or
 * -ENOMEM with a reason. Leave: the stream ends, whatever it does.
 */
bool http_token_begin(struct http_stream *stream);
int http_token_end(struct http_stream *stream, const char **ret_why);
void http_token_leave(struct http_stream *stream);

/* May a proxy read what is sent? http is for this machine only, but a proxy may be anywhere. */
bool http_is_overheard(const struct http_stream *s);

/*
 * Adds the token for the stream's target, if there is one, or the login that was asked for. Lock
 * held. 0 or -ENOMEM.
 */
int http_token_set(struct http_stream *stream);

/* Adds the login to a token request. Lock held. 0 or -ENOMEM. */
int http_token_sign(struct http_stream *stream);

/* The answer has come: was the login refused, and may another be there at the next try? */
bool http_token_renews(struct http_stream *stream);

/*
 * The answer has come. If it is a refusal, may another request for a token help, for fewer scopes,
 * or a request without the login that was refused? True: the stream is set up for that request.
 */
bool http_token_forgoes(struct http_stream *stream);

void http_tokens_finish(struct http *http);

/* ---- secrets.c: takes http->secrets ---- */

/* Loads the user's header file for the first time. 0, or as http_headers_load(). */
int http_secrets_load(struct http *http, const char *header_file);

/* A header instead of the file's. 0 or -ENOMEM. */
int http_secrets_add(struct http *http, const char *header);
void http_secrets_finish(struct http *http);

/* Adds what only the server may know that the stream asks. 0 or -ENOMEM. */
int http_secrets_set(struct http_stream *stream);

/*
 * The server has refused them (401 or 403). True: there are others now, so it may be asked again.
 */
bool http_secrets_refused(struct http_stream *stream);

/* ---- flood.c ---- */

/* libcurl's debug callback of a stream: cuts its connection when it keeps the thread too long. */
int http_flood_check(CURL *easy, curl_infotype type, char *data, size_t n, void *ctx);

/* ---- upload.c ---- */

/* Has libcurl send the stream's body. 0, or not. */
int http_upload_set(struct http_stream *stream);

/* Was all of it sent, so that the server works on it? */
bool http_upload_over(const struct http_stream *stream);

/* ---- coding.c ---- */

/* Can this libcurl decode a content coding? */
bool http_coding_known(const char *coding);

/*
 * Before the answer comes, libcurl is told to decode content codings, which makes it refuse those
 * that it does not know; or to decode nothing (`raw`). The answer shows which is right: nothing is
 * decoded of a part, of a body that is as long as the file (`plain`), or where Content-Encoding has
 * a word that is no coding; its owner decodes the rest. True: the request is to be made again,
 * once, the other way.
 */
bool http_recode(struct http_stream *s);

/* ---- hop.c ---- */

/*
 * One request for s->target. begin returns 0, or -errno with the reason in `ret_why` (NULL: a
 * refused address, see `refused`). end may be called at any time.
 */
int http_hop_begin(struct http_stream *stream, const char **ret_why);
void http_hop_end(struct http_stream *stream);

/* Hands the owner a refusal, without a body, and what the scheme says of it. */
void http_hop_refused(struct http_stream *stream);

/* The -errno for a failure of libcurl. The caller logs `ret_why`. */
int http_hop_error(struct http_stream *stream, CURLcode code, const char **ret_why);

/* ---- thread.c ---- */

/* A network thread, until `stopping` is set; then its streams end. `ctx` is its http_thread. */
void *http_run(void *ctx);

#endif
