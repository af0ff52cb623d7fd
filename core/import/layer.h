/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by layer_read.c and layer.c: a layer while its tar is got. */
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
	bool sound;	       /* what was read last is what the digest says */
};

/* The bytes of a layer: in a file that is being filled, or in an object. */
struct layer_blob {
	struct file *file;
	struct source *source; /* or NULL */
};

/*
 * Reads all of the blob, and sets what layer_get() says. As layer_get(); after -EBADMSG, g->sound
 * says whose fault that is.
 */
int layer_read(struct layer_get *g, const struct layer_blob *b);

/* Is it a tar as it is? 1, 0 or -errno. */
int layer_is_plain(struct layer_get *g, const struct layer_blob *b);

/* Compares a hash with the digest. 0 or -EBADMSG, logged. */
int layer_compare(struct layer_get *g, const uint8_t found[SHA256_SIZE]);

/* room_open(), but waits for another process that fills the same. */
int layer_room(struct layer_get *g, struct room *room, struct file **ret);

#endif
