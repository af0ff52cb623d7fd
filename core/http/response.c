/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <time.h>

#include "http/internal.h"

bool http_header_value_ok(const char *value)
{
	if (!*value)
		return false;
	for (; *value; value++) {
		if (((unsigned char)*value < 0x20 && *value != '\t') || *value == 0x7f)
			return false;
	}
	return true;
}

/* Forgets the fields of one block of headers, as those of a 1xx. */
static void header_reset(struct http_header *header)
{
	free(header->location);
	free(header->dl_url);
	free(header->challenge);
	*header = (struct http_header){
		.response = { .length = -1,
			      .range_first = -1,
			      .range_last = -1,
			      .range_total = -1,
			      .upload_last = -1,
			      .least_part = -1,
			      .retry_after_s = -1,
			      .last_modified_s = INT64_MIN },
		.date = -1,
		.retry_at = -1,
		.limit_s = -1,
		.lines = header->lines,
		.bytes = header->bytes,
	};
}

void http_header_init(struct http_header *header)
{
	*header = (struct http_header){ 0 };
	header_reset(header);
}

void http_header_finish(struct http_header *header)
{
	free(header->location);
	free(header->dl_url);
	free(header->challenge);
	header->location = header->dl_url = header->challenge = NULL;
}

/* Digits and nothing else before `end`; moves `p` behind them. */
static bool parse_number(const char **p, int64_t *ret)
{
	int64_t v = 0;
	const char *s = *p;

	if (*s < '0' || *s > '9')
		return false;
	for (; *s >= '0' && *s <= '9'; s++) {
		if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, *s - '0', &v))
			return false;
	}
	*p = s;
	*ret = v;
	return true;
}

static int header_length(struct http_header *header, const char *value)
{
	int64_t v;

	if (!parse_number(&value, &v) || *value)
		return -EPROTO;
	if (header->response.length >= 0 && header->response.length != v)
		return -EPROTO;
	header->response.length = v;
	return 0;
}

/* Content-Range: bytes FIRST-LAST/TOTAL, where either side may be a star; else it is absent. */
static int header_range(struct http_header *header, const char *value)
{
	int64_t first = -1, last = -1, total = -1;
	bool star;

	if (strncasecmp(value, "bytes ", 6) != 0)
		return 0;
	value += 6;
	star = *value == '*';
	if (star)
		value++;
	else if (!parse_number(&value, &first) || *value++ != '-' || !parse_number(&value, &last) ||
		 last < first)
		return 0;
	if (*value++ != '/')
		return 0;
	if (!strcmp(value, "*"))
		value++;
	else if (!parse_number(&value, &total))
		return 0;
	if (*value || last == INT64_MAX || (total >= 0 && last >= total))
		return 0;
	if (header->response.range_first >= 0 &&
	    (header->response.range_first != first || header->response.range_last != last ||
	     header->response.range_total != total))
		return -EPROTO;
	header->response.range_first = first;
	header->response.range_last = last;
	header->response.range_total = total;
	return 0;
}

/* Range of an answer: 0-LAST */
static void header_upload(struct http_response *response, const char *value)
{
	int64_t last;

	if (strncmp(value, "0-", 2) != 0)
		return;
	value += 2;
	if (parse_number(&value, &last) && !*value && last < INT64_MAX)
		response->upload_last = last;
}

/*
 * Is it a content coding that anything decodes? Stores also send words that are none, with uncoded
 * bytes: aws-chunked.
 */
