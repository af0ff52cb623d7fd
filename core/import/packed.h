/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A kept carton, of which some files, or all, are ranges of layers: one container has the entries
 * of its zip and those of its layers.
 *
 * Threads: the one that opens the carton.
 */
#ifndef CARTON_IMPORT_PACKED_H
#define CARTON_IMPORT_PACKED_H

#include "archive/container.h"
#include "import/import.h"
#include "import/listing.h"

/*
 * Opens the carton in `zip`, which it takes over, also on failure. A zip without an entry LAYERS is
 * returned unchanged. Uses the layers that `l` has open, and gets others by layer_get(). 0 or
 * -errno, logged.
 */
int packed_open(const struct import *im, struct listing *l, struct container *zip,
		struct container **ret);

#endif
