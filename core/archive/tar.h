/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists a tar, which libarchive reads as a stream: each entry with where its data is in the tar,
 * and their sha256. So a file of it is a range of the tar, and needs no copy.
 *
 * Names and targets are the bytes that the tar has, and nothing of them is checked here. Of several
 * entries of one name all are listed.
 *
 * Threads: calls share no state.
 */
#ifndef CARTON_ARCHIVE_TAR_H
#define CARTON_ARCHIVE_TAR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/cancel.h"
#include "base/hasher.h"
#include "base/source.h"

enum tar_kind {
	TAR_FILE,
	TAR_DIR,
	TAR_SYMLINK,
	TAR_HARDLINK,
	TAR_OTHER, /* a device, a fifo, a socket */
};

struct tar_entry {
	const char *path, *target; /* the target of a link; else NULL */
	enum tar_kind kind;
	bool executable;
	uint64_t off;	    /* of a file: where its data begins */
	struct ingested in; /* of a file: its size and hash; its tags, which go after the call */
};

struct tar_scan {
	struct stream *in;	     /* the tar; it is read to its end */
	const char *name;	     /* for the log */
	const struct tagger *tagger; /* makes tags of files from MIN_SEALED bytes; NULL: none */
	struct cancel *cancel;	     /* may be NULL */
	/* Gets each entry, in the order of the tar. Not 0 ends the scan. */
	int (*entry)(void *ctx, const struct tar_entry *e);
	void *ctx;
};

/*
 * 0; -EBADMSG: no tar, or a damaged one; -EOPNOTSUPP: a sparse file, whose bytes are no range of
 * the tar (both logged); -EFBIG: more than MAX_ENTRIES (logged); -ECANCELED; -ENOMEM; -ELIBACC; or
 * the error of the stream or of entry().
 */
int tar_scan(const struct tar_scan *s);

/* Loads libarchive, before the process is confined. If that fails (logged), so does tar_scan(). */
void tar_prepare(void);

#endif
