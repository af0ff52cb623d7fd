/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A zip file as a container (PKWARE APPNOTE 6.3.10). It is read strictly: an archive that two
 * readers could understand differently is refused. tests/fuzz/differential.py compares with other
 * readers.
 *
 * Reads the end of the file and the central directory. The local header of an entry is compared
 * when the entry is located; those of directories, which are never located, at once if the file is
 * local. The accepted layout, in which every byte belongs to a structure:
 *
 *	[mark]  (local header, data, [data descriptor])*  central directory  [zip64 record, locator]
 *	EOCD
 *
 * Accepted: Stored, Deflate and zstd; zip64; entries in any order; an archive comment; directories
 * whose data decodes to nothing, also twice; an entry of the archive's own directory, "./" or "/",
 * and "./" before other names; names in a code page with the field that has them in UTF-8; up to
 * three zeros behind extra fields; flags that differ between the headers but change nothing.
 * Refused: several disks, encryption, patches, other methods, files that are not regular, directory
 * or symlink; and what readers are known to understand differently: other names that are not ASCII
 * without the UTF-8 flag, extensible data in a zip64 record, further end records.
 */
#ifndef CARTON_ARCHIVE_ZIP_H
#define CARTON_ARCHIVE_ZIP_H

#include "archive/container.h"

/* 4.3 and 4.4: signatures, and sizes of the fixed parts; what a reader and a writer know. */
#define LOCAL_SIG 0x04034b50
#define LOCAL_SIZE 30
#define CENTRAL_SIG 0x02014b50
#define CENTRAL_SIZE 46
#define RECORD_SIG 0x06064b50 /* the zip64 end record */
#define RECORD_SIZE 56
#define LOCATOR_SIG 0x07064b50
#define LOCATOR_SIZE 20
#define EOCD_SIG 0x06054b50
#define EOCD_SIZE 22
#define FLAG_UTF8 (1 << 11)
#define EXTRA_ZIP64 0x0001

/*
 * Readers look for the end record in the last bytes of a file, as many as the record, its comment
 * and a zip64 locator may have.
 */
#define ZIP_END_SEARCH (EOCD_SIZE + UINT16_MAX + LOCATOR_SIZE)

/*
 * Opens the zip in `source`, of which it takes a reference. Dates in it are not read. Faults are
 * logged entry by entry, up to MAX_REPORTED. 0; -EBADMSG if it is not a zip or is refused; -EFBIG
 * over a limit; -ENOMEM; or an error of the source.
 */
int zip_open(struct source *source, struct budget *budget, struct container **ret);

/* Has the source an end record where a zip file has it? 1; 0; or the error of reading it. */
int zip_has_end(struct source *source);

#endif
