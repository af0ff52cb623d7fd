/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The signature that lies beside a new carton, made for one that was there before.
 *
 * Threads: one.
 */
#ifndef CARTON_PACK_OLD_SIGNATURE_H
#define CARTON_PACK_OLD_SIGNATURE_H

#include "format/manifest.h"
#include "writer/newfile.h"

/*
 * Is there a file NAME.sig beside `out` that does not list what `m` has? Nobody's key is asked for:
 * this says whether the signature can be right, not whether it is. Takes lines that the signature
 * leaves out from `m`.
 */
bool old_signature_beside(const struct newfile *out, struct manifest *m, struct budget *budget);

/* Renames it to NAME.sig.old, so that no reader judges the new carton by it, and says so. */
void old_signature_set_aside(const struct newfile *out);

#endif
