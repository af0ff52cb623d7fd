/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of zip.h share: the end of the archive (zip_end.c), the central directory
 * (zip_central.c), and where entries lie (zip.c). Section numbers are those of APPNOTE 6.3.10.
 */
#ifndef CARTON_ARCHIVE_INTERNAL_H
#define CARTON_ARCHIVE_INTERNAL_H

#include "archive/zip.h"

/* 4.3: fixed sizes; the fields that vary follow */
#define LOCAL_SIZE 30
#define CENTRAL_SIZE 46

#define FLAG_DESCRIPTOR (1 << 3)

struct zip {
	struct container container;
	struct source *source;
	char *names;	       /* one block: every name with its NUL */
	uint64_t directory_at; /* the central directory */
	uint64_t directory_size;
	uint64_t n_entries;
	uint64_t eocd_at;
	/* the last DOS date converted: neighbours mostly share it */
	uint32_t dos_last;
	int64_t mtime_last;
};

/* Logs why the whole archive is refused; -EBADMSG. */
int zip_refuse(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Reads the end of the archive, and so where its central directory is. 0; errors of zip_open(). */
int zip_read_end(struct zip *z);

/* Fills z->container.entries from the bytes of the central directory. 0 or -EBADMSG, logged. */
int zip_parse_directory(struct zip *z, const uint8_t *dir);

/* The fields of an extra block that matter here; each points into the block. */
struct zip_extra {
	const uint8_t *zip64;
	size_t zip64_len;
	const uint8_t *unix_time;
	size_t unix_time_len;
	const uint8_t *unicode_path;
	size_t unicode_path_len;
};

/* Each gives NULL, or what is wrong. */

/* Splits an extra block. */
const char *zip_split_extra(const uint8_t *p, size_t n, struct zip_extra *ret);

/* 4.6.9: version 1, crc of the name, then the name in UTF-8. It must be the same name. */
const char *zip_check_unicode_path(const struct zip_extra *x, const char *name, size_t len);

/*
 * 4.5.3: 64-bit values for the fields whose 32-bit form is all ones, in their order. Some writers
 * add the others too; then those must agree with the 32-bit form.
 */
const char *zip_apply_zip64(const struct zip_extra *x, uint64_t *const fields[], size_t n);

#endif
