/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks one file of a container: its sha256, its crc and, if the index has it, its chunks. Of a
 * carton that was just made, tags in place of the hashes.
 *
 * Threads: any, each part by one.
 */
#ifndef CARTON_CHECK_ENTRY_H
#define CARTON_CHECK_ENTRY_H

#include "base/ingest.h"
#include "check/check_chunks.h"
#include "writer/pack.h"

struct check_entry {
	struct container *container;
	const struct carton_index *chunks;
	const struct entry *entry;
	const char *line; /* its path in MANIFEST; NULL: it has no hash */
	/*
	 * Its tags were made of the same buffers as the hash in MANIFEST and the chunks of the
	 * index, with a key that only this process has: bytes with these tags are those that were
	 * hashed. NULL: none were made.
	 */
	const struct pack_tags *made;
	bool crowded; /* other checks keep all other processors busy: hash on one thread */
	void (*progress)(void *ctx, uint64_t n); /* called with the bytes of each block */
	void *ctx;
};

/* 0; -EBADMSG, logged, or not if the container says so; or why it cannot be checked. */
int check_entry(const struct check_entry *k);

/* A stream that passes bytes through and computes their crc. */
struct crc_stream {
	struct stream stream;
	struct stream *in;
	uint32_t crc;
};

/*
 * The same with others (ingest_several()): begins, so that `job` can be run, and ends with its
 * result. It stays where it is in between. If it cannot begin, nothing is to end. As check_entry().
 */
struct entry_check {
	struct ingest job;
	/* private */
	struct check_entry of;
	struct crc_stream crc;
	const struct chunks_file *chunks;
};

int check_entry_begin(const struct check_entry *k, struct entry_check *ret);
int check_entry_end(struct entry_check *c, int r, struct ingested *found);

/*
 * A large Stored file with tags can be checked in parts, by several threads. How many parts; 0: it
 * is checked as a whole.
 */
size_t check_parts(const struct check_entry *k);

/* Begins a check in parts. 0, -ENOMEM, or as container_locate(). */
struct check_parts;
int check_parts_new(const struct check_entry *k, struct check_parts **ret);

/*
 * Checks one of them, once: all are to be checked, and the last one frees them. As check_entry(),
 * but only one of the parts that fail says so: 0 for others.
 */
int check_part(struct check_parts *p, size_t i);

/* In place of it, when nothing is checked any more. NULL-safe. */
void check_parts_drop(struct check_parts *p);

#endif
