/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the files of zip.h, lowest first: the end of the archive (zip_end.c), the central
 * directory (zip_central.c), local headers (zip_local.c), offsets and data (zip.c). Section numbers
 * are of APPNOTE 6.3.10.
 */
#ifndef CARTON_ARCHIVE_INTERNAL_H
#define CARTON_ARCHIVE_INTERNAL_H

#include "archive/zip.h"

#define ZIP_DESCRIPTOR_MAX 24
#define FLAGS_LEVEL (1 << 1 | 1 << 2) /* the level of Deflate */

/* Stored bytes of a directory, which decode to nothing: an empty frame of zstd has 9 to 14. */
#define MAX_DIRECTORY_DATA 64

struct zip {
	struct container container;
	struct source *source;
	uint64_t directory_at; /* the central directory */
	uint64_t directory_size;
	uint64_t n_entries;
	uint64_t eocd_at;
};

/* Logs why the whole archive is refused. Returns -EBADMSG. */
#define zip_refuse(...) log_error(-EBADMSG, NULL, "refused zip: " __VA_ARGS__)

/* Reads the end of the archive and finds the central directory. 0 or errors of zip_open(). */
int zip_read_end(struct zip *z);

/*
 * Fills z->container.entries from the central directory. 0; -EBADMSG, logged; -ENOMEM; or of the
 * source.
 */
int zip_parse_directory(struct zip *z);

/*
 * Checks the local header of an entry and what follows its data. `from` begins at the offset `base`
 * of the archive; *ret_off: where the data begins in `from`. 0; -EBADMSG, with *ret_fault;
 * -ENODATA: `from` is too short; -ENOMEM; or of the source.
 */
int zip_check_local(struct source *from, uint64_t base, const struct entry *e, uint64_t *ret_off,
		    const char **ret_fault);

/* The extra fields that are interpreted; pointers into the block. */
struct zip_extra {
	const uint8_t *zip64;
	size_t zip64_len;
	const uint8_t *unicode_path;
	size_t unicode_path_len;
};

/* Each returns NULL, or the fault as a text. */

/* Splits an extra block. */
const char *zip_split_extra(const uint8_t *p, size_t n, struct zip_extra *ret);

/* The name of an entry. */
struct zip_name {
	const char *text; /* in the header, without "./" before and a slash behind it */
	size_t len;	  /* 0: the archive's own directory, "./" or "/" */
	bool slash;
	enum entry_raw raw;
};

/*
 * Finds the name that readers agree on, which may not be a valid path. `header`: the name in the
 * header, of `len` bytes.
 */
const char *zip_find_name(const struct zip_extra *x, const char *header, size_t len, unsigned flags,
			  struct zip_name *ret);

/*
 * 4.5.3: replaces the fields whose 32-bit value is all ones by their 64-bit values, in order. Some
 * writers include the other fields too; those must agree with their 32-bit values.
 */
const char *zip_apply_zip64(const struct zip_extra *x, uint64_t *const fields[], size_t n);

/*
 * Logs each entry of the zip in `source` whose name, kind or size libarchive reads differently from
 * `c`, up to MAX_REPORTED. Returns their number or -ENOMEM; 0 if libarchive cannot read the
 * archive.
 */
ssize_t compare_with_libarchive(const struct container *c, struct source *source);

#endif
