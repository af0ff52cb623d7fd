/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a request says of who sends it: the user's headers, user name and password, the login of its
 * scheme.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/pace.h"
#include "http/internal.h"
#include "http/registries.h"

/* ---- the user's headers ---- */

/* NULL when the line may be sent, else what is wrong with it. */
static const char *header_fault(const char *line)
{
	static const char *const ours[] = {
		"host",
		"range",
		"accept-encoding",
		"connection",
		"te",
		"trailer",
		"upgrade",
		"expect",
		"content-length",
		"transfer-encoding",
		"if-match",
		"if-none-match",
		"if-range",
		"if-modified-since",
		"if-unmodified-since",
		"proxy-connection",
		"keep-alive",
	};
	size_t n = strspn(line, "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
				"ABCDEFGHIJKLMNOPQRSTUVWXYZ");

	if (n == 0 || line[n] != ':')
		return "not a line `Name: value`";
	for (size_t i = 0; i < ARRAY_SIZE(ours); i++) {
		if (strlen(ours[i]) == n && !strncasecmp(ours[i], line, n))
			return "this header is not the user's to set";
	}
	line += n + 1;
	line += strspn(line, " \t");
	return http_header_value_ok(line) ? NULL : "an empty value or a control character";
}

static int read_file(const char *path, struct buf *b)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), r = 0;
	char part[4096];
	ssize_t n = 0;

	if (fd < 0)
		return -errno;
	while (r == 0 && (n = read(fd, part, sizeof(part))) != 0) {
		if (n < 0 && errno != EINTR)
			r = -errno;
		else if (n > 0)
			r = buf_add(b, part, (size_t)n);
	}
	fd_close(fd);
	if (r == 0 && b->len > 0 && memchr(b->data, '\0', b->len))
		r = -EINVAL;
	return r;
}

static int add_header(char **headers, size_t *n, const char *line, size_t len)
{
	if (*n == HTTP_MAX_FILE_HEADERS)
		return -EFBIG;
	headers[*n] = strndup(line, len);
	return headers[*n] ? ((*n)++, 0) : -ENOMEM;
}

static int parse_headers(const char *path, const char *text, char **headers)
{
	size_t n = 0;
	int r = 0;

	for (unsigned no = 1; r == 0 && *text; no++) {
		size_t len = strcspn(text, "\n"), cut = len;
		const char *fault;

		if (cut > 0 && text[cut - 1] == '\r')
			cut--;
		if (cut > 0 && *text != '#') {
			r = add_header(headers, &n, text, cut);
			fault = r == 0 ? header_fault(headers[n - 1]) : NULL;
			if (fault) {
				carton_log(CARTON_LOG_ERROR, path, "header file, line %u: %s", no,
					   fault);
				r = -EINVAL;
			}
		}
		text += len + (text[len] == '\n');
	}
	return r;
}

int http_headers_load(const char *path, char ***ret)
{
	struct buf text = buf_init(HTTP_MAX_HEADER_FILE);
	char **headers = calloc(HTTP_MAX_FILE_HEADERS + 1, sizeof(*headers));
	int r = headers ? read_file(path, &text) : -ENOMEM;

	if (r < 0 && r != -ENOMEM)
		carton_log(CARTON_LOG_ERROR, path, "the header file cannot be read: %s",
			   r == -EINVAL ? "it holds a NUL" : strerror(-r));
	if (r == 0)
		r = parse_headers(path, text.data ? text.data : "", headers);
	buf_finish(&text);
	if (r < 0) {
		http_headers_free(headers);
		return r;
	}
	*ret = headers;
	return 0;
}

void http_headers_free(char **headers)
{
	for (char **h = headers; h && *h; h++) {
		explicit_bzero(*h, strlen(*h)); /* they are secrets more often than not */
		free(*h);
	}
	free(headers);
}

/* ---- the header file ---- */

/*
 * Where this process may not search the directory, another process may still open the file for it
 * (fs/process/opener.h).
 */
static int look(const char *path, struct stat *ret)
{
	int fd, r;

	if (stat(path, ret) == 0)
		return 0;
	fd = errno == EACCES ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	r = fd < 0 || fstat(fd, ret) < 0 ? -errno : 0;
	fd_close(fd);
	return r;
}

int http_secrets_load(struct http *http, const char *header_file)
{
	struct stat st = { 0 };

	http->header_file = strdup(header_file);
	if (!http->header_file)
		return -ENOMEM;
	/* before it is read: a change in between is noticed later */
	if (look(header_file, &st) == 0) {
		http->headers_changed = st.st_mtim;
		http->headers_inode = st.st_ino;
	}
	return http_headers_load(header_file, &http->headers);
}

int http_secrets_add(struct http *http, const char *header)
{
	http->headers = calloc(2, sizeof(*http->headers));
	if (http->headers)
		http->headers[0] = strdup(header);
	return http->headers && http->headers[0] ? 0 : -ENOMEM;
}

