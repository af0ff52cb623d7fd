/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP and HTTPS: one request for one URL, once, without blocking the caller.
 *
 * Network threads drive the transfers, each of them its own, with its own connections: TLS costs
 * so much that one thread is slower than a fast link. A callback tells the owner of a stream that
 * there is news (the response, bytes, the end); the owner takes them with calls that never wait. A
 * stream holds at most HTTP_STREAM_BUFFER decoded bytes: when its owner is slow, the transfer
 * pauses.
 * Retries, other URLs, deadlines, hashes and the cache are the caller's (fetch/): this module makes
 * one attempt and reports exactly how it went.
 *
 * What is enforced here, whatever the caller asks for:
 *  - http and https only; https never redirects to http; at most HTTP_MAX_REDIRECTS redirects
 *    (the header `x-carton-dl-url` of a status below 400 counts as one), no URL twice.
 *  - Addresses are checked when a socket is made, after name resolution, and again before a request
 *    goes out on a reused connection. A URL of trust HTTP_LINKS reaches public addresses only; one
 *    of trust HTTP_USER reaches any, and each redirect of it a public address or one of the class
 *    of the address that sent it. `private_links` lifts both rules.
 *  - A proxy (http_proxy, https_proxy, all_proxy, no_proxy, as curl reads them) is the user's
 *    choice: its own address is not checked, and names are resolved there, not here. Still checked
 *    is a URL whose host is a literal address or a localhost name.
 *  - A URL of another scheme becomes one of these as its row in scheme.h says: which LINKS may lead
 *    where the user is logged in, and what is sent there.
 *  - Credentials (userinfo of source_url, .netrc, the header file) go to the origin (scheme, host
 *    and port) of source_url and nowhere else. Userinfo of any other URL is dropped with a warning.
 *  - The token of a hub that has http, which is one on this machine, does not go through a proxy.
 *  - A 401 that says where anybody can get a token is followed, once, without credentials, as a
 *    redirect would be; that server has https, or is on this machine, or is one that the user has
 *    named in plain_http. The token goes to the origin that wanted it and nowhere else, and there
 *    to one repository or directory.
 *  - What the user has for a registry is sent when this asks for it: there, or to the server that
 *    it names for tokens; never for a URL of LINKS, and not behind a redirect.
 *  - A request that sends a body goes to its URL and nowhere else: it follows no redirect.
 *  - TLS certificates are always verified.
 *  - At most one content coding is decoded; headers are bounded; bodies are not: the caller counts.
 *
 * URLs are logged without userinfo, query and fragment. Every failure but -ESHUTDOWN is logged
 * here, once.
 *
 * Threads: any thread may start and stop; one thread at a time uses a stream.
 */
#ifndef CARTON_HTTP_HTTP_H
#define CARTON_HTTP_HTTP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/limits.h"
#include "base/util.h"

struct budget;
struct http;
struct http_redirect;
struct http_stream;
struct login;
struct registries;
struct scheme;
struct sockaddr;

/* Certificate authorities to trust. Zeroed: the system's. */
struct http_bundle {
	char *file;	      /* path of a PEM file that libcurl reads for a connection; or NULL */
	struct buf text;      /* the certificates of directories, in PEM; or empty */
	const char *variable; /* of the environment, that names them; or NULL */
	bool only;	      /* and not the system's, too */
};

/* All strings are copied; what else it points to outlives it. Zero and NULL are the defaults. */
struct http_options {
	long name_timeout_ms;	 /* the lookup of the name; default 300,000 */
	long connect_timeout_ms; /* connection and TLS together; default 10,000 */
	long stall_ms;		 /* a transfer slower than stall_rate for this long fails */
	long stall_rate;	 /* with -ETIMEDOUT; defaults 10,000 and 1024 bytes/s */
	bool private_links;	 /* let LINKS and redirects reach private addresses */
	bool requester_pays;	 /* requests to S3 say that the requester pays */
	const char *cacert;	 /* PEM file of the authorities to trust instead; or NULL: */
	const struct http_bundle *bundle; /* those that the environment names; or NULL */
	const char *header_file; /* lines `Name: value`, for the origin of source_url only */
	const char *source_url;	 /* what the user typed; NULL: nothing gets credentials */
	struct login *logins;	 /* of the user (scheme.h) */
	/* whose login has a header for the origin of source_url, which a header_file replaces */
	const struct scheme *source_scheme;
	const struct registries *registries; /* the user's settings; or NULL */
	unsigned threads;		     /* default: one for each processor, at most four */
	struct budget *budget;		     /* counts the buffers of streams; or NULL */
};

