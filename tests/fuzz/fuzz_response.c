/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as the headers of responses, line by line: numbers are in their order and text is such
 * as may be sent or followed; what was understood, written again in one way, is understood to be
 * the same.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "http/internal.h"

#include "fuzz.h"

#define ROOM (2 * HTTP_MAX_HEADER_BYTES)

/*
 * The lines up to the end of the headers of a final response. 0; 1: that has not come; what the
 * parser says.
 */
static int parse(const char *data, size_t n, struct http_header *ret)
{
	bool end = false;
	int r = 0;

	http_header_init(ret);
	while (r == 0 && n > 0 && !end) {
		const char *nl = memchr(data, '\n', n);
		size_t len = nl ? (size_t)(nl - data) + 1 : n;

		r = http_header_line(ret, data, len, &end);
		CHECK(r == 0 || r == -EFBIG || r == -EPROTO);
		/* one more than is allowed is refused */
		CHECK(r < 0 ||
		      (ret->lines <= HTTP_MAX_HEADERS && ret->bytes <= HTTP_MAX_HEADER_BYTES));
		data += len;
		n -= len;
	}
	return r < 0 || end ? r : 1;
}

static void check_text(const char *text, size_t room)
{
	CHECK(memchr(text, '\0', room));
	CHECK(!*text || http_header_value_ok(text));
}

static void check_numbers(const struct http_response *a)
{
	CHECK(a->status >= 200 && a->status <= 999);
	CHECK(a->length >= -1 && a->range_total >= -1);
	CHECK(a->retry_after_s >= -1 && a->retry_after_s <= HTTP_MAX_RETRY_AFTER);
	/* a part has its first and last byte, and is within the total */
	CHECK((a->range_first < 0) == (a->range_last < 0));
	CHECK(a->range_first >= -1 && a->range_first <= a->range_last);
	CHECK(a->range_last < INT64_MAX && (a->range_total < 0 || a->range_last < a->range_total));
	CHECK(http_status_errno(a->status) <= 0);
	CHECK((http_status_errno(a->status) == 0) == (a->status < 300));
}

static void check_etag(const struct http_response *a)
{
	const char *open = strchr(a->etag, '"');
	size_t n = strlen(a->etag);

	check_text(a->etag, sizeof(a->etag));
	CHECK(*a->etag || !a->strong_etag);
	if (*a->etag)
		CHECK(open && a->etag[n - 1] == '"' && open < a->etag + n - 1 &&
		      strchr(open + 1, '"') == a->etag + n - 1 &&
		      open - a->etag == (a->strong_etag ? 0 : 2));
}

static void check_redirect(const struct http_header *header)
{
	const char *to = http_header_redirect(header);

	if (!to)
		return;
	CHECK(*to && to[strlen(to) - 1] != ' ' && to[strlen(to) - 1] != '\r' && !strchr(to, '\n'));
	CHECK(header->response.status < 400);
}

static void check_header(const struct http_header *header)
{
	const struct http_response *a = &header->response;

	check_numbers(a);
	check_etag(a);
	check_text(a->last_modified, sizeof(a->last_modified));
	CHECK(memchr(a->coding, '\0', sizeof(a->coding)));
	CHECK((header->codings > 0) == (a->coding[0] != '\0'));
	for (const char *p = a->coding; *p; p++)
		CHECK(*p < 'A' || *p > 'Z');
	check_redirect(header);
}

/* Writes what was understood, in other letters and without a date, and reads it again. */
static void check_again(const struct http_header *header)
{
	static char text[ROOM];
	const struct http_response *a = &header->response;
	struct http_header again;
	size_t n = (size_t)snprintf(text, ROOM, "HTTP/1.1 %03d x\r\n", a->status);

	if (a->length >= 0)
		n += (size_t)snprintf(text + n, ROOM - n, "CONTENT-length:%" PRId64 "\r\n",
				      a->length);
	if (a->range_first >= 0 && a->range_total >= 0)
		n += (size_t)snprintf(text + n, ROOM - n,
				      "content-RANGE: \tBYTES %" PRId64 "-%" PRId64 "/%" PRId64
				      "\n",
				      a->range_first, a->range_last, a->range_total);
	else if (a->range_first >= 0)
		n += (size_t)snprintf(text + n, ROOM - n,
				      "content-RANGE: bytes %" PRId64 "-%" PRId64 "/*\r\n",
				      a->range_first, a->range_last);
	else if (a->range_total >= 0)
		n += (size_t)snprintf(text + n, ROOM - n, "Content-Range: bytes */%" PRId64 "\n",
				      a->range_total);
	if (*a->etag)
		n += (size_t)snprintf(text + n, ROOM - n, "Etag: %s  \r\n", a->etag);
	if (*a->last_modified)
		n += (size_t)snprintf(text + n, ROOM - n, "last-modified: %s\n", a->last_modified);
	if (*a->coding)
		n += (size_t)snprintf(text + n, ROOM - n, "Content-encoding: %s\n", a->coding);
	if (a->retry_after_s >= 0)
		n += (size_t)snprintf(text + n, ROOM - n, "Retry-After: %ld\n", a->retry_after_s);
	if (header->location)
		n += (size_t)snprintf(text + n, ROOM - n, "Location: %s\r\n", header->location);
	if (header->dl_url)
		n += (size_t)snprintf(text + n, ROOM - n, "X-Carton-DL-URL: %s\n", header->dl_url);
	n += (size_t)snprintf(text + n, ROOM - n, "\r\n");
	CHECK(n < ROOM);
	CHECK(parse(text, n, &again) == 0);
	CHECK(again.response.status == a->status && again.response.length == a->length);
	CHECK(again.response.range_first == a->range_first);
	CHECK(again.response.range_last == a->range_last);
	CHECK(again.response.range_total == a->range_total);
	CHECK(again.response.retry_after_s == a->retry_after_s);
	CHECK(strcmp(again.response.etag, a->etag) == 0);
	CHECK(again.response.strong_etag == a->strong_etag);
	CHECK(strcmp(again.response.last_modified, a->last_modified) == 0);
	CHECK(!*a->last_modified || again.response.last_modified_s == a->last_modified_s);
	CHECK(strcmp(again.response.coding, a->coding) == 0);
	CHECK(!again.location == !header->location && !again.dl_url == !header->dl_url);
	CHECK(!header->location || strcmp(again.location, header->location) == 0);
	CHECK(!header->dl_url || strcmp(again.dl_url, header->dl_url) == 0);
	http_header_finish(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct http_header header;

	CHECK(http_load_curl() == 0);
	if (parse((const char *)data, n, &header) == 0) {
		check_header(&header);
		check_again(&header);
	}
	http_header_finish(&header);
	return 0;
}