void http_secrets_finish(struct http *http)
{
	http_headers_free(http->headers);
	http_tokens_finish(http);
	free(http->header_file);
}

/*
 * Loads the header file again if it has changed. A file that cannot be used is logged, and the old
 * headers stay. Lock held.
 */
static void refresh(struct http *http, bool now)
{
	int64_t time = now_ms();
	char **headers;
	struct stat st;

	if (!http->header_file || (!now && time - http->headers_checked_ms < pace.header_file_ms))
		return;
	http->headers_checked_ms = time;
	if (look(http->header_file, &st) < 0 ||
	    (st.st_ino == http->headers_inode &&
	     memcmp(&st.st_mtim, &http->headers_changed, sizeof(st.st_mtim)) == 0))
		return;
	http->headers_changed = st.st_mtim;
	http->headers_inode = st.st_ino;
	if (http_headers_load(http->header_file, &headers) < 0)
		return;
	http_headers_free(http->headers);
	http->headers = headers;
	http->headers_version++;
}

bool http_secrets_refused(struct http_stream *s)
{
	struct http *http = s->http;
	bool once = !s->refused_once, again = false;

	s->refused_once = true;
	pthread_mutex_lock(&http->secrets);
	if (s->login && !s->left_origin)
		again = s->login->scheme->refused(s->login, s);
	if (s->headers_sent && once) {
		refresh(http, true);
		/* perhaps for another request that was refused */
		again = http->headers_version != s->headers_sent;
	}
	pthread_mutex_unlock(&http->secrets);
	return again && once;
}

/* ---- requests ---- */

/* For a request to another origin than that of the user's URL. Lock held. */
static void warn_userinfo(struct http_stream *s)
{
	/* logged once: a carton may have many URLs, each with many requests */
	if ((!s->target.user && !s->target.password) || s->http->userinfo_logged)
		return;
	http_log(CARTON_LOG_NOTICE, s->target.url,
		 "the user name and password in this URL are not sent");
	s->http->userinfo_logged = true;
}

/* Lock held. */
static int set_headers(struct http_stream *s)
{
	int r = 0;

	s->headers_sent = 0;
	/* what the user's header file has is for this server, whatever the way is */
	if (s->http->headers && !s->http->header_file && http_is_overheard(s)) {
		if (!s->http->overheard_logged)
			http_log(CARTON_LOG_NOTICE, s->target.url,
				 "your token is not sent: the proxy could read it; set no_proxy");
		s->http->overheard_logged = true;
		return 0;
	}
	refresh(s->http, false);
	s->headers_sent = s->http->headers ? s->http->headers_version : 0;
	for (char **h = s->http->headers; r == 0 && h && *h; h++)
		r = http_add_line(&s->sent, *h);
	return r;
}

static int set_userinfo(struct http_stream *s)
{
	const struct http_target *source = &s->http->source;
	int r = (int)curl_easy_setopt(s->easy, CURLOPT_HTTPAUTH, CURLAUTH_BASIC);

	if (!source->user && !source->password)
		r |= (int)curl_easy_setopt(s->easy, CURLOPT_NETRC, (long)CURL_NETRC_OPTIONAL);
	else if (source->user)
		r |= (int)curl_easy_setopt(s->easy, CURLOPT_USERNAME, source->user);
	if (source->password)
		r |= (int)curl_easy_setopt(s->easy, CURLOPT_PASSWORD, source->password);
	return r ? -ENOMEM : 0;
}

/*
 * Is the request to the origin of the user's URL? If that is a registry without https, the request
 * may be by http to the same host, provided that passwords may be sent there by http.
 */
static bool is_at_source(const struct http_stream *s)
{
	const struct http_target *t = &s->target, *source = &s->http->source;

	if (http_same_origin(t, source))
		return true;
	return s->http->source_is_registry && source->https && !t->https &&
	       strcasecmp(t->host, source->host) == 0 &&
	       t->port == (source->port == 443 ? 80 : source->port) &&
	       (http_host_class(t->host) == HTTP_ADDRESS_LOOPBACK ||
		registries_named(s->http->registries, t->host, t->port));
}

/*
 * Credentials go to the origin of the user's URL only, tokens to that for which they are, neither
 * after a redirect has left the first one.
 */
int http_secrets_set(struct http_stream *s)
{
	struct http *http = s->http;
	int r = 0;

	pthread_mutex_lock(&http->secrets);
	if (s->asks) {
		/* to a token server: none of them, but the login for which it gives the token */
		r = http_token_sign(s);
	} else if (s->login) {
		/* a redirect within the store is signed anew, another not at all */
		r = s->left_origin ? 0 : s->login->scheme->sign(s->login, s);
	} else if (s->left_origin || !is_at_source(s)) {
		warn_userinfo(s);
	} else {
		r = set_headers(s);
		if (r == 0)
			r = set_userinfo(s);
	}
	if (r == 0 && !s->asks && !s->login && !s->left_origin && !s->headers_sent)
		r = http_token_set(s);
	pthread_mutex_unlock(&http->secrets);
	return r;
}
