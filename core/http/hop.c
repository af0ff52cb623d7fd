/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "http/internal.h"

#define ADDRESS_AGE_S 60 /* names are looked up again after this */

/* Ends a transfer from inside a callback. */
static size_t callback_fail(struct http_stream *s, int fault, const char *why)
{
	s->fault = fault;
	s->fault_why = why;
	return 0;
}

/* ---- libcurl's callbacks ---- */

/* May the stream connect to an address of this class? Remembers a refused one. */
static bool check_address(struct http_stream *s, enum http_address_class class)
{
	if (s->allowed & HTTP_ALLOW(class))
		return true;
	s->refused = true;
	s->refused_class = class;
	return false;
}

/* Called after name resolution and before the socket is made: nothing has been sent. */
static curl_socket_t on_socket(void *ctx, curlsocktype purpose, struct curl_sockaddr *address)
{
	struct http_stream *s = ctx;
	int fd;

	(void)purpose;
	if (s->name != HTTP_CONNECTS) {
		s->name = HTTP_LOOKED_UP;
		/* libcurl would forget older addresses when the transfer ends, too */
		curl_easy_setopt(s->easy, CURLOPT_DNS_CACHE_TIMEOUT, -1L);
		return CURL_SOCKET_BAD;
	}
	if (!s->proxied && !check_address(s, http_address_class(&address->addr)))
		return CURL_SOCKET_BAD;
	fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
	s->thread->last_socket = MAX(s->thread->last_socket, fd);
	return fd;
}

/* Called before each request: a reused connection has not passed on_socket() for this stream. */
static int on_request(void *ctx, char *remote, char *local, int remote_port, int local_port)
{
	struct http_stream *s = ctx;

	(void)local;
	s->ports[0] = local_port;
	s->ports[1] = remote_port;
	s->connected = true;
	s->n_samples = 0;
	s->class = http_host_class(s->proxied ? s->target.host : remote);
	return check_address(s, s->class) ? CURL_PREREQFUNC_OK : CURL_PREREQFUNC_ABORT;
}

/* Checks the headers of the final response: 0, or -errno with the reason. */
static int check_body(struct http_stream *s, const char **ret_why)
{
	const struct http_header *header = &s->response_header;
	const struct http_response *response = &header->response;
	int64_t part = response->range_last - response->range_first + 1;

	if (response->status < 200 || response->status > 299)
		return 0;
	*ret_why = "the answer is coded more than once; one content coding is allowed";
	if (header->codings > 1 || header->transfer_coded)
		return -EBADMSG;
	if (s->head_only)
		return 0;
	*ret_why = "the answer has a content coding that cannot be read here";
	if (header->codings && !s->raw && !http_coding_known(response->coding))
		return -EOPNOTSUPP;
	*ret_why = "Content-Length and Content-Range contradict each other";
	if (response->range_first >= 0 && response->length >= 0 && response->length != part)
		return -EPROTO;
	return 0;
}

static void publish(struct http_stream *s)
{
	struct http_header *header = &s->response_header;
	struct http_response *response = &header->response;

	response->coded = header->codings && s->raw;
	response->sent = response->length;
	if (header->codings && (!s->raw || (s->head_only && !s->undecoded)))
		response->length = -1;
	else if (response->range_first >= 0 && !s->head_only)
		response->length = response->range_last - response->range_first + 1;
	response->elsewhere = s->left_origin;
	s->expected = s->head_only ? -1 : response->length;
	http_stream_publish(s, response);
}

void http_hop_refused(struct http_stream *s)
{
	struct http_response *response = &s->response_header.response;

	if (s->kept.data)
		s->login->scheme->reason(s->kept.data, response->reason, sizeof(response->reason));
	response->length = 0;
	publish(s);
}

/* Of a token server. Other than a failure to reach it, a fault of its own may pass. */
static size_t on_no_token(struct http_stream *s)
{
	int status = s->response_header.response.status;

	return callback_fail(s, error_passes(http_status_errno(status)) ? -ECONNRESET : -EACCES,
			     "the token server gives no token");
}

/* Does the answer name the region of the bucket? Then the scheme makes the URL, not Location. */
static bool says_region(const struct http_stream *s)
{
	const struct http_header *header = &s->response_header;

	return s->login && !s->left_origin && s->login->scheme->moved && *header->region &&
	       header->response.status == 301;
}

static const char proxy_password[] =
	"the proxy, not the server, wants a user name and a password (status 407): give them in "
	"the variable that names it, as in https_proxy=http://USER:PASSWORD@HOST:PORT";

