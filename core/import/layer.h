/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by layer_read.c and layer.c: state and steps of layer_get(). */
#ifndef CARTON_IMPORT_LAYER_H
#define CARTON_IMPORT_LAYER_H

#include "cache/room.h"
#include "import/internal.h"

struct layer_get {
	const struct import *im;
	const struct listing *l;
	struct listed_layer *layer;
	const struct layer_scan *scan;	    /* or NULL */
	char name[7 + 2 * SHA256_SIZE + 1]; /* its digest, for the log */
	char *url;
	struct cancel *cancel; /* or NULL */
	bool sound;	       /* the blob that was read last matches its digest */
	bool waited;	       /* another process has filled an entry of the layer meanwhile */
};

/* The blob of a layer, as a source or in a file that is not committed yet. */
struct layer_blob {
	struct file *file;     /* used if `source` is NULL */
	struct source *source; /* or NULL */
};

/*
 * Reads all of the blob, and opens the tar as layer->source. Errors of layer_get(). Sets g->sound:
 * after -EBADMSG it tells whether the layer itself is bad, or this copy of the blob is damaged.
 */
int layer_read(struct layer_get *g, const struct layer_blob *b);

/*
 * Opens the tar of a compressed blob that the cache has, as layer->source. With a scan it is found
 * by a note of this source, read and hashed. -ENOENT: it is not there, or was damaged and is
 * dropped; or errors of layer_get().
 */
int layer_kept(struct layer_get *g);

/* Is the blob an uncompressed tar? 1, 0 or -errno. */
int layer_is_plain(struct layer_get *g, const struct layer_blob *b);

/* Compares a hash with the digest of the blob. 0 or -EBADMSG, logged. */
int layer_compare(struct layer_get *g, const uint8_t found[SHA256_SIZE]);

/* Like room_open(), but waits while another process fills the entry. */
int layer_room(struct layer_get *g, struct room *room, struct file **ret);

#endif
