/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes files into a zip file, with several threads. Their number does not change the bytes that
 * are written.
 *
 *	prepare	(any thread, some ahead)  reads small files, and compresses them
 *	place	(one thread, in order)	  gives each item the next offset, once its size is known
 *	fill	(any thread)		  copies large Stored files and entries to their place
 *
 * A large file that is compressed is placed and filled by the placing thread, and libzstd uses all
 * threads for it. Content is hashed on the way: a thread reads several files at once and hashes
 * them together, as long as the files behind keep the others busy.
 *
 * Threads: the callbacks are called by several, except `progress`.
 */
#ifndef CARTON_WRITER_PACK_H
#define CARTON_WRITER_PACK_H

#include "archive/container.h"
#include "base/hasher.h"
#include <stdatomic.h>

#include "base/source.h"
#include "format/chunks.h"
#include "writer/choose.h"
#include "writer/zip_writer.h"

struct pack_item {
	/* set by the caller */
	struct zip_entry zip;	   /* name, size and kind; the rest is set here */
	const struct entry *entry; /* of a zip `container`, to be copied from it; or NULL */
	const void *literal;	   /* the content; it is Stored and not hashed. Or NULL */
	const char *line;	   /* in MANIFEST, with the sha256 that it must have; NULL: any */
	void *from;		   /* for the callbacks */
	bool plain;		   /* the stream of it is a local file: no decoder, no wait */

	/* set here */
	uint8_t sha256[SHA256_SIZE]; /* not for literal content, or a copied entry */
	enum choice choice;
	void *data;		   /* prepared bytes, zip.stored of them; or NULL */
	bool ready;		   /* prepared, or there is nothing to prepare */
	bool crowded;		   /* the items behind it keep all other threads busy */
	struct pack_item *next;	   /* in the queue of items to fill */
	struct chunks_made chunks; /* if the job has `chunks`; owned by the caller */
	/*
	 * Of the bytes that were hashed, one for each TAG_PART; or NULL, as for the sha256. Owned
	 * by the caller.
	 */
	uint8_t (*tags)[TAG_SIZE];
};

struct pack_ops {
	/* The content as a stream. 0, or -errno: logged if it is -EBADMSG. */
	int (*open)(void *ctx, const struct pack_item *item, struct stream **ret);
};

struct pack_job {
	struct zip_writer zip; /* w->at is at the end of the data afterwards */
	struct pack_item *items;
	size_t n;
	bool chunks;		     /* an index is made of files over CHUNKS_MIN_FILE */
	const struct tagger *tagger; /* with which what was written is compared afterwards */
	struct container *container; /* where entries are copied from */
	const struct pack_ops *ops;
	void *ctx;
	enum compression compress;
	unsigned level;	  /* 0: not given */
	unsigned threads; /* at least 1 */
	uint64_t memory;  /* bytes; fewer threads are used if they would need more */
	void (*progress)(void *ctx, uint64_t bytes); /* bytes read so far; or NULL */
	void *progress_ctx;
	atomic_bool write_failed; /* it was logged; false at first */
};

/*
 * Writes all items, and their local headers. 0; -EBADMSG: content that is damaged, has changed
 * while it was read, or has another hash; -ENOSPC and others of the system. Logged.
 */
int pack_run(struct pack_job *job);

/* What is read again of a carton that was just made is compared with these. */
struct pack_tags {
	const struct pack_item *items; /* of the job, sorted by name (strcmp) */
	size_t n;
	const struct tagger *tagger;
	bool indexed; /* and so were the chunks of its index, which is new */
};

/* Those of an entry; NULL: there are none of that name and size, or `made` is NULL. Any thread. */
uint8_t (*pack_tags_of(const struct pack_tags *made, const struct entry *e))[TAG_SIZE];

#endif
