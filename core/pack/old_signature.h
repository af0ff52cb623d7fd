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
 * 1: a file NAME.sig beside `out` does not list what `m` has. 0: it does, or there is none. -errno:
 * it cannot be read. Nobody's key is asked for: this says whether the signature can be right, not
 * whether it is. Takes lines that the signature leaves out from `m`.
 */
int old_signature_beside(const struct newfile *out, struct manifest *m, struct budget *budget);

/*
 * Renames it to NAME.sig.old, in place of an earlier one, so that no reader judges the new carton
 * by it, and says so. `found`: of old_signature_beside(), not 0; one that cannot be read stays.
 */
void old_signature_set_aside(const struct newfile *out, int found);

#endif
