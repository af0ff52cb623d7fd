/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP and HTTPS as pull streams: one request for one URL, once.
 *
 * One thread drives all transfers; every call here is made from other threads and blocks the
 * caller only. A stream holds at most HTTP_STREAM_BUFFER decoded bytes: when its reader is slow,
 * the transfer waits. Retries, mirrors, hashes and the cache are not here: this module makes one
 * attempt and says exactly how it went.
 *
 * What is enforced here, whatever the caller asks for:
 *  - http and https only; https never redirects to http; at most HTTP_MAX_REDIRECTS redirects
 *    (the header `x-carton-dl-url` of a status below 400 counts as one), no URL twice.
 *  - Addresses are judged when a socket is made, after name resolution, and again before a request
 *    goes out on a kept connection. A URL of trust HTTP_LINKS reaches public addresses only; one
 *    of trust HTTP_USER goes anywhere, and each redirect of it to a public address or one of the
 *    class of the address that sent it. `private_links` lifts both.
 *  - A proxy (http_proxy, https_proxy, all_proxy, no_proxy, as curl reads them) is the user's
 *    choice: its own address is not judged, and names are resolved there, not here. What can be
 *    judged is: a URL whose host is a literal address outside the rules, or a localhost name.
 *  - Credentials (userinfo of origin_url, .netrc, the header file) go to the origin (scheme, host
 *    and port) of origin_url and nowhere else. Userinfo of any other URL is dropped with a warning.
 *  - TLS certificates are always verified.
 *  - At most one content coding is decoded; headers are bounded; bodies are not: the caller
 *    counts.
 *
 * URLs are logged without userinfo, query and fragment. Every failure but -ECANCELED and
 * -ESHUTDOWN is logged here, once.
 */
#ifndef CARTON_HTTP_HTTP_H
#define CARTON_HTTP_HTTP_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/limits.h"

struct http;
struct http_stream;
struct sockaddr;

/* All strings are copied. Zero and NULL are the defaults. */
struct http_options {
	long connect_timeout_ms;   /* name, connection and TLS together; default 10,000 */
	long stall_ms;		   /* a transfer slower than stall_rate for this long fails */
	long stall_rate;	   /* with -ETIMEDOUT; defaults 10,000 and 1024 bytes/s */
	bool private_links;	   /* let LINKS and redirects reach private addresses */
	const char *cacert;	   /* PEM file of the authorities to trust instead */
	const char *header_file;   /* lines `Name: value`, for the origin of origin_url only */
	const char *origin_url;	   /* what the user typed; NULL: nothing gets credentials */
	long max_host_connections; /* to one host at once; default: no limit */
};

/*
 * Reads the header file and the proxy variables and starts the thread (so after any fork). Logs
 * once which content codings this libcurl lacks. Returns 0; -EINVAL for an origin_url or a header
 * file that cannot be used, -EFBIG when that file breaks a limit, the open's -errno when it or
 * cacert cannot be read (each logged); -ENOMEM, -EAGAIN.
 */
int http_start(const struct http_options *options, struct http **ret);

/*
 * Ends the thread and all transfers: every call that waits, and every later one, gets -ESHUTDOWN
 * (http_read first gives the bytes it has). Streams must still be closed. From any thread, once.
 */
void http_stop(struct http *http);

/* Stops, if that was not done, and frees. All streams are closed by then. NULL-safe. */
void http_free(struct http *http);

/*
 * A switch that ends the waiting of every stream opened with it. It outlives those streams.
 * init returns 0 or -errno. Firing is possible from any thread, at any time, more than once; a
 * waiting http_open or http_read then returns -ECANCELED, and so does every later one.
 */
struct http_cancel {
	pthread_mutex_t lock;
	atomic_bool fired;
	struct http_stream *streams; /* guarded by lock */
};

int http_cancel_init(struct http_cancel *cancel);
void http_cancel_fire(struct http_cancel *cancel);
void http_cancel_destroy(struct http_cancel *cancel);

enum http_method {
	HTTP_GET,
	HTTP_HEAD,
};

enum http_trust {
	HTTP_USER,  /* the user typed this URL */
	HTTP_LINKS, /* the carton says so */
};

