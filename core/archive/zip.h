/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A zip file as a container (PKWARE APPNOTE 6.3.10), read strictly: an archive that two readers
 * could understand differently is refused, so what is shown is the only thing it can mean.
 *
 * Reads the end of the file and the central directory; an entry's local header is read and compared
 * when the entry is located; those of directories, which nobody locates, at once where that is local.
 * Layout accepted, with no byte unaccounted for:
 *
 *	(local header, data, [data descriptor])*  central directory  [zip64 record, locator]  EOCD
 *
 * Stored, Deflate and zstd; zip64; entries in any order; an archive comment. Not: several disks,
 * encryption, patches, other methods, files that are neither regular, directory nor symlink.
 */
#ifndef CARTON_ARCHIVE_ZIP_H
#define CARTON_ARCHIVE_ZIP_H

#include "archive/container.h"

/*
 * Indexes the zip in `source` (a reference is taken). `mtime`: the file's own. Everything wrong
 * with it is logged, entry by entry, up to MAX_REPORTED. 0; -EBADMSG: not a zip, or a zip that is
 * refused; -EOPNOTSUPP: one that uses what we do not read; -EFBIG: over a limit; -ENOMEM; or what
 * the source gives.
 */
int zip_open(struct source *source, int64_t mtime, struct container **ret);

#endif
