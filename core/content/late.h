/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Late content: at first only its git id is known (struct late of links.h), which is a sha1. When
 * its bytes have come, they are compared with the id, and their sha256 is kept. The cache has the
 * bytes under that sha256, and a hint that leads there from the name of the object. From then on,
 * other bytes are refused, even if they have the same sha1.
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
 * Compares the bytes of `file` with the git id of the object. An earlier pass over them has
 * computed `in`: their sha256, and perhaps tags. Reads them again, into memory, and compares both
 * the id and that sha256: so the tags belong to bytes with the id, even if another process has
 * written to the file meanwhile. 0: the sha256 is known now; -EBADMSG: the bytes differ; -ENOMEM;
 * or why they cannot be read. On failure, the tags are freed.
 */
int late_check(const struct object *o, struct file *file, struct ingested *in);

/* Logs that a server has sent bytes that do not have the git id. */
void late_log_wrong(const struct object *o, const char *url);

/*
 * Gets the bytes from the cache, as cache_read(). Anybody may have put the hint that leads there,
 * so the bytes are hashed, and compared with the git id. -ENOENT: the cache has none.
 */
int late_from_cache(const struct fill *f, const struct ingest *how, struct source **ret,
		    struct ingested *ret_in);

/* Puts the hint, once the cache has the bytes. */
void late_keep(const struct object *o);

#endif
