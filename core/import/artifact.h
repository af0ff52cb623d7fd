/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the manifest of an OCI artifact says: which files it has. A layer is a file as it is, whose
 * digest is its sha256, or an archive of files (layers.c). Nothing of it is trusted.
 *
 * A layer's path is its annotation org.cncf.model.filepath, else org.opencontainers.image.title,
 * else its `name`, else it follows from its media type, as of Docker Model Runner and Ollama. It
 * becomes `model/PATH`. An artifact with the layers carton.toml and MANIFEST is a carton, whose
 * paths stay.
 *
 * Threads: one at a time.
 */
#ifndef CARTON_IMPORT_ARTIFACT_H
#define CARTON_IMPORT_ARTIFACT_H

#include "import/listing.h"

struct scan;

#define ARTIFACT_TYPE 256
#define ARTIFACT_DIGEST 160
#define ARTIFACT_TYPES 16

struct artifact_blob {
	char type[ARTIFACT_TYPE], digest[ARTIFACT_DIGEST]; /* or "" */
	uint64_t size;
};

struct artifact {
	bool has_layers; /* else it is no manifest */
	size_t n_layers;
	struct artifact_blob config, carton_toml, manifest;
	unsigned named[ARTIFACT_TYPES]; /* layers that are named by their type, of each */
	/* Of an index: the last manifest of a model, the last of another kind; and how many. */
	struct artifact_blob model, other;
	unsigned n_models, n_others;
	/* Of those others: the last one for the platform of this machine; and how many. */
	struct artifact_blob mine;
	unsigned n_mine;
};

/* Reads a manifest or an index, for what is to be fetched next. 0; -EBADMSG, logged; -ENOMEM. */
int artifact_read(const struct listing *l, const struct buf *text, struct artifact *ret);

/*
 * Reads the same manifest again: adds its layers. If it is of a carton, l->carton_toml and
 * l->manifest are there. 0; -EBADMSG, -EFBIG, logged; -ENOMEM.
 */
int artifact_add(struct listing *l, const struct buf *text, struct artifact *a);

/* Logs that `what` cannot be read. Returns -EBADMSG. */
int artifact_no_json(const char *name, const struct scan *s, const char *what);

/* ---- artifact_check.c ---- */

/* Has each digest one size? 0; -EBADMSG, logged; -ENOMEM. */
int artifact_check_sizes(const struct listing *l);

/* Can artifact_config() read the config, for an artifact with these layers? */
bool artifact_has_config(const struct listing *l, const struct artifact *a);

/* Is it a container image, whose layers make a root directory? */
bool artifact_is_image(const struct artifact *a);

/*
 * Reads the config, after all layers were added: the license, and a list of the layers, which must
 * be the same. 0; -EBADMSG, logged; -ENOMEM.
 */
int artifact_config(struct listing *l, const struct artifact *a, const struct buf *text);

/* Compares the files of a carton with its MANIFEST. 0; -EBADMSG, -EFBIG, logged; -ENOMEM. */
int artifact_check_carton(const struct listing *l);

#endif