/*
 * Loads libcurl and the libraries that it loads to resolve names and check certificates. Called
 * before the process is confined, which forbids to load code; keeps nothing that must be freed. 0;
 * -ELIBACC, logged; -ENOMEM.
 */
int http_prepare(void);

/*
 * The authorities that the environment names for requests to that source. The path of a file is
 * absolute. Directories are read, so it is called before the process is confined. 0 or -errno,
 * logged but for -ENOMEM.
 */
int http_bundle(const char *source, struct http_bundle *ret);
void http_bundle_finish(struct http_bundle *b);

/* The file of these, malloc'ed; not set: there is none, or it was read by http_bundle(). */
int http_bundle_file(const char *source, char **ret);

/*
 * Reads the header file and the proxy variables and starts the threads (so after any fork). Logs
 * once which content codings this libcurl lacks. Returns 0; -EINVAL for a source_url or a header
 * file that cannot be used, -EFBIG when that file breaks a limit, the open's -errno when it or
 * cacert cannot be read (each logged); -ENOMEM, -EAGAIN.
 */
int http_new(const struct http_options *options, struct http **ret);

/*
 * Ends the threads and all transfers: they end with -ESHUTDOWN, after the bytes that are there, and
 * so does every later request. Streams must still be closed. From any thread, once.
 */
void http_stop(struct http *http);

/* Stops, if that was not done, and frees. All streams are closed by then. NULL-safe. */
void http_free(struct http *http);

enum http_method {
	HTTP_GET,
	HTTP_HEAD,
	/* the methods below send a body; their URLs have http or https */
	HTTP_POST,
	HTTP_PUT,
	HTTP_PATCH,
};

/* The body of a request. Zeroed: the request has none. */
struct http_body {
	const char *type;  /* the media type of the body; or NULL */
	const char *range; /* FIRST-LAST: the place of the body in an upload; or NULL */
	uint64_t size;
	/*
	 * Gives up to n bytes at `off`, at least one: how many, or -errno, which ends the request.
	 * Called on a network thread, under the stream's lock, with rising offsets, but again from
	 * the start when the request is sent again; never after http_close(). May wait for a disk.
	 */
	ssize_t (*read)(void *ctx, void *ret, size_t n, uint64_t off);
	void *ctx;
};

enum http_trust {
	HTTP_USER,  /* the user typed this URL */
	HTTP_LINKS, /* the carton says so */
};

struct http_request {
	const char *url;
	struct http_redirect *redirect; /* the URL to begin at (below); NULL: `url` */
	enum http_method method;
	enum http_trust trust;
	bool has_range; /* ask for bytes first..last, last included */
	uint64_t first, last;
	uint64_t suffix;      /* not 0: the last so many bytes; not with has_range */
	const char *if_match; /* each may be NULL; sent in the header of its name */
	const char *if_range;
	const char *if_unmodified_since;
	const char *accept; /* media types; or NULL */
	struct http_body body;
	bool identity;	/* ask for no content coding; implied by a range */
	bool undecoded; /* the same, and decode nothing, even if the server sends a coding */
	/*
	 * Not 0: the size of the file. A body of that length is the file itself, so it is not
	 * decoded, whatever coding the server names.
	 */
	uint64_t plain;
	bool pushes;	     /* the token of the request also permits writing */
	bool no_cache;	     /* ask caches on the way to look again */
	bool new_connection; /* use no old one: a new one may lead to another machine */
	bool probe; /* a body that cannot be used (-EOPNOTSUPP) is no failure: it is not logged */
	/*
	 * send no token and no login, even if one is wanted; ask this machine without a proxy
	 */
	bool untold;
	/*
	 * set when a failure is logged; later ones go to the debug log. Until http_close(). Or NULL
	 */
	atomic_bool *logged_once;
};

