/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A late carton of a repository (import/import.h): of its small files only git's ids are known, so
 * MANIFEST and the model hash are not, before all of these files were read. MANIFEST is content
 * that is made of them when somebody reads it; its size is known, as all hashes have one length.
 */
#ifndef CARTON_OPEN_LATE_H
#define CARTON_OPEN_LATE_H

#include "open/kind.h"

/* Has the caller asked for one, and is there nothing that needs the hashes before all else? */
bool late_is_wanted(const struct carton_source *s);

/* LINKS and the store are there, the tree is not. If files are late, MANIFEST is. 0 or -ENOMEM. */
int late_prepare(struct carton *c);

/*
 * The tree is there, and nothing fails any more. Finds the files; with `fetch`, begins to get all
 * of them in the background. 0 or -ENOMEM.
 */
int late_begin(struct carton *c, bool fetch);

#endif
