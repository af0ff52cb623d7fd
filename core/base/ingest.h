/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a stream to its end, and hashes and tags its bytes (hasher.h).
 *
 * A stream of more than a few blocks is read (and so decoded) on the calling thread and hashed on a
 * second one, since both cost about the same. Threads: each call is on its own.
 */
#ifndef CARTON_BASE_INGEST_H
#define CARTON_BASE_INGEST_H

#include <stdbool.h>

#include "base/cancel.h"
#include "base/hasher.h"
#include "base/source.h"

struct ingest {
	struct stream *in;	     /* read to its end */
	uint64_t size;		     /* bytes it must give; UINT64_MAX: not known */
	uint64_t max;		     /* bytes it may give at most, when that is not known */
	const struct tagger *tagger; /* makes tags; NULL: none */
	bool hash;		     /* false: the sha256 stays all zero */
	struct cancel *cancel;	     /* when it fires, -ECANCELED; may be NULL */
	void *ctx;
	void (*progress)(void *ctx, uint64_t bytes); /* called with each block's size; or NULL */
};

/*
 * 0; -EBADMSG when the stream's length is not `size`; -EFBIG over `max`; -ECANCELED; -ENOMEM; what
 * reading gives.
 */
int ingest_run(const struct ingest *job, struct ingested *ret);

#endif