static size_t on_head_end(struct http_stream *s, size_t n)
{
	const struct http_header *header = &s->response_header;
	const char *why = NULL;
	int r;

	s->header_done = true;
	if (s->proxied && header->response.status == 407)
		return callback_fail(s, -EACCES, proxy_password);
	/* the helper takes its time: the retries of the owner wait for it */
	if (http_token_renews(s))
		return callback_fail(
			s, -ECONNRESET,
			"the password of the credential helper is refused: docker login or "
			"podman login saves another");
	if (s->asks && http_status_errno(header->response.status) == 0)
		return n;
	s->again = (header->response.status == 401 || header->response.status == 403) && !s->asks &&
		   http_secrets_refused(s);
	s->again = s->again || http_token_forgoes(s);
	if (s->asks && !s->again)
		return on_no_token(s);
	s->token_wanted = !s->again && http_token_wanted(s);
	s->recode = !s->again && !s->token_wanted && !http_header_redirect(header) &&
		    http_recode(s);
	if (s->again || s->token_wanted || s->recode ||
	    (!s->sends && http_header_redirect(header) && !says_region(s))) {
		s->redirected = true;
		/* A short body is read to the end, so that the connection can be reused. */
		if (s->head_only || (header->response.length >= 0 &&
				     header->response.length <= (int64_t)HTTP_MAX_REDIRECT_BODY))
			return n;
		return 0;
	}
	r = check_body(s, &why);
	if (r < 0)
		return callback_fail(s, r, why);
	s->keeps = header->response.status >= 300 && s->login && !s->left_origin &&
		   s->login->scheme->reason;
	if (!s->keeps)
		publish(s);
	return n;
}

static size_t on_header(char *line, size_t size, size_t n, void *ctx)
{
	struct http_stream *s = ctx;
	struct http_header *header = &s->response_header;
	bool end = false;
	int r = 0;

	n *= size;
	if (s->header_done) {
		/* Trailers are ignored, but counted. */
		header->bytes += n;
		if (++header->lines > HTTP_MAX_HEADERS || header->bytes > HTTP_MAX_HEADER_BYTES)
			r = -EFBIG;
	} else {
		r = http_header_line(header, line, n, &end);
	}
	if (r < 0)
		return callback_fail(s, r,
				     r == -EFBIG  ? "the answer's headers are too large" :
				     r == -EPROTO ? "the answer's headers are malformed" :
						    "out of memory");
	return end ? on_head_end(s, n) : n;
}

/* Would `n` more decoded bytes be more than any coding can make of the bytes received? */
static bool expands_too_much(struct http_stream *s, size_t n)
{
	curl_off_t wire = 0;

	if (!s->response_header.codings || s->raw || s->received + n <= HTTP_EXPANSION_START)
		return false;
	curl_easy_getinfo(s->easy, CURLINFO_SIZE_DOWNLOAD_T, &wire);
	return (s->received + n - HTTP_EXPANSION_START) / HTTP_MAX_EXPANSION > (uint64_t)wire;
}

/* What is over the limit ends the transfer. */
static size_t keep(struct http_stream *s, const char *data, size_t n)
{
	size_t part = MIN(n, HTTP_MAX_KEPT_BODY - s->kept.len);

	if (buf_add(&s->kept, data, part) == 0 && part == n)
		return n;
	return s->asks ? callback_fail(s, -EACCES, "the token server sends too much") : 0;
}

static size_t on_body(char *data, size_t size, size_t n, void *ctx)
{
	struct http_stream *s = ctx;

	n *= size;
	if (s->redirected) {
		s->discarded += n;
		return s->discarded > HTTP_MAX_REDIRECT_BODY ? 0 : n;
	}
	if (s->keeps || s->asks)
		return keep(s, data, n);
	/* a body before its headers, such as behind a 101, which libcurl takes for an answer */
	if (!s->header_done)
		return callback_fail(s, -EPROTO, "the answer's headers are malformed");
	if (s->expected >= 0 && n > (uint64_t)s->expected - s->received)
		return callback_fail(s, -EPROTO, "the body is longer than announced");
	if (expands_too_much(s, n))
		return callback_fail(s, -EFBIG, "the coded body expands too strongly");
	if (!s->ring) {
		s->ring = malloc(s->ring_size);
		if (!s->ring)
			return callback_fail(s, -ENOMEM, "out of memory");
	}
	if (!http_stream_put(s, data, n)) {
		s->held = true;
		return CURL_WRITEFUNC_PAUSE;
	}
	s->received += n;
	return n;
}

/* ---- the request ---- */