static bool is_coding(const char *name)
{
	static const char *const names[] = { "gzip", "x-gzip", "deflate", "br", "zstd" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (!strcmp(names[i], name))
			return true;
	return false;
}

/* OCI-Chunk-Min-Length: digits; else it is absent. */
static void header_least_part(struct http_response *response, const char *value)
{
	int64_t n;

	if (parse_number(&value, &n) && !*value)
		response->least_part = n;
}

/* Counts the elements of a list of codings; names are lower-cased and cut to 15 bytes. */
static void header_codings(struct http_header *header, const char *value, bool transfer)
{
	while (*(value += strspn(value, ", \t"))) {
		size_t n = strcspn(value, ", \t;");
		char name[sizeof(header->response.coding)];

		memset(name, 0, sizeof(name));
		for (size_t i = 0; i < MIN(n, sizeof(name) - 1); i++)
			name[i] = (char)(value[i] | (value[i] >= 'A' && value[i] <= 'Z' ? 32 : 0));
		value += strcspn(value, ",");
		if (!strcmp(name, "identity") || (transfer && !strcmp(name, "chunked"))) {
			header->chunked |= transfer && *name == 'c';
			continue;
		}
		if (transfer) {
			header->transfer_coded = true;
			continue;
		}
		if (!is_coding(name)) {
			header->odd_coding = true;
			continue;
		}
		header->codings++;
		memcpy(header->response.coding, name, sizeof(name));
	}
}

static void header_etag(struct http_response *response, const char *value)
{
	const char *open = value + (strncmp(value, "W/", 2) ? 0 : 2);
	size_t n = strlen(value);

	/* an ETag that cannot be sent back is ignored */
	if (n >= sizeof(response->etag) || open[0] != '"' || strlen(open) < 2 ||
	    strchr(open + 1, '"') != value + n - 1 || !http_header_value_ok(value))
		return;
	memcpy(response->etag, value, n + 1);
	response->strong_etag = open == value;
}

static void header_retry_after(struct http_header *header, const char *value)
{
	struct http_response *response = &header->response;
	const char *p = value;
	int64_t v;

	if (parse_number(&p, &v) && !*p) {
		response->retry_after_s = (long)MIN(v, HTTP_MAX_RETRY_AFTER);
		return;
	}
	if (value[strspn(value, "0123456789")] == '\0') { /* seconds beyond any number */
		response->retry_after_s = HTTP_MAX_RETRY_AFTER;
		return;
	}
	header->retry_at = (int64_t)curl_getdate(value, NULL);
}

/* RateLimit: "name";r=REMAINING;t=SECONDS, ... */
static void header_limit(struct http_header *header, const char *value)
{
	while (*value) {
		size_t end = strcspn(value, ",");
		int64_t left = 0, seconds = -1;

		for (size_t i = strcspn(value, ";,"); i < end; i += strcspn(value + i, ";,")) {
			const char *p = value + i + 1 + strspn(value + i + 1, " \t");

			i = (size_t)(p - value);
			if (!strncmp(p, "r=", 2) || !strncmp(p, "t=", 2)) {
				p += 2;
				if (!parse_number(&p, value[i] == 'r' ? &left : &seconds))
					return;
			}
		}
		if (left == 0 && seconds > header->limit_s)
			header->limit_s = (long)MIN(seconds, HTTP_MAX_RETRY_AFTER);
		value += end + (value[end] == ',');
	}
}

static void header_modified(struct http_response *response, const char *value)
{
	time_t when = curl_getdate(value, NULL);

	response->last_modified[0] = '\0'; /* of two lines the last one counts */
	if (strlen(value) < sizeof(response->last_modified) && http_header_value_ok(value))
		strcpy(response->last_modified, value);
	response->last_modified_s = when == -1 ? INT64_MIN : (int64_t)when;
}

static int copy_once(char **to, const char *value)
{
	/* two different targets: neither can be trusted */
	if (*to)
		return strcmp(*to, value) ? -EPROTO : 0;
	if (!*value)
		return 0;
	*to = strdup(value);
	return *to ? 0 : -ENOMEM;
}

/* Several lines mean the same as one list. */
static int join(char **to, const char *value)
{
	char *both;

	if (asprintf(&both, "%s%s%s", *to ? *to : "", *to ? ", " : "", value) < 0)
		return -ENOMEM;
	free(*to);
	*to = both;
	return 0;
}

/* Is `next` one of the words? */
static bool has_next(const char *words, size_t n)
{
	for (size_t i = 0, end; i < n; i = end + 1) {
		for (end = i; end < n && words[end] != ' ' && words[end] != '\t'; end++)
			;
		if (end - i == 4 && strncasecmp(words + i, "next", 4) == 0)
			return true;
	}
	return false;
}

/* A piece of text within a header. */
struct text {
	const char *at;
	size_t n;
};

/* Reads up to one of these characters. */
static const char *link_word(const char *value, const char *end, struct text *ret)
{
	*ret = (struct text){ value, strcspn(value, end) };
	return value + ret->n;
}

/* Reads behind the first quote up to the last one, which may be missing, and over that. */
static const char *link_quoted(const char *value, struct text *ret)
{
	size_t n = 0;

	while (value[n] && value[n] != '"')
		n += value[n] == '\\' && value[n + 1] ? 2 : 1;
	*ret = (struct text){ value, n };
	return value + n + (value[n] == '"');
}

/* Reads a parameter of a link: NAME=WORD, NAME="TEXT", or NAME alone, whose text is NULL. */
static const char *link_parameter(const char *value, struct text *ret_name, struct text *ret_text)
{
	*ret_text = (struct text){ NULL, 0 };
	value = link_word(value, "=;, \t", ret_name);
	value += strspn(value, " \t");
	if (*value != '=')
		return value;
	value += 1 + strspn(value + 1, " \t");
	return *value == '"' ? link_quoted(value + 1, ret_text) :
			       link_word(value, ";, \t", ret_text);
}

/*
 * Reads the parameters of a link up to the comma behind them. *ret_next: the first rel that has a
 * value has `next` among its relation types.
 */
static const char *link_parameters(const char *value, bool *ret_next)
{
	bool known = false;

	*ret_next = false;
	while (*value && *value != ',') {
		struct text name, text;

		value += strspn(value, "; \t");
		value = link_parameter(value, &name, &text);
		if (known || !text.at || name.n != 3 || strncasecmp(name.at, "rel", 3) != 0)
			continue;
		known = true;
		*ret_next = has_next(text.at, text.n);
	}
	return value;
}

/* RFC 8288: <URL>; rel="next", perhaps as one of several. One that is too long is left out. */
static void header_link(struct http_response *response, const char *value)
{
	const char *end;
	bool next;

	for (; *value == '<'; value += strspn(value, ", \t")) {
		const char *url = value + 1;

		end = strchr(url, '>');
		if (!end)
			return;
		value = link_parameters(end + 1, &next);
		if (!next || (size_t)(end - url) >= sizeof(response->next))
			continue;
		memcpy(response->next, url, (size_t)(end - url));
		response->next[end - url] = '\0';
	}
}

/* X-Error-Code: a word. Another text is left out. */
static void header_code(struct http_response *response, const char *value)
{
	size_t n = strlen(value);

	if (n < 32 && strspn(value, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") == n)
		memcpy(response->reason, value, n + 1);
}

bool http_region_ok(const char *text)
{
	size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-");

	return n > 0 && n <= 32 && !text[n];
}

static int header_field(struct http_header *header, const char *name, const char *value)
{
	struct http_response *response = &header->response;

	if (!strcasecmp(name, "content-length"))
		return header_length(header, value);
	if (!strcasecmp(name, "content-range"))
		return header_range(header, value);
	if (!strcasecmp(name, "location"))
		return copy_once(&header->location, value);
	if (!strcasecmp(name, "x-carton-dl-url"))
		return copy_once(&header->dl_url, value);
	if (!strcasecmp(name, "www-authenticate"))
		return join(&header->challenge, value);
	if (!strcasecmp(name, "content-encoding"))
		header_codings(header, value, false);
	else if (!strcasecmp(name, "transfer-encoding"))
		header_codings(header, value, true);
	else if (!strcasecmp(name, "accept-ranges"))
		response->accept_ranges = !strcasecmp(value, "bytes");
	else if (!strcasecmp(name, "etag"))
		header_etag(response, value);
	else if (!strcasecmp(name, "last-modified"))
		header_modified(response, value);
	else if (!strcasecmp(name, "link"))
		header_link(response, value);
	else if (!strcasecmp(name, "x-amz-bucket-region") && http_region_ok(value))
		strcpy(header->region, value);
	else if (!strcasecmp(name, "x-error-code"))
		header_code(response, value);
	else if (!strcasecmp(name, "range"))
		header_upload(response, value);
	else if (!strcasecmp(name, "oci-chunk-min-length"))
		header_least_part(response, value);
	else if (!strcasecmp(name, "docker-content-digest"))
		snprintf(response->digest, sizeof(response->digest), "%s", value);
	else if (!strcasecmp(name, "retry-after"))
		header_retry_after(header, value);
	else if (!strcasecmp(name, "ratelimit"))
		header_limit(header, value);
	else if (!strcasecmp(name, "date"))
		header->date = (int64_t)curl_getdate(value, NULL);
	return 0;
}

/* "HTTP/1.1 200 OK", "HTTP/2 200" */
static int header_status(struct http_header *header, const char *line)
{
	const char *p = line + strcspn(line, " ");
	int64_t status;

	header_reset(header);
	p += strspn(p, " ");
	if (!parse_number(&p, &status) || status < 100 || status > 999 || (*p && *p != ' '))
		return -EPROTO;
	header->response.status = (int)status;
	return 0;
}

/* Checks that need all headers. */
static void header_complete(struct http_header *header)
{
	struct http_response *response = &header->response;
	int64_t now = header->date != -1 ? header->date : (int64_t)time(NULL);

	if (header->retry_at != -1)
		response->retry_after_s = (long)MIN(MAX(header->retry_at - now, 0),
						    HTTP_MAX_RETRY_AFTER);
	if (response->retry_after_s < 0 && http_status_errno(response->status) == -EBUSY)
		response->retry_after_s = header->limit_s;
	if (header->chunked)
		response->length = -1;
	if (response->status == 204 || response->status == 304)
		response->length = 0;
	if (response->status != 206)
		response->range_first = response->range_last = -1;
	if (response->status != 206 && response->status != 416)
		response->range_total = -1;
}

int http_header_line(struct http_header *header, const char *line, size_t n, bool *ret_end)
{
	char *text, *colon, *value;
	int r;

	header->bytes += n;
	if (++header->lines > HTTP_MAX_HEADERS || header->bytes > HTTP_MAX_HEADER_BYTES)
		return -EFBIG;
	while (n > 0 && strchr("\r\n \t", line[n - 1]))
		n--;
	if (n == 0) {
		header_complete(header);
		*ret_end = header->response.status >= 200;
		return 0;
	}
	/* two parsers may read a folded line, or one with a CR in it, differently */
	if (memchr(line, '\0', n) || memchr(line, '\r', n) || *line == ' ' || *line == '\t')
		return -EPROTO;
	text = strndup(line, n);
	if (!text)
		return -ENOMEM;
	colon = strchr(text, ':');
	if (!strncasecmp(text, "HTTP/", 5)) {
		r = header_status(header, text);
	} else if (colon) {
		*colon = '\0';
		value = colon + 1;
		value += strspn(value, " \t");
		r = header_field(header, text, value);
	} else {
		r = -EPROTO;
	}
	free(text);
	return r;
}

const char *http_header_redirect(const struct http_header *header)
{
	int status = header->response.status;

	if (status < 400 && header->dl_url)
		return header->dl_url;
	if (status == 301 || status == 302 || status == 303 || status == 307 || status == 308)
		return header->location;
	return NULL;
}

int http_status_errno(int status)
{
	if (status >= 200 && status < 300)
		return 0;
	switch (status) {
	case 401:
	case 403:
	case 407:
		return -EACCES;
	case 404:
	case 410:
		return -ENOENT;
	case 412:
		return -ESTALE;
	case 416:
		return -ERANGE;
	case 429:
	case 503:
		return -EBUSY;
	case 408:
	case 425:
		return -EAGAIN;
	default:
		return status >= 500 && status < 600 ? -EAGAIN : -EPROTO;
	}
}
