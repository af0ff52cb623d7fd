/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists the entries of a tar, which libarchive reads as a stream: for each file the offset of its
 * data in the tar, and their sha256. So a file can be read as a range of the tar, without a copy.
 *
 * Names and link targets are the bytes of the tar, unchecked. If several entries have one name, all
 * of them are listed.
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
	uint64_t off;	    /* of a file: offset of its data in the tar */
	struct ingested in; /* of a file: size, hash and tags; the tags are freed after the call */
};

struct tar_scan {
	struct stream *in;	     /* the tar; it is read to its end */
	const char *name;	     /* for the log */
	const struct tagger *tagger; /* makes tags of files from MIN_SEALED bytes; NULL: none */
	struct cancel *cancel;	     /* may be NULL */
	/* Called for each entry, in the order of the tar. An error of it ends the scan. */
	int (*entry)(void *ctx, const struct tar_entry *e);
	void *ctx;
};

/*
 * 0; -EBADMSG: it is not a tar, or is damaged; -EOPNOTSUPP: it has a sparse file, whose content is
 * not one range of the tar; -EFBIG: more than MAX_ENTRIES (these three are logged); -ECANCELED;
 * -ENOMEM; -ELIBACC; or the error of the stream or of entry().
 */
int tar_scan(const struct tar_scan *s);

/* Loads libarchive, before the process is confined. If that fails (logged), so does tar_scan(). */
void tar_prepare(void);

#endif
