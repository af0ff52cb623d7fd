/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verified bytes, wherever they are kept, and reading them so that they stay verified.
 */
#ifndef CARTON_CONTENT_BYTES_H
#define CARTON_CONTENT_BYTES_H

#include <stdbool.h>

#include "base/digest.h"
#include "base/source.h"
#include "content/chunked.h"
#include "content/disk_ahead.h"

struct budget;

struct bytes {
	enum {
		BYTES_NONE,
		BYTES_MEMORY, /* a copy in memory */
		BYTES_FILE,   /* a file of its own: a copy, or one of an unpacked carton */
		BYTES_ENTRY,  /* an entry, a part of the container's own file */
	} kind;
	char *memory;
	struct source *source;	   /* a local one, and a reference to it */
	uint64_t off;		   /* where they begin in it */
	uint8_t (*tags)[TAG_SIZE]; /* one for each TAG_BLOCK; NULL: unchecked (-o verify=off) */
	struct chunked *chunks;	   /* which tags are there yet; NULL: all */
	struct disk_ahead *ahead;  /* of a large local file; or NULL */
	struct budget *budget;	   /* counts the tags once bytes_count() was called */
	uint64_t counted;
};

/*
 * Verifies the bytes by chunks from now on; no chunk is verified yet. The source of `b` is set.
 * Returns as chunked_new().
 */
int bytes_use_chunks(struct bytes *b, const struct chunk_index *index, const struct chunks_file *f,
		     const struct tagger *tagger, const char *name);

/* Bytes of a large local file are read ahead of their readers from now on. */
void bytes_read_ahead(struct bytes *b, uint64_t size);

/*
 * Somebody is about to read [off, off+n) of `size` bytes: begins to read what follows from the
 * disk. Returns which bytes these are.
 */
struct disk_range bytes_ahead(const struct bytes *b, uint64_t size, size_t n, uint64_t off);

/*
 * Copies [off, off+n) of `size` bytes. 0; -EBADMSG when what is there now does not fit its tags (or
 * the chunk index) or was cut off; -ENOMEM; -EIO; -EINPROGRESS: a chunk has to be fetched, by
 * chunked_fetch(). With `nowait`, -EAGAIN when it is not in memory or not yet verified.
 */
int bytes_read(const struct bytes *b, const struct tagger *tagger, uint64_t size, void *ret_buf,
	       size_t n, uint64_t off, bool nowait);

/* Counts the tags of `size` bytes, until bytes_finish(). Not with locks. */
void bytes_count(struct bytes *b, uint64_t size, struct budget *budget);

/* Leaves BYTES_NONE. */
void bytes_finish(struct bytes *b);

#endif