/* Numbers are -1 and strings empty where the response does not say. */
struct http_response {
	int status;
	bool accept_ranges;  /* Accept-Ranges: bytes */
	bool strong_etag;    /* there is an ETag and it is not weak */
	int64_t length;	     /* bytes of the body as the owner gets it; HEAD: of a GET */
	int64_t sent;	     /* and as the server sends it */
	int64_t range_first; /* Content-Range of a 206, */
	int64_t range_last;
	int64_t range_total; /* of a 206 or a 416 */
	int64_t upload_last; /* LAST of "Range: 0-LAST": a registry has these bytes of an upload */
	int64_t least_part;  /* OCI-Chunk-Min-Length: the least bytes of a part of an upload */
	/* at most HTTP_MAX_RETRY_AFTER; a date is made relative; else RateLimit of a 429 or 503 */
	long retry_after_s;
	char etag[256]; /* with its quotes and W/ */
	char last_modified[64];
	int64_t last_modified_s;  /* the same in seconds since 1970; INT64_MIN: no date */
	char coding[16];	  /* the one content coding, "" when identity or of no known name */
	bool coded;		  /* the owner gets the body in that coding, as a part of one */
	char reason[256];	  /* what an object store says is wrong, or the code of a hub */
	bool elsewhere;		  /* a redirect has led to another origin than the first one */
	char next[HTTP_MAX_NEXT]; /* Link: the URL with rel="next"; not checked */
	char digest[80];	  /* Docker-Content-Digest */
};

/* Called on a network thread, under the stream's lock: must neither block nor use the stream. */
typedef void http_wake_fn(void *ctx);

/*
 * Sends a request and follows redirects. `wake` is called each time there may be news: the
 * response, bytes, or the end; never after http_close(). The caller closes the stream. 0; -EINVAL a
 * URL, validator or range that makes no sense; -EACCES a scheme; -ESHUTDOWN; -ENOMEM.
 */
int http_start_request(struct http *http, const struct http_request *request, http_wake_fn *wake,
		       void *ctx, struct http_stream **ret);

/*
 * The headers of the final response, whatever its status (see http_status_errno()). 0; -EAGAIN: not
 * yet; or why there is none:
 *  -ESHUTDOWN	http_stop()
 *  -ETIMEDOUT	the connect timeout or a stall
 *  -ECONNREFUSED -EHOSTUNREACH -ENETUNREACH … as connect(2); a name that does not resolve is
 *		-EHOSTUNREACH
 *  -ECONNRESET	the connection ended before the answer was complete
 *  -EPROTO	not HTTP, or an answer that contradicts itself
 *  -EPROTONOSUPPORT  a server of an https URL that speaks no TLS
 *  -EACCES	refused here: address, redirect from https to http, scheme, certificate
 *  -ELOOP	too many redirects, or in a circle
 *  -EBADMSG	more than one content coding; broken coded bytes
 *  -EOPNOTSUPP	a coding that libcurl lacks
 *  -EFBIG	headers over a limit; a coded body that expands too strongly (ask for identity)
 *  -ENOMEM
 */
int http_answer(struct http_stream *stream, struct http_response *ret);

/*
 * The URL that has given the answer, or the failure, if that is not the first: redirects have led
 * there, or it is that of a token server. malloc'ed; NULL: the first, or ENOMEM. After
 * http_answer() has said something.
 */
char *http_answered_by(struct http_stream *stream);

/*
 * The URL in Location of an answer that is no redirect, with the origin that has answered: a server
 * behind a proxy for TLS may leave out the port, or write http. malloc'ed; NULL: there is none, it
 * names another server, or ENOMEM. After http_answer() has said something.
 */
char *http_location(struct http_stream *stream);

