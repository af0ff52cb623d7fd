/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files that a new carton leaves out, because LINKS has them: written to a directory, whose
 * files are named by their sha256, and hashed.
 */
#ifndef CARTON_PACK_OBJECTS_H
#define CARTON_PACK_OBJECTS_H

#include "pack/plan.h"

/* Makes the directory for them; NULL: there is none. 0 or -errno, logged. */
int objects_directory(const char *path);

/*
 * Reads each file of the plan that is left out, and adds its chunks to the index, if there is to be
 * one. A file that is written nowhere is hashed, too: its URLs must lead to these bytes. Of an
 * import, they are fetched; how far that is goes to `progress`. 0 or -errno, logged.
 */
int objects_put(const struct pack_plan *p, struct chunks_writer *chunks,
		carton_progress_fn *progress, void *ctx);

/* Bytes that objects_put() fetches. */
uint64_t objects_fetched(const struct pack_plan *p);

#endif
