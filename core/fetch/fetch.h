/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fetches what LINKS says of an object: any of several mirrors will do, as long as the bytes have
 * the right sha256.
 *
 * Mirrors are tried in their order, the one that worked last first. Connection failures, timeouts,
 * 4xx and 5xx, and answers that are too short go on to the next; when all have failed, those that
 * may recover are tried again after a pause. Bytes with the wrong hash are asked for once more past
 * any cache on the way; then that mirror is out for this time.
 */
#ifndef CARTON_FETCH_FETCH_H
#define CARTON_FETCH_FETCH_H

#include "cache/dest.h"
#include "base/ingest.h"
#include "format/links.h"
#include "fetch/remote.h"

struct fetch {
	const struct remote_options *remote;
	const struct tagger *tagger; /* NULL: no tags */
	struct link *link;
	struct dest *dest;	    /* where the bytes go, and where an earlier part may be */
	int64_t deadline_ms;	    /* as now_ms(); moved on while bytes arrive */
	struct http_cancel *cancel; /* fired when nothing is wanted any more; NULL: never */
	struct cancel *token;	    /* the same, for what does not wait for http */
	void (*progress)(void *ctx, uint64_t bytes); /* as in struct ingest; NULL: not told */
	void *ctx;
};

/*
 * Fetches and verifies the whole object. 0; -EBADMSG: all that any mirror gave is wrong; -ENOSPC;
 * -ECANCELED; else what the best mirror failed with: -EACCES, -ETIMEDOUT, -ECONNREFUSED,
 * -EHOSTUNREACH, … or -EIO. Each mirror's failure is logged.
 */
int fetch_object(struct fetch *f, struct ingested *ret);

/*
 * Asks how long the object is, without fetching it. What a server says may be wrong, or it may not
 * say: 0; -ENODATA: nobody says; else as fetch_object(). Uses `remote`, `link`, `deadline_ms`,
 * `cancel` and `token` only.
 */
int fetch_size(struct fetch *f, uint64_t *ret_size);

#endif
