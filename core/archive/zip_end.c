/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a zip archive: EOCD, zip64 locator and record (APPNOTE 4.3.14 to 4.3.16). */
#include "archive/internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define EOCD_SIG 0x06054b50
#define EOCD_SIZE 22
#define LOCATOR_SIG 0x07064b50
#define LOCATOR_SIZE 20
#define RECORD_SIG 0x06064b50
#define RECORD_SIZE 56

/* What the archive's end says, from the EOCD or its zip64 record. */
struct end {
	uint64_t entries;
	uint64_t size;
	uint64_t offset;
};

int zip_refuse(const char *fmt, ...)
{
	char text[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	carton_log(CARTON_LOG_ERROR, NULL, "refused zip: %s", text);
	return -EBADMSG;
}

/*
 * Finds the one EOCD whose comment ends where the file ends. A second candidate, or another
 * signature inside the comment, would let readers disagree.
 */
static int find_eocd(const uint8_t *tail, size_t n, size_t *ret_at)
{
	size_t found = SIZE_MAX;
	bool any = false;

	for (size_t i = 0; i + EOCD_SIZE <= n; i++) {
		if (tail[i] != 'P' || get_le32(tail + i) != EOCD_SIG)
			continue;
		any = true;
		if (i + EOCD_SIZE + get_le16(tail + i + 20) != n) {
			if (found != SIZE_MAX)
				return zip_refuse(
					"a second end record stands inside the archive comment");
			continue;
		}
		if (found != SIZE_MAX)
			return zip_refuse("two end records both claim to end the archive");
		found = i;
	}
	if (found == SIZE_MAX && any)
		return zip_refuse("data after the end record, or its comment length is wrong");
	if (found == SIZE_MAX)
		return zip_refuse("not a zip file, or cut off: no end of central directory record");
	/* a signature that begins in the last bytes has no room for a record */
	for (size_t i = found + EOCD_SIZE; i + 4 <= n; i++)
		if (get_le32(tail + i) == EOCD_SIG)
			return zip_refuse("a second end record stands inside the archive comment");
	*ret_at = found;
	return 0;
}

/* The zip64 record that the locator names must lie right before it and agree with the EOCD. */
static int read_zip64(const struct zip *z, const uint8_t *locator, const uint8_t *eocd,
		      struct end *end, uint64_t *ret_at)
{
	uint64_t locator_at = z->eocd_at - LOCATOR_SIZE;
	uint64_t at = get_le64(locator + 8), size;
	uint8_t record[RECORD_SIZE];
	int r;

	if (get_le32(locator + 4) != 0 || get_le32(locator + 16) != 1)
		return zip_refuse("multi-disk archives are not supported (zip64 locator)");
	if (at > locator_at || locator_at - at < RECORD_SIZE)
		return zip_refuse("zip64 locator points outside of the archive");
	r = source_pread(z->source, record, sizeof(record), at);
	if (r < 0)
		return r;
	if (get_le32(record) != RECORD_SIG)
		return zip_refuse("zip64 locator does not point to a zip64 end record");
	size = get_le64(record + 4);
	if (size != locator_at - at - 12)
		return zip_refuse("zip64 end record's size is wrong");
	if (get_le32(record + 16) != 0 || get_le32(record + 20) != 0)
		return zip_refuse("multi-disk archives are not supported (zip64 end record)");
	end->entries = get_le64(record + 32);
	end->size = get_le64(record + 40);
	end->offset = get_le64(record + 48);
	if (get_le64(record + 24) != end->entries)
		return zip_refuse("zip64 end record's two entry counts differ");
	if ((get_le16(eocd + 10) != UINT16_MAX && get_le16(eocd + 10) != end->entries) ||
	    (get_le32(eocd + 12) != UINT32_MAX && get_le32(eocd + 12) != end->size) ||
	    (get_le32(eocd + 16) != UINT32_MAX && get_le32(eocd + 16) != end->offset))
		return zip_refuse("zip64 end record disagrees with the end record");
	*ret_at = at;
	return 0;
}

/* Reads the end record at tail[at], and the zip64 record if there is one. */
static int parse_end(struct zip *z, const uint8_t *tail, size_t at, struct end *ret)
{
	const uint8_t *eocd = tail + at;
	unsigned disk = get_le16(eocd + 4), directory_disk = get_le16(eocd + 6);
	struct end end = { get_le16(eocd + 10), get_le32(eocd + 12), get_le32(eocd + 16) };
	uint64_t directory_end = z->eocd_at, finish;
	int r;

	if ((disk != 0 && disk != UINT16_MAX) ||
	    (directory_disk != 0 && directory_disk != UINT16_MAX))
		return zip_refuse("multi-disk archives are not supported (end record)");
	if (get_le16(eocd + 8) != get_le16(eocd + 10))
		return zip_refuse("the end record's two entry counts differ");
	if (at >= LOCATOR_SIZE && get_le32(eocd - LOCATOR_SIZE) == LOCATOR_SIG) {
		r = read_zip64(z, eocd - LOCATOR_SIZE, eocd, &end, &directory_end);
		if (r < 0)
			return r;
	} else if (end.size == UINT32_MAX || end.offset == UINT32_MAX || disk || directory_disk) {
		/* a count of 65535 may be just that: it is checked against the directory */
		return zip_refuse("the end record announces a zip64 record, but there is none");
	}
	if (__builtin_add_overflow(end.offset, end.size, &finish) || finish != directory_end)
		return zip_refuse("central directory of %" PRIu64 " bytes at offset %" PRIu64
				  " does not end where its end record begins, at %" PRIu64,
				  end.size, end.offset, directory_end);
	*ret = end;
	return 0;
}

int zip_read_end(struct zip *z)
{
	size_t n = (size_t)MIN(z->source->size, EOCD_SIZE + UINT16_MAX + LOCATOR_SIZE), at = 0;
	uint8_t *tail = malloc(n + 1);
	struct end end = { 0 };
	int r;

	if (!tail)
		return -ENOMEM;
	r = source_pread(z->source, tail, n, z->source->size - n);
	if (r == 0)
		r = find_eocd(tail, n, &at);
	if (r == 0) {
		z->eocd_at = z->source->size - n + at;
		r = parse_end(z, tail, at, &end);
	}
	free(tail);
	if (r < 0)
		return r;
	if (end.entries > MAX_ENTRIES || end.size > MAX_CENTRAL_DIRECTORY) {
		carton_log(CARTON_LOG_ERROR, NULL,
			   "refused zip: %" PRIu64 " entries in %" PRIu64
			   " bytes of central directory are over the limit",
			   end.entries, end.size);
		return -EFBIG;
	}
	if (end.entries > end.size / CENTRAL_SIZE)
		return zip_refuse("the end record's count of %" PRIu64
				  " entries does not fit in the central directory",
				  end.entries);
	z->directory_at = end.offset;
	z->directory_size = end.size;
	z->n_entries = end.entries;
	return 0;
}
