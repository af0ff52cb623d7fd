/* SPDX-License-Identifier: Apache-2.0 */
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
static void head_reset(struct http_head *head)
{
	free(head->location);
	free(head->dl_url);
	*head = (struct http_head){
		.response = { .length = -1,
			      .range_first = -1,
			      .range_last = -1,
			      .range_total = -1,
			      .retry_after_s = -1,
			      .last_modified_s = INT64_MIN },
		.date = -1,
		.retry_at = -1,
		.lines = head->lines,
		.bytes = head->bytes,
	};
}

void http_head_init(struct http_head *head)
{
	*head = (struct http_head){ 0 };
	head_reset(head);
}

void http_head_free(struct http_head *head)
{
	free(head->location);
	free(head->dl_url);
	head->location = head->dl_url = NULL;
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

static int head_length(struct http_head *head, const char *value)
{
	int64_t v;

	if (!parse_number(&value, &v) || *value)
		return -EPROTO;
	if (head->response.length >= 0 && head->response.length != v)
		return -EPROTO;
	head->response.length = v;
	return 0;
}

/* Content-Range: bytes FIRST-LAST/TOTAL, where either side may be a star; else it is absent. */
static int head_range(struct http_head *head, const char *value)
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
	if (head->response.range_first >= 0 &&
	    (head->response.range_first != first || head->response.range_last != last ||
	     head->response.range_total != total))
		return -EPROTO;
	head->response.range_first = first;
	head->response.range_last = last;
	head->response.range_total = total;
	return 0;
}

/* Counts the elements of a list of codings; names are lower-cased and cut to 15 bytes. */
static void head_codings(struct http_head *head, const char *value, bool transfer)
{
	while (*(value += strspn(value, ", \t"))) {
		size_t n = strcspn(value, ", \t;");
		char name[sizeof(head->response.coding)];

		memset(name, 0, sizeof(name));
		for (size_t i = 0; i < MIN(n, sizeof(name) - 1); i++)
			name[i] = (char)(value[i] | (value[i] >= 'A' && value[i] <= 'Z' ? 32 : 0));
		if (n == 0)
			name[0] = '?'; /* parameters of nothing: a coding that nobody knows */
		value += strcspn(value, ",");
		if (!strcmp(name, "identity") || (transfer && !strcmp(name, "chunked"))) {
			head->chunked |= transfer && *name == 'c';
			continue;
		}
		if (transfer) {
			head->transfer_coded = true;
			continue;
		}
		head->codings++;
		memcpy(head->response.coding, name, sizeof(name));
	}
}

static void head_etag(struct http_response *response, const char *value)
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

static void head_retry_after(struct http_head *head, const char *value)
{
	struct http_response *response = &head->response;
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
	head->retry_at = (int64_t)curl_getdate(value, NULL);
}

static void head_modified(struct http_response *response, const char *value)
{
	time_t when = curl_getdate(value, NULL);

	response->last_modified[0] = '\0'; /* of two lines the last one counts, text and time */
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

static int head_field(struct http_head *head, const char *name, const char *value)
{
	struct http_response *response = &head->response;

	if (!strcasecmp(name, "content-length"))
		return head_length(head, value);
	if (!strcasecmp(name, "content-range"))
		return head_range(head, value);
	if (!strcasecmp(name, "location"))
		return copy_once(&head->location, value);
	if (!strcasecmp(name, "x-carton-dl-url"))
		return copy_once(&head->dl_url, value);
	if (!strcasecmp(name, "content-encoding"))
		head_codings(head, value, false);
	else if (!strcasecmp(name, "transfer-encoding"))
		head_codings(head, value, true);
	else if (!strcasecmp(name, "accept-ranges"))
		response->accept_ranges = !strcasecmp(value, "bytes");
	else if (!strcasecmp(name, "etag"))
		head_etag(response, value);
	else if (!strcasecmp(name, "last-modified"))
		head_modified(response, value);
	else if (!strcasecmp(name, "retry-after"))
		head_retry_after(head, value);
	else if (!strcasecmp(name, "date"))
		head->date = (int64_t)curl_getdate(value, NULL);
	return 0;
}

/* "HTTP/1.1 200 OK", "HTTP/2 200" */
static int head_status(struct http_head *head, const char *line)
{
	const char *p = line + strcspn(line, " ");
	int64_t status;

	head_reset(head);
	p += strspn(p, " ");
	if (!parse_number(&p, &status) || status < 100 || status > 999 || (*p && *p != ' '))
		return -EPROTO;
	head->response.status = (int)status;
	return 0;
}

/* Checks that need all headers. */
static void head_finish(struct http_head *head)
{
	struct http_response *response = &head->response;
	int64_t now = head->date != -1 ? head->date : (int64_t)time(NULL);

	if (head->retry_at != -1)
		response->retry_after_s = (long)MIN(MAX(head->retry_at - now, 0),
						    HTTP_MAX_RETRY_AFTER);
	if (head->chunked)
		response->length = -1;
	if (response->status == 204 || response->status == 304)
		response->length = 0;
	if (response->status != 206)
		response->range_first = response->range_last = -1;
	if (response->status != 206 && response->status != 416)
		response->range_total = -1;
}

int http_head_line(struct http_head *head, const char *line, size_t n, bool *ret_end)
{
	char *text, *colon, *value;
	int r;

	head->bytes += n;
	if (++head->lines > HTTP_MAX_HEADERS || head->bytes > HTTP_MAX_HEADER_BYTES)
		return -EFBIG;
	while (n > 0 && strchr("\r\n \t", line[n - 1]))
		n--;
	if (n == 0) {
		head_finish(head);
		*ret_end = head->response.status >= 200;
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
		r = head_status(head, text);
	} else if (colon) {
		*colon = '\0';
		value = colon + 1;
		value += strspn(value, " \t");
		r = head_field(head, text, value);
	} else {
		r = -EPROTO;
	}
	free(text);
	return r;
}

const char *http_head_redirect(const struct http_head *head)
{
	int status = head->response.status;

	if (status < 400 && head->dl_url)
		return head->dl_url;
	if (status == 301 || status == 302 || status == 303 || status == 307 || status == 308)
		return head->location;
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