static int set_callbacks(struct http_stream *s)
{
	CURL *e = s->easy;
	int r = 0;

	r |= (int)curl_easy_setopt(e, CURLOPT_PRIVATE, s);
	r |= (int)curl_easy_setopt(e, CURLOPT_ERRORBUFFER, s->error_text);
	r |= (int)curl_easy_setopt(e, CURLOPT_OPENSOCKETFUNCTION, on_socket);
	r |= (int)curl_easy_setopt(e, CURLOPT_OPENSOCKETDATA, s);
	r |= (int)curl_easy_setopt(e, CURLOPT_PREREQFUNCTION, on_request);
	r |= (int)curl_easy_setopt(e, CURLOPT_PREREQDATA, s);
	r |= (int)curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, on_header);
	r |= (int)curl_easy_setopt(e, CURLOPT_HEADERDATA, s);
	r |= (int)curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, on_body);
	r |= (int)curl_easy_setopt(e, CURLOPT_WRITEDATA, s);
	/* told of records only if verbose */
	r |= (int)curl_easy_setopt(e, CURLOPT_DEBUGFUNCTION, http_flood_check);
	r |= (int)curl_easy_setopt(e, CURLOPT_DEBUGDATA, s);
	r |= (int)curl_easy_setopt(e, CURLOPT_VERBOSE, 1L);
	return r;
}

/*
 * libcurl has one deadline for the lookup of the name and the connection, and divides the rest of
 * it among the addresses. But a lookup may take long, for example if a name server drops queries
 * for AAAA. So the first transfer only looks up the name: on_socket() ends it. The same request
 * then begins again with the addresses that were found. A reused connection needs no lookup.
 * Addresses that are older than the last failure to connect are not used: the server may have
 * moved.
 */
static int set_name(struct http_stream *s)
{
	const struct http *http = s->http;
	int64_t failed = atomic_load(&http->unreached_ms);
	long age = failed ? (long)MIN((now_ms() - failed) / 1000, ADDRESS_AGE_S) : ADDRESS_AGE_S;
	bool found = s->name == HTTP_LOOKED_UP;
	int r = 0;

	s->name = found ? HTTP_CONNECTS : HTTP_LOOKS_UP;
	r |= (int)curl_easy_setopt(s->easy, CURLOPT_DNS_CACHE_TIMEOUT, found ? -1L : age);
	r |= (int)curl_easy_setopt(s->easy, CURLOPT_CONNECTTIMEOUT_MS,
				   found ? http->connect_timeout_ms : http->name_timeout_ms);
	return r;
}

static int set_authorities(const struct http *http, CURL *e)
{
	struct curl_blob text = { http->authorities.data, http->authorities.len, CURL_BLOB_NOCOPY };
	int r = 0;

	if (http->cacert)
		r |= (int)curl_easy_setopt(e, CURLOPT_CAINFO, http->cacert);
	else if (text.len > 0)
		r |= (int)curl_easy_setopt(e, CURLOPT_CAINFO_BLOB, &text);
	/* libcurl would fail before it knows whether the server speaks TLS */
	else if (http->no_file)
		r |= (int)curl_easy_setopt(e, CURLOPT_CAINFO, NULL);
	/* the system's are in a directory, too */
	if (http->no_system)
		r |= (int)curl_easy_setopt(e, CURLOPT_CAPATH, NULL);
	return r;
}

