/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parses the headers of one response, line by line: hostile text in, checked numbers out. Private
 * to this folder and its tests. Used by one thread at a time.
 */
#ifndef CARTON_HTTP_RESPONSE_H
#define CARTON_HTTP_RESPONSE_H

#include "http/http.h"

struct http_header {
	struct http_response response; /* length is Content-Length as sent */
	char *location;		       /* owned; NULL: none */
	char *dl_url;		       /* x-carton-dl-url, owned; NULL: none */
	char region[33];	       /* X-Amz-Bucket-Region, if it is valid; else "" */
	char *challenge;     /* WWW-Authenticate, its lines joined by commas, owned; NULL: none */
	unsigned codings;    /* content codings but identity, over all header lines, */
	bool odd_coding;     /* and one of the words there is no coding */
	bool transfer_coded; /* a Transfer-Encoding other than chunked */
	bool chunked;
	int64_t date, retry_at; /* by the server's clock, in seconds since 1970; -1: not said */
	long limit_s;		/* until a RateLimit that is used up begins anew; -1: not said */
	unsigned lines;		/* of all blocks so far */
	size_t bytes;
};

void http_header_init(struct http_header *header);
void http_header_finish(struct http_header *header);

/*
 * Takes one line as it came, with its CRLF. `ret_end` becomes true at the empty line that ends the
 * headers of a final (not 1xx) response. Returns 0, -EFBIG over a limit of limits.h, -EPROTO for a
 * line that two parsers may read differently, -ENOMEM.
 */
int http_header_line(struct http_header *header, const char *line, size_t n, bool *ret_end);

/* The URL that this response redirects to, owned by `header`; NULL: no redirect. */
const char *http_header_redirect(const struct http_header *header);

#endif
