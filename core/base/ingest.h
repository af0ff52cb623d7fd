/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a stream through sha256, and on the way tags its chunks and keeps its bytes.
 *
 * What is longer than a few blocks is read (and so decoded) on the calling thread and hashed on a
 * second one, since both cost about the same.
 */
#ifndef CARTON_BASE_INGEST_H
#define CARTON_BASE_INGEST_H

#include <stdbool.h>

#include "base/digest.h"
#include "base/source.h"

/* What one tag stands for; a read fetches whole chunks to check them. */
#define CHUNK_SIZE ((size_t)128 * 1024)

struct ingest {
	struct stream *in;	     /* read to its end */
	uint64_t size;		     /* bytes it must give; UINT64_MAX: not known */
	uint64_t max;		     /* bytes it may give at most, when that is not known */
	const struct tagger *tagger; /* makes tags; NULL: none */
	bool hash;		     /* false: the sha256 stays all zero */
	int fd;			     /* this file is to hold just these bytes; -1: none is */
	bool (*stop)(void *ctx);     /* asked often; true ends it with -ECANCELED */
	void *ctx;
	void (*progress)(void *ctx, uint64_t bytes); /* called with each block's size; or NULL */
};

struct ingested {
	uint8_t sha256[SHA256_SIZE];
	uint64_t size;
	uint8_t (*tags)[TAG_SIZE]; /* one for each CHUNK_SIZE bytes; the caller frees them */
};

/*
 * 0; -EBADMSG when the stream's length is not `size`; -EFBIG over `max`; -ECANCELED; -ENOMEM; what
 * reading or writing gives. On failure nothing is kept but bytes already written.
 */
int ingest_run(const struct ingest *job, struct ingested *ret);

#endif
