/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the headers of a zip file (PKWARE APPNOTE 6.3.10) that archive/zip.h accepts, and so do
 * the usual readers: local headers with all sizes, no data descriptors, zip64 only where it is
 * needed, names in UTF-8 with its flag, modes of Unix, and 1980-01-01 as the date of all entries.
 *
 * The data of a Stored entry of at least `align` bytes begins at a multiple of `align`: an extra
 * field 0xD935, as zipalign makes it, fills the local header.
 *
 * Threads: zip_writer_place() in the order of the entries, by one thread; zip_writer_header() by
 * any.
 */
#ifndef CARTON_WRITER_ZIP_WRITER_H
#define CARTON_WRITER_ZIP_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ZIP_MAX_ALIGN 32768 /* an extra field has less than 64 KiB */

/* The fields of an entry's headers. */
struct zip_entry {
	const char *name; /* valid (path_fault) */
	uint64_t size;
	uint64_t stored; /* bytes of its data */
	/* offset of its local header; set by zip_writer_place(), as the next three */
	uint64_t header;
	uint64_t data; /* offset of its data */
	uint32_t crc;
	uint16_t method; /* enum decode_method */
	bool wide;	 /* its sizes are in zip64 fields */
	bool symlink, executable;
};

struct zip_writer {
	int fd;
	uint64_t at;	/* the offset of the next entry */
	uint32_t align; /* a power of two up to ZIP_MAX_ALIGN; 1: no alignment */
};

/*
 * Gives the entry the next place. Its name, method and size are set; `stored`: how many bytes its
 * data has, or, while that is not known, the most that it may have; then the caller moves w->at to
 * the end of the data.
 */
void zip_writer_place(struct zip_writer *w, struct zip_entry *e, uint64_t stored);

/*
 * Places the last entry, which is Stored. If the data before it has the signature of an end record
 * where readers look for one, the header of this entry is made so long that they do not look so
 * far. 0 or -errno of the file.
 */
int zip_writer_place_last(struct zip_writer *w, struct zip_entry *e);

/* Writes the local header, when all fields are set. 0, -ENOMEM or -errno of the file. */
int zip_writer_header(const struct zip_writer *w, const struct zip_entry *e);

/*
 * Places a Stored entry and writes it: its name is set. `last`: as zip_writer_place_last(). As
 * zip_writer_header().
 */
int zip_writer_literal(struct zip_writer *w, struct zip_entry *e, const void *data, uint64_t size,
		       bool last);

/* Writes the central directory and the end records at w->at. 0, -ENOMEM or -errno of the file. */
int zip_writer_end(struct zip_writer *w, const struct zip_entry *const *entries, size_t n);

#endif
