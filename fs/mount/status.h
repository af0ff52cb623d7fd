/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state and the counters of a mount as text: status.json and metrics in the hidden directory
 * .cartonfs/.
 */
#ifndef FS_STATUS_H
#define FS_STATUS_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <time.h>

#include "carton.h"

struct open_text;
struct passthrough;

#define STATUS_ERRORS 8

struct status {
	const char *source; /* without credentials */
	const char *mountpoint;
	const char *verify; /* the mount option */
	time_t started;
	struct passthrough *passthrough; /* NULL: not wanted */

	pthread_mutex_t lock; /* guards what follows */
	struct status_error {
		time_t when;
		bool warning; /* what was asked for may still succeed */
		char text[512];
	} last[STATUS_ERRORS]; /* the newest is at (n_errors - 1) % STATUS_ERRORS */
	uint64_t n_errors;
	LIST_HEAD(open_texts, open_text) open; /* see status_files.c */
};

/* Remembers an error or a warning. `subject` may be NULL. Any thread. */
void status_error(struct status *s, bool warning, const char *subject, const char *message);

/* A malloc'ed text. */
struct status_text {
	char *data;
	size_t len;
};

/* The text of status.json, or of metrics in Prometheus' format: 0 or -ENOMEM. Waits for no I/O. */
int status_json(struct status *s, struct carton *c, struct status_text *ret);
int status_metrics(struct status *s, struct carton *c, struct status_text *ret);

#endif