struct http_request {
	const char *url;
	enum http_method method;
	enum http_trust trust;
	bool has_range; /* ask for bytes first..last, last included */
	uint64_t first, last;
	uint64_t suffix;      /* not 0: the last so many bytes; not with has_range */
	const char *if_match; /* each may be NULL; sent in the header of its name */
	const char *if_range;
	const char *if_unmodified_since;
	bool identity;	   /* ask for no content coding; implied by a range */
	bool undecoded;	   /* the same, and do not decode one that is there all the same */
	bool no_cache;	   /* ask caches on the way to look again */
	atomic_bool *told; /* set when a failure is logged; the next go to the debug log. Or NULL */
	int64_t deadline_ms; /* as now_ms(); 0: none. http_set_deadline moves it */
};

/* Numbers are -1 and strings empty where the response does not say. */
struct http_response {
	int status;
	bool accept_ranges;  /* Accept-Ranges: bytes */
	bool strong_etag;    /* there is an ETag and it is not weak */
	int64_t length;	     /* bytes that http_read will give; HEAD: of a GET */
	int64_t range_first; /* Content-Range of a 206, */
	int64_t range_last;
	int64_t range_total; /* of a 206 or a 416 */
	long retry_after_s;  /* at most HTTP_MAX_RETRY_AFTER; a date is made relative */
	char etag[256];	     /* with its quotes and W/ */
	char last_modified[64];
	char coding[16];		  /* the one content coding, "" when identity */
	char final_url[HTTP_MAX_URL + 1]; /* after redirects; may hold secrets in its query */
};

/*
 * Sends the request, follows redirects and returns when the headers of the final response are
 * there. Any status is a success (see http_status_errno). `cancel` may be NULL. Gives a stream
 * that the caller closes. Returns 0 or
 *  -ECANCELED	`cancel` was fired
 *  -ESHUTDOWN	http_stop
 *  -ETIMEDOUT	the deadline, the connect timeout or a stall
 *  -ECONNREFUSED -EHOSTUNREACH -ENETUNREACH … as connect(2); a name that does not resolve is
 *		-EHOSTUNREACH
 *  -ECONNRESET	the connection ended before the answer was complete
 *  -EPROTO	not HTTP, or an answer that contradicts itself
 *  -EACCES	refused here: address, redirect from https to http, scheme, certificate
 *  -ELOOP	too many redirects, or in a circle
 *  -EBADMSG	more than one content coding; broken coded bytes
 *  -EOPNOTSUPP	a coding that is unknown, that libcurl lacks, or on a partial answer
 *  -EFBIG	headers over a limit
 *  -EINVAL	a URL, validator or range that makes no sense
 *  -ENOMEM
 */
int http_open(struct http *http, const struct http_request *request, struct http_cancel *cancel,
	      struct http_stream **ret, struct http_response *ret_response);

/*
 * The next decoded bytes, at least one unless n is 0; 0 when the body is complete, and exactly as
 * long as its headers said; or -errno as http_open, after the bytes that came before the failure.
 * A coded body that expands so strongly that libcurl would have to hold more than 64 MiB fails
 * with -EFBIG: ask for identity instead. (A coded body cut at its end by the server itself is not
 * noticed by libcurl; the caller's hash is what notices.) One thread at a time per stream.
 */
ssize_t http_read(struct http_stream *stream, void *ret_buf, size_t n);

/* Moves the deadline of all that follows on this stream, 0 removes it. From any thread. */
void http_set_deadline(struct http_stream *stream, int64_t deadline_ms);

/* At any time, from the thread that reads; ends the transfer if it still runs. NULL-safe. */
void http_close(struct http_stream *stream);

/*
 * What a status means: 0 for 2xx; -EACCES 401, 403, 407; -ENOENT 404, 410; -ESTALE 412 (a
 * validator no longer holds); -ERANGE 416; -EAGAIN 408, 425, 429 and 5xx (try again later, or
 * another mirror); -EPROTO for all else.
 */
int http_status_errno(int status);

/* NULL when `url` is an absolute http or https URL that http_open takes, else what is wrong. */
const char *http_url_fault(const char *url);

/* `url` without userinfo, query and fragment, cut to n - 1 bytes; for messages. Returns `ret`. */
char *http_url_redact(const char *url, char *ret, size_t n);

/* What kind of place an address is. IPv4 inside IPv6 (mapped, compatible, NAT64, 6to4, ISATAP)
 * is judged as the IPv4 address. */
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