/*
 * Points *ret at the next decoded bytes. Returns how many; 0 when the body is complete and exactly
 * as long as its headers said; -EAGAIN when there are none now, or -errno as http_answer(), after
 * the bytes that came before the failure. The bytes stay until http_skip() frees their space. An
 * owner that was woken takes bytes until -EAGAIN: it is not woken again for bytes that are there by
 * then. (libcurl does not notice when a server itself cuts a coded body short; the hash does.)
 */
ssize_t http_peek(struct http_stream *stream, const char **ret);
void http_skip(struct http_stream *stream, size_t n);

/* Ends the transfer if it still runs; a cancel is no more than this. NULL-safe. */
void http_close(struct http_stream *stream);

/*
 * Where redirects have led, so that the next request can begin there. Object stores and hubs
 * redirect to URLs that are good for a while: their query has a signature and a time. A request
 * that begins at a redirect target obeys the rules of the redirects that led there: the same
 * addresses are allowed, and no credentials are sent to another origin. Constant.
 */

/*
 * A reference to the redirect target of a stream that has been answered; NULL: no redirects, or
 * ENOMEM.
 */
struct http_redirect *http_redirect_of(struct http_stream *stream);
struct http_redirect *http_redirect_ref(struct http_redirect *to); /* both NULL-safe */
void http_redirect_unref(struct http_redirect *to);

const char *http_redirect_url(const struct http_redirect *to);

/* Is the time in its URL over, or nearly? False if the URL has no time. */
bool http_redirect_expired(const struct http_redirect *to);

/*
 * The errno of a status: 0 for 2xx; -EACCES 401, 403, 407; -ENOENT 404, 410; -ESTALE 412 (a
 * validator no longer holds); -ERANGE 416; -EBUSY 429 and 503 (too much at once); -EAGAIN 408, 425
 * and other 5xx (try again later, or another URL); -EPROTO for all else.
 */
int http_status_errno(int status);

/*
 * NULL when `url` is absolute, of a scheme of the table in scheme.h, and has no fault; else what is
 * wrong.
 */
const char *http_url_fault(const char *url);

/* Is there a user name or a password in a URL without fault? */
bool http_url_has_userinfo(const char *url);

/* Does it begin as a URL of a scheme of that table does, or as one that is misspelt? */
bool http_is_url(const char *text);

/*
 * For messages: writes `url` without userinfo, query and fragment, cut to n - 1 bytes. `url` may
 * also be a template or another text: if its parts are not certain, only its scheme is written.
 * Returns `ret`.
 */
char *http_url_redact(const char *url, char *ret, size_t n);

/* The same for a source that the user names: the path of a file is shown as it is. */
char *http_source_label(const char *source, char *ret, size_t n);

/*
 * Makes a URL that others may see: `url` without userinfo, fragment, signature and parameters that
 * are called token, key, password and the like. Other parameters stay: they name the file.
 * malloc'ed; NULL: out of memory, too long.
 */
char *http_url_public(const char *url);

/*
 * When a signed URL stops being valid, in seconds since 1970 (X-Amz-Date and X-Amz-Expires, the
 * same of X-Goog, Expires, Azure's se); 0: the URL has no such time.
 */
int64_t http_url_expiry(const char *url);

/*
 * `url` without the parameters of known signatures: a name for the file that stays when it is
 * signed anew. NULL: out of memory.
 */
char *http_url_unsigned(const char *url);

/* The kind of an address. IPv4 inside IPv6 (mapped, compatible, NAT64, 6to4, ISATAP) has the kind
 * of the IPv4 address. */
enum http_address_class {
	HTTP_ADDRESS_PUBLIC,
	HTTP_ADDRESS_LOOPBACK,
	HTTP_ADDRESS_LINK_LOCAL,
	HTTP_ADDRESS_PRIVATE, /* RFC 1918, 100.64/10, 198.18/15, fc00::/7, fec0::/10 … */
	HTTP_ADDRESS_MULTICAST,
	HTTP_ADDRESS_UNSPECIFIED, /* 0/8 and :: */
	HTTP_ADDRESS_RESERVED,	  /* broadcast, 240/4, documentation, not global unicast */
};

enum http_address_class http_address_class(const struct sockaddr *address);

#endif
