/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One mirror's bytes as one stream: what an earlier fetch left, an answer or several connections', a
 * coding that libcurl cannot read; and what they may take of the disk.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "fetch/internal.h"
#include "http/gzip.h"
#include "base/util.h"

/* An object larger than this is worth several connections, where the mirror has ranges. */
#define PARALLEL (8 * MIB)

/* The body of one answer, or of several. */
struct body {
	struct stream stream;
	struct fetch *f;
	struct http_reader *http; /* a whole answer, or the rest of one; or */
	struct stream *ranges;	  /* several connections' */
	struct remote remote;	  /* what `ranges` reads */
};

static ssize_t body_read(struct stream *s, void *ret_buf, size_t n)
{
	struct body *b = container_of(s, struct body, stream);
	ssize_t got = b->ranges ? stream_read(b->ranges, ret_buf, n) :
				  http_read(b->http, ret_buf, n);

	if (got > 0) {
		b->f->deadline_ms = remote_deadline(b->f->remote, b->f->deadline_ms, (size_t)got);
		if (b->http)
			http_set_deadline(b->http, b->f->deadline_ms);
	}
	return got;
}

static void body_close(struct stream *s)
{
	struct body *b = container_of(s, struct body, stream);

	stream_close(b->ranges);
	http_reader_close(b->http);
	free(b->remote.url);
	free(b);
}

static const struct stream_ops body_ops = { body_read, body_close };

/* What names one version of the bytes at a URL, for who resumes: "" when nothing does. */
static void make_validator(const struct mirror *m, const struct http_response *answer, char *ret,
			   size_t n)
{
	ret[0] = '\0';
	if (answer->strong_etag && !answer->coding[0] &&
	    (size_t)snprintf(ret, n, "%s %s", answer->etag, m->url) >= n)
		ret[0] = '\0';
}

/* The ETag of a partial that came from this mirror; false: there is none to go on from. */
static bool find_partial(struct fetch *f, const struct mirror *m, uint64_t *ret_len, char *ret_etag,
			 size_t n)
{
	char *validator, *space;
	bool found = false;

	if (m->whole)
		return false;
	validator = malloc(MAX_CACHE_VALIDATOR + 1);
	if (validator && dest_partial(f->dest, ret_len, validator, MAX_CACHE_VALIDATOR + 1) == 0 &&
	    *ret_len > 0 && (space = strrchr(validator, ' ')) && strcmp(space + 1, m->url) == 0 &&
	    (size_t)(space - validator) < n) {
		*space = '\0';
		strcpy(ret_etag, validator);
		found = true;
	}
	free(validator);
	return found;
}

/* Begins anew: the file holds nothing of use. */
static int start_over(struct fetch *f, const struct mirror *m, const struct http_response *answer)
{
	char *validator;
	int r;

	validator = malloc(MAX_CACHE_VALIDATOR + 1);
	if (!validator)
		return -ENOMEM;
	make_validator(m, answer, validator, MAX_CACHE_VALIDATOR + 1);
	r = dest_restart(f->dest, validator);
	free(validator);
	if (r == 0 && answer->length > 0 && !answer->coding[0])
		r = dest_reserve(f->dest, (uint64_t)answer->length, false);
	return r;
}

/* What is left of an answer from `from` on is large, and the mirror has ranges: several connections. */
static int split(struct fetch *f, const struct mirror *m, const struct http_response *answer,
		 uint64_t from, struct body *b)
{
	if (m->whole || f->remote->connections < 2 ||
	    (answer->status != 206 && !answer->accept_ranges) ||
	    !remote_identify(answer, &b->remote) || !b->remote.etag[0] || b->remote.size < from ||
	    b->remote.size - from <= PARALLEL)
		return 0;
	b->remote.options = f->remote;
	b->remote.trust = HTTP_LINKS;
	b->remote.url = strdup(m->url);
	if (!b->remote.url)
		return -ENOMEM;
	http_reader_close(b->http);
	b->http = NULL;
	return remote_stream(&b->remote, from, b->remote.size - from, &b->ranges);
}

/* What an answer to a request for bytes from *len on means: *len is 0 when they come from the start. */
static int take_answer(struct fetch *f, struct mirror *m, const struct http_response *answer,
		       struct body *b, uint64_t *len)
{
	int r = http_status_errno(answer->status);

	m->retry_after_s = answer->retry_after_s;
	m->gzip = !strcmp(answer->coding, "gzip") || !strcmp(answer->coding, "x-gzip");
	if (r == -ERANGE) {
		m->whole = true; /* the partial is not a part of what is there */
		r = -EAGAIN;
	}
	if (r < 0)
		return r;
	if (answer->status == 206 && (*len == 0 || answer->range_first != (int64_t)*len))
		return -EPROTO;
	if (answer->status != 206) {
		*len = 0;
		r = start_over(f, m, answer);
	}
	return r < 0 ? r : split(f, m, answer, *len, b);
}

int fetch_open(struct fetch *f, struct mirror *m, struct stream **ret)
{
	struct body *b = calloc(1, sizeof(*b));
	struct http_response *answer = malloc(sizeof(*answer));
	struct stream *in;
	uint64_t len = 0;
	char etag[256];
	struct http_request request = {
		.url = m->url,
		.trust = HTTP_LINKS,
		.no_cache = m->wrong,
		.identity = m->wrong && m->whole,
		/* libcurl reads one member only of what may have many */
		.undecoded = m->wrong && m->whole && m->gzip,
		.logged_once = &m->told,
	};
	int r;

	if (!b || !answer) {
		free(b);
		free(answer);
		return -ENOMEM;
	}
	b->stream.ops = &body_ops;
	b->f = f;
	if (find_partial(f, m, &len, etag, sizeof(etag))) {
		request.has_range = true;
		request.first = len;
		request.last = len + MAX_FILE_SIZE;
		request.if_range = etag;
	}
	r = http_open(f->remote->http, &request, m->deadline_ms, f->cancel, &b->http, answer);
	if (r == 0)
		r = take_answer(f, m, answer, b, &len);
	if (r == 0 && request.undecoded && answer->coding[0] && !m->gzip)
		r = -EBADMSG;
	free(answer);
	in = &b->stream;
	/* which takes the body over, also on failure */
	if (r == 0 && request.undecoded && m->gzip)
		r = http_gzip_stream(in, &in);
	else if (r < 0)
		body_close(in);
	return r < 0 ? r : dest_stream(f->dest, len, in, ret);
	return r;
}
