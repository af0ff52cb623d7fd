/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A kept carton whose files are, all or some, ranges of layers: one container of both.
 *
 * Threads: the one that opens the carton.
 */
#ifndef CARTON_IMPORT_PACKED_H
#define CARTON_IMPORT_PACKED_H

#include "archive/container.h"
#include "import/import.h"
#include "import/listing.h"

/*
 * Takes over `zip`, also on failure. Without an entry of layers it is returned as it is. `l` has
 * the layers that were read just now, or none: then they are in the cache, or fetched. 0 or -errno,
 * logged.
 */
int packed_open(const struct import *im, struct listing *l, struct container *zip,
		struct container **ret);

#endif