static int set_connection(struct http_stream *s, const char *proxy)
{
	struct http *http = s->http;
	CURL *e = s->easy;
	int r = 0;

	r |= (int)curl_easy_setopt(e, CURLOPT_URL, s->target.url);
	r |= (int)curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
	r |= (int)curl_easy_setopt(e, CURLOPT_FOLLOWLOCATION, 0L);
	r |= (int)curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
	/* Without it, ending a transfer blocks this thread until its resolver is done. */
	r |= (int)curl_easy_setopt(e, CURLOPT_QUICK_EXIT, 1L);
	r |= set_name(s);
	r |= (int)curl_easy_setopt(e, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_2TLS);
	r |= (int)curl_easy_setopt(e, CURLOPT_TCP_KEEPALIVE, 1L);
	r |= (int)curl_easy_setopt(e, CURLOPT_FRESH_CONNECT, (long)s->new_connection);
	r |= (int)curl_easy_setopt(e, CURLOPT_SSL_VERIFYPEER, 1L);
	r |= (int)curl_easy_setopt(e, CURLOPT_SSL_VERIFYHOST, 2L);
	r |= set_authorities(http, e);
	/* Set explicitly, so that libcurl and http_proxy_for() cannot disagree. */
	r |= (int)curl_easy_setopt(e, CURLOPT_PROXY, proxy ? proxy : "");
	r |= (int)curl_easy_setopt(e, CURLOPT_NOPROXY, "");
	r |= (int)curl_easy_setopt(e, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
	r |= (int)curl_easy_setopt(e, CURLOPT_HEADEROPT, (long)CURLHEADER_SEPARATE);
	return r;
}

static int set_request(struct http_stream *s)
{
	CURL *e = s->easy;
	int r = 0;

	for (struct curl_slist *l = s->asks ? NULL : s->lines; r == 0 && l; l = l->next)
		r = http_add_line(&s->sent, l->data);
	if (s->head_only && !s->asks)
		r |= (int)curl_easy_setopt(e, CURLOPT_NOBODY, 1L);
	if (s->sends && !s->asks)
		r |= http_upload_set(s);
	if (*s->range && !s->asks)
		r |= (int)curl_easy_setopt(e, CURLOPT_RANGE, s->range);
	r |= (int)curl_easy_setopt(e, CURLOPT_USERAGENT, "cartonfs");
	r |= (int)curl_easy_setopt(e, CURLOPT_ACCEPT_ENCODING, s->identity ? "identity" : "");
	if (s->raw && !s->asks)
		r |= (int)curl_easy_setopt(e, CURLOPT_HTTP_CONTENT_DECODING, 0L);
	/* The decoded bytes of one read must fit the buffer that libcurl has while paused. */
	r |= (int)curl_easy_setopt(e, CURLOPT_BUFFERSIZE, (long)s->read_size);
	if (s->sent)
		r |= (int)curl_easy_setopt(e, CURLOPT_HTTPHEADER, s->sent);
	return r;
}

int http_hop_begin(struct http_stream *s, const char **ret_why)
{
	bool direct = s->untold && http_host_class(s->target.host) == HTTP_ADDRESS_LOOPBACK;
	const char *proxy = direct ? NULL : http_proxy_for(&s->http->proxies, &s->target);
	int r;

	*ret_why = "out of memory";
	http_stream_plan(s);
	s->headers_sent = 0;
	s->again = false;
	s->seen[s->n_seen] = strdup(s->target.url);
	if (!s->seen[s->n_seen])
		return -ENOMEM;
	s->n_seen++;
	s->proxied = proxy;
	s->connected = s->held = s->header_done = s->redirected = s->refused = s->keeps = false;
	s->token_wanted = s->recode = false;
	s->login_sent = 0;
	s->discarded = 0;
	s->n_samples = 0;
	s->fault = 0;
	http_header_finish(&s->response_header);
	http_header_init(&s->response_header);
	if (proxy && !check_address(s, http_host_class(s->target.host))) {
		*ret_why = NULL;
		return -EACCES;
	}
	s->easy = curl_easy_init();
	if (!s->easy)
		return -ENOMEM;
	r = http_secrets_set(s);
	if (r < 0 || set_callbacks(s) || set_connection(s, proxy) || set_request(s))
		return -ENOMEM;
	return curl_multi_add_handle(s->thread->multi, s->easy) ? -ENOMEM : 0;
}

void http_hop_end(struct http_stream *s)
{
	if (s->easy) {
		curl_multi_remove_handle(s->thread->multi, s->easy);
		curl_easy_cleanup(s->easy);
		s->easy = NULL;
	}
	curl_slist_free_all(s->sent);
	s->sent = NULL;
}

/*
 * Does the error mean that the server speaks no TLS? OpenSSL says so of an answer that is no record
 * of TLS, such as an error in HTML. *ret_why then says what helps.
 */
static bool no_tls(struct http_stream *s, CURLcode code, const char **ret_why)
{
	struct http_url_parts p;
	long connected = 0;

	if (code != CURLE_SSL_CONNECT_ERROR || !strstr(*ret_why, "wrong version number"))
		return false;
	/* it may be the proxy that has no TLS */
	curl_easy_getinfo(s->easy, CURLINFO_HTTP_CONNECTCODE, &connected);
	if (s->proxied && connected != 200)
		return false;
	*ret_why = "its server does not speak https: is the URL one of http://?";
	/* the URL of a registry, which is made of an oci:// URL */
	if (http_url_split(s->target.url, &p) && strncmp(s->target.url + p.path, "/v2/", 4) == 0) {
		snprintf(
			s->error_text, sizeof(s->error_text),
			"its server does not speak https; plain_http=%.*s lets a registry be asked "
			"by http",
			(int)MIN(p.path - p.host, 100), s->target.url + p.host);
		*ret_why = s->error_text;
	}
	return true;
}

/*
 * Is a certificate not yet valid because the clock is not set, for example on a machine without a
 * battery that has just started? That error passes; *ret_why then says why.
 */
static bool is_too_early(struct http_stream *s, const char **ret_why)
{
	time_t now = time(NULL);
	char day[16] = "?";
	struct tm tm;

	if (clock_is_set() || !strstr(*ret_why, "not yet valid"))
		return false;
	if (gmtime_r(&now, &tm))
		strftime(day, sizeof(day), "%Y-%m-%d", &tm);
	snprintf(s->error_text, sizeof(s->error_text),
		 "the clock of this machine says %s, which is before this program was built, so "
		 "the certificate is not yet valid; set the clock",
		 day);
	*ret_why = s->error_text;
	return true;
}

static int connect_error(struct http_stream *s, const char **ret_why)
{
	long os_error = 0;

	curl_easy_getinfo(s->easy, CURLINFO_OS_ERRNO, &os_error);
	if (os_error == EADDRNOTAVAIL || os_error == EADDRINUSE || os_error == ENOBUFS) {
		*ret_why = "this machine has no address or no local port free for it now";
		return -EHOSTUNREACH;
	}
	/* -EAGAIN means "nothing yet" to the owner; a proxy that refuses is not the server */
	return os_error > 0 && os_error != EAGAIN && !s->proxied ? -(int)os_error : -EHOSTUNREACH;
}

/* Why nobody who is trusted has signed the certificate, and what helps. */
static const char *unknown_authority(const struct http *http)
{
	if (http->no_file && !http->cacert && http->authorities.len == 0)
		return "no certificate can be checked, as this machine has no file of trusted "
		       "authorities: install ca-certificates, or name a file (option cacert)";
	return "no CA that is known here has signed the server's certificate; if you trust it, "
	       "name a file with its CA (option cacert)";
}

int http_hop_error(struct http_stream *s, CURLcode code, const char **ret_why)
{
	long connected = 0;

	if (!s->connected)
		atomic_store(&s->http->unreached_ms, now_ms());
	*ret_why = *s->error_text ? s->error_text : curl_easy_strerror(code);
	/* The text may quote a proxy URL with its password, and be cut before the @. */
	if (strchr(*ret_why, '@') || strstr(*ret_why, "proxy syntax"))
		*ret_why = curl_easy_strerror(code);
	if (no_tls(s, code, ret_why))
		return -EPROTONOSUPPORT;
	if (code == CURLE_PEER_FAILED_VERIFICATION &&
	    (strstr(*ret_why, "self-signed") || strstr(*ret_why, "issuer certificate")))
		*ret_why = unknown_authority(s->http);
	curl_easy_getinfo(s->easy, CURLINFO_HTTP_CONNECTCODE, &connected);
	if (connected == 407) {
		*ret_why = proxy_password;
		return -EACCES;
	}
	switch (code) {
	case CURLE_COULDNT_RESOLVE_HOST:
	case CURLE_COULDNT_RESOLVE_PROXY:
		return -EHOSTUNREACH;
	case CURLE_COULDNT_CONNECT:
		return connect_error(s, ret_why);
	case CURLE_OPERATION_TIMEDOUT:
		return -ETIMEDOUT;
	case CURLE_SEND_ERROR:
	case CURLE_RECV_ERROR:
	case CURLE_GOT_NOTHING:
	case CURLE_PARTIAL_FILE:
	case CURLE_HTTP2: /* such as a request that has crossed a GOAWAY */
	case CURLE_HTTP2_STREAM:
		return -ECONNRESET;
	case CURLE_PEER_FAILED_VERIFICATION:
		if (is_too_early(s, ret_why))
			return -EHOSTUNREACH;
		return -EACCES;
	case CURLE_SSL_INVALIDCERTSTATUS:
	case CURLE_SSL_ISSUER_ERROR:
	case CURLE_SSL_CACERT_BADFILE:
		return -EACCES;
	case CURLE_BAD_CONTENT_ENCODING:
	case CURLE_WRITE_ERROR: /* from a decoder: our callbacks set a fault */
		*ret_why = "the coded body is broken";
		return -EBADMSG;
#if LIBCURL_VERSION_NUM >= 0x080600
	case CURLE_TOO_LARGE:
#endif
	case CURLE_OUT_OF_MEMORY:
		/* Also returned when a header line or the paused data grows too large. */
		if (!s->held && (!s->connected || s->header_done))
			return -ENOMEM;
		*ret_why = s->held ? "the coded body expands too strongly" :
				     "the answer's headers are too large";
		return -EFBIG;
	default:
		return -EPROTO;
	}
}
