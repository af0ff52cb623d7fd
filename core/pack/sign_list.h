/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files that are signed: the lines of a MANIFEST, or the files of a directory, hashed.
 *
 * Threads: one; sign_list_hash() starts others, and ends them.
 */
#ifndef CARTON_PACK_SIGN_LIST_H
#define CARTON_PACK_SIGN_LIST_H

#include "archive/container.h"
#include "carton.h"
#include "format/manifest.h"
#include "sign/write.h"

/* All lines of MANIFEST but that of the signature. The list uses its text. 0 or -ENOMEM. */
int sign_list_manifest(const struct manifest *m, struct sign_list *ret);

/*
 * All files of a directory (dir.h), hashed on all processors. The list uses the container's names.
 * 0; -EBADMSG: a symlink, or a file that changes meanwhile; or as the system says. Logged.
 */
int sign_list_hash(struct container *c, carton_progress_fn *progress, void *ctx,
		   struct sign_list *ret);

#endif
