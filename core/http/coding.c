/* SPDX-License-Identifier: Apache-2.0 */
/* Content codings: what libcurl can decode, and when it should. */
#include "http/internal.h"

bool http_coding_known(const char *coding)
{
	int features = curl_version_info(CURLVERSION_NOW)->features;

	if (!strcmp(coding, "gzip") || !strcmp(coding, "x-gzip") || !strcmp(coding, "deflate"))
		return features & CURL_VERSION_LIBZ;
	if (!strcmp(coding, "br"))
		return features & CURL_VERSION_BROTLI;
	if (!strcmp(coding, "zstd"))
		return features & CURL_VERSION_ZSTD;
	return false;
}

bool http_recode(struct http_stream *s)
{
	const struct http_header *header = &s->response_header;
	int status = header->response.status;
	bool plain = s->plain && header->response.length == (int64_t)s->plain;
	bool raw = header->odd_coding || !header->codings || status == 206 || plain;

	if (s->head_only || s->sends || s->undecoded || s->recoded || status < 200 ||
	    status > 299 || raw == s->raw || (!header->odd_coding && !header->codings))
		return false;
	s->raw = raw;
	return s->recoded = true;
}
