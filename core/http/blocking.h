/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP for callers that block: one thread waits for one stream. Goes with its last caller.
 */
#ifndef CARTON_HTTP_BLOCKING_H
#define CARTON_HTTP_BLOCKING_H

#include "http/http.h"

struct http_reader;

/* Ends the waiting of every reader opened with it. */
struct http_cancel {
	pthread_mutex_t lock;
	atomic_bool fired;
	struct http_reader *readers; /* guarded by lock */
};

int http_cancel_init(struct http_cancel *cancel);
void http_cancel_fire(struct http_cancel *cancel);
void http_cancel_destroy(struct http_cancel *cancel);

/* As http_start_request() and http_answer(); also -ECANCELED, and -ETIMEDOUT at the deadline (0: none). */
int http_open(struct http *http, const struct http_request *request, int64_t deadline_ms,
	      struct http_cancel *cancel, struct http_reader **ret,
	      struct http_response *ret_response);
ssize_t http_read(struct http_reader *r, void *ret_buf, size_t n);
void http_set_deadline(struct http_reader *r, int64_t deadline_ms);
void http_reader_close(struct http_reader *r);

#endif
