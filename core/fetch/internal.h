/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What fetch.c (which mirror, and when again) and fetch_body.c (one answer's bytes) share.
 */
#ifndef CARTON_FETCH_INTERNAL_H
#define CARTON_FETCH_INTERNAL_H

#include "fetch/fetch.h"

/* One mirror, in one fetch. */
struct mirror {
	const char *url;
	bool out;	  /* not to be asked again */
	bool wrong;	  /* has given wrong bytes once: ask past caches */
	bool whole;	  /* do not resume, do not split: that went wrong */
	bool gzip;	  /* its answers are coded so */
	bool no_head;	  /* a HEAD of it is no use */
	int error;	  /* of the last try */
	atomic_bool told; /* it has failed, which was logged */
	long retry_after_s;
	int64_t deadline_ms; /* for its answer to begin */
};

/*
 * Asks a mirror for the object, or for the rest of it, and gives all of its bytes, those that are there
 * already included, as a stream to be written to the fetch's file. Learns about the mirror. 0; -ENOSPC;
 * -EAGAIN and what else http_status_errno() makes of a status; else as http_open().
 */
int fetch_open(struct fetch *f, struct mirror *m, struct stream **ret);

#endif
