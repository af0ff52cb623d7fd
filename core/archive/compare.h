/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares the entries with those that libarchive finds in the headers of the same zip file.
 *
 * zip.h refuses ambiguous archives; compare.h finds one that zip.h has missed. A mount does not
 * need it: no name or byte from libarchive is used.
 */
#ifndef CARTON_ARCHIVE_COMPARE_H
#define CARTON_ARCHIVE_COMPARE_H

#include "archive/container.h"

/*
 * Logs each entry of the zip in `source` whose name, kind or size libarchive reads differently from
 * `c`, up to MAX_REPORTED. Returns their number or -ENOMEM; 0 if libarchive cannot read the
 * archive.
 */
ssize_t compare_with_libarchive(const struct container *c, struct source *source);

#endif
