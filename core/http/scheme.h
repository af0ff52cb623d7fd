/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The schemes of URLs: http and https, with which requests are made, and others, which become one
 * of these. A scheme is a file with one struct scheme, and its row in the table of scheme.c.
 * Nothing else asks what scheme a URL has.
 *
 * There are two ways to become https:
 *  - A URL stands for another one (`resolve`), which is used in its place from the start, also in
 *    LINKS and as a mirror. What the user's login gives is a header for the server of the URL that
 *    the user named, or the one that a registry gets when it asks for it.
 *  - Or it keeps its scheme, also in the cache and in the log, and the row makes each request of it
 *    (`request_url`) and signs it, as long as redirects have not led to another server.
 *
 * Threads: any, but for sign() and refused(), which the network threads call, one at a time. What
 * request_url() reads of a login does not change after login().
 */
#ifndef CARTON_HTTP_SCHEME_H
#define CARTON_HTTP_SCHEME_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct cancel;
struct http_stream;
struct registries;
struct scheme;

/* What all logins are made with. */
struct login_options {
	struct cancel *stop; /* fires to end the wait for a login, which it outlives; or NULL */
	const struct registries *registries; /* the user's settings; or NULL */
};

/* The credentials that the user has for the URLs of one scheme. */
struct login {
	const struct scheme *scheme;
	struct login *next;
	char *header; /* a line for the server of the user's URL; or NULL */
	/* Of a registry, the line is for this server, when that asks for it; else host is NULL. */
	char *host;	   /* as in struct http_target */
	unsigned ports[2]; /* for http, for https; 0: the line is not sent by it */
	char *file;	   /* the file that has the line; NULL: it is from elsewhere */
	/* guarded as what sign() uses: when it asks, and how many headers there have been */
	bool asked;
	unsigned version;
	atomic_bool refused; /* the server refuses that of `file`: no read sends it */
};

struct scheme {
	const char *name; /* lower case, without :// */
	bool port; /* HOST[:PORT] is behind the ://; false: a name, such as that of a bucket */

	/* the variable that names a file of authorities to other programs of the scheme; or NULL */
	const char *bundle;
	/*
	 * If that variable is not set: returns the path that the configuration of the service
	 * names. False: the configuration names none, or one of `n` bytes or more. May be NULL.
	 */
	bool (*find_bundle)(char *ret, size_t n);
	/* Is the text before an @ a NAME, of NAME@REVISION, and no userinfo? NULL: never. */
	bool (*is_name)(const char *text, size_t n);

	const char *misspelt; /* what is wrong with a text that only begins like a URL of it */

	/*
	 * What is wrong with a URL of it, as one clause; NULL: nothing. NULL for http and https:
	 * libcurl says it.
	 */
	const char *(*fault)(const char *url);

	/*
	 * The http or https URL that a URL without fault stands for, malloc'ed; NULL: out of
	 * memory. Placeholders of mirrors, in braces, stay. NULL: it stands for itself.
	 */
	char *(*resolve)(const char *url);

	/*
	 * Gets the user's credentials, which may be for that URL only (`covers`). May read files,
	 * fork and wait: called before the process is confined. 0, with *ret NULL if there are
	 * none; -errno, logged. NULL: the scheme has none.
	 */
	int (*login)(const char *url, const struct login_options *o, struct login **ret);
	/* Is a login that was got for another URL for this one, too? NULL: for all. */
	bool (*covers)(struct login *l, const char *url);
	void (*logout)(struct login *l); /* frees it */

	/* Network thread: the line to send to `host` now; or NULL. */
	const char *(*line)(struct login *l);
	/*
	 * Network thread: the line of this `version` was refused. True: there is another, or it is
	 * on its way, so the request is worth another try. NULL where `line` is.
	 */
	bool (*renew)(struct login *l, unsigned version);

	/* What follows is for a scheme whose URLs keep it until they are asked for, else NULL. */

	/*
	 * The URL that request_url() would give by the user's settings, without a login. It only
	 * names the source, and is not requested. malloc'ed; NULL: out of memory.
	 */
	char *(*settled)(const char *url);
	/* The http or https URL of a request, malloc'ed; NULL: out of memory. */
	char *(*request_url)(struct login *l, const char *url);
	/* Network thread: adds the credentials to a request. 0 or -ENOMEM. */
	int (*sign)(struct login *l, struct http_stream *stream);
	/* Network thread: the server has refused them (401 or 403). True: sign anew. */
	bool (*refused)(struct login *l, const struct http_stream *stream);
	/*
	 * Network thread: the URL to ask instead, after an answer that says where the file is. The
	 * scheme makes it of the URL that the user named. malloc'ed; NULL: the answer does not say
	 * that. `body` may be NULL.
	 */
	char *(*moved)(struct login *l, const struct http_stream *stream, const char *body);
	/* What the body of a status from 300 says is wrong, "" if nothing; cut to n - 1 bytes. */
	void (*reason)(const char *body, char *ret, size_t n);
	/*
	 * May LINKS of the carton at `source`, a URL of the scheme too, name this URL? Else
	 * `links_fault` says why not.
	 */
	bool (*links_may)(const char *source, const char *url);
	const char *links_fault;
};

/* The scheme of SCHEME://…, in any case of letters; NULL: none of the table. */
const struct scheme *scheme_of(const char *url);

/* The same of a text that may be a misspelt URL: http:host, " HTTP:". */
const struct scheme *scheme_like(const char *text);

/* The name of a scheme that the first `n` bytes of `typed` are perhaps a typo of, or NULL. */
const char *scheme_near(const char *typed, size_t n);

/* "http, https, s3, hf, ms and oci", cut to n - 1 bytes. Returns `ret`. */
char *scheme_names(char *ret, size_t n);

/*
 * The URL that is used in place of `url`: the one that it stands for, else a copy; malloc'ed. Also
 * of a template, and of what is no URL. 0; -EINVAL, with what is wrong in *ret_fault; -ENOMEM.
 */
int scheme_resolve(const char *url, char **ret, const char **ret_fault);

/*
 * Adds the login that requests for `url` may need to a list, once for each scheme, or for each URL
 * of a registry. 0, or as `login` above.
 */
int login_add(struct login **list, const char *url, const struct login_options *o);

/* That of a scheme, or NULL. */
struct login *login_of(struct login *list, const struct scheme *scheme);

/* Can requests for `url` not be made, since that needs a login which is not in the list? */
bool login_missing(struct login *list, const char *url);

void login_free(struct login *list); /* NULL-safe */

#endif
