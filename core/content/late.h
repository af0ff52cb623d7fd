/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Content of which only the id that git gives it is known (struct late of links.h), a sha1. Whoever
 * gets its bytes compares them with the id and learns their sha256, under which the cache has them;
 * a note there leads from the name to the sha256. From then on no other bytes will do, also if they
 * have the same sha1.
 *
 * Threads: any.
 */
#ifndef CARTON_CONTENT_LATE_H
#define CARTON_CONTENT_LATE_H

#include "base/ingest.h"
#include "content/object.h"

struct fill;
struct file;

/*
 * `file` has the bytes of the object, which were hashed, and perhaps tagged, in a pass of its own:
 * `in`. Reads them once more, into memory, and compares what is there with git's id, and with the
 * sha256 of that pass. So the tags are those of bytes that have the id, whoever has written to the
 * file meanwhile. 0: the sha256 is known now; -EBADMSG: they are others; -ENOMEM; or why they
 * cannot be read. On failure, the tags are freed.
 */
int late_check(const struct object *o, struct file *file, struct ingested *in);

/* Logs that a server has sent others. */
void late_log_wrong(const struct object *o, const char *url);

/*
 * Gets the bytes from the cache, as cache_read(). The note that leads there is only a hint: the
 * bytes are hashed, and compared with git's id. -ENOENT: there are none.
 */
int late_from_cache(const struct fill *f, const struct ingest *how, struct source **ret,
		    struct ingested *ret_in);

/* The cache has the bytes from now on: leaves the note. */
void late_keep(const struct object *o);

#endif
