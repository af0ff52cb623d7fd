/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A second reader of zip archives, libarchive, as a check of ours. It reads headers only.
 *
 * zip.h refuses archives that readers understand differently; this finds one that it has missed. It is
 * not needed for a mount: no byte or name that libarchive gives is shown to anyone.
 */
#ifndef CARTON_ARCHIVE_COMPARE_H
#define CARTON_ARCHIVE_COMPARE_H

#include "archive/container.h"

/*
 * Lists the zip in `source`, whose entries are those of `c`, with libarchive, and logs each entry that
 * has another name, kind or size there, up to MAX_REPORTED. Returns their number or -ENOMEM. 0 also if
 * libarchive fails on the archive: then it has not shown another one.
 */
ssize_t compare_with_libarchive(const struct container *c, struct source *source);

#endif
