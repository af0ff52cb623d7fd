/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A late carton of a repository (import/import.h). Of its small files only the git ids are known,
 * so MANIFEST and the model hash are known once all of these files were read. MANIFEST is derived
 * content, made when somebody reads it. Its size is known: all hashes have the same length.
 */
#ifndef CARTON_OPEN_LATE_H
#define CARTON_OPEN_LATE_H

#include "open/kind.h"

/* Has the caller asked for a late carton, and does no option need all hashes at once? */
bool late_is_wanted(const struct carton_source *s);

/* Makes MANIFEST derived content if files of LINKS are late. Before load_tree(). 0 or -ENOMEM. */
int late_prepare(struct carton *c);

/*
 * Finds the contents of the late files; with `fetch`, starts fetching all of them in the
 * background. After all else of the open. 0 or -ENOMEM.
 */
int late_begin(struct carton *c, bool fetch);

#endif
