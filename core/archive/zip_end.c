/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a zip archive: EOCD, zip64 locator and record (APPNOTE 4.3.14 to 4.3.16). */
#include "archive/internal.h"

#include <inttypes.h>
#include <stdlib.h>

#include "archive/what.h"

/* end records in the data of the last entries: as many nested zips as find room there */
#define MAX_OTHER_ENDS 256

/* a block of bsdtar, less the one byte of it that is used at least */
#define MAX_PADDING 10239

/* The central directory, by the EOCD or the zip64 record. */
struct end {
	uint64_t entries;
	uint64_t size;
	uint64_t offset;
};

/*
 * Does an end record whose comment ends at tail[end] end the archive? bsdtar fills the last block
 * of what it writes to a pipe with zeros. Python looks for the record behind which there are at
 * most UINT16_MAX bytes.
 */
static bool ends_archive(const uint8_t *tail, size_t n, size_t end, size_t comment)
{
	size_t padding = n - end;

	if (end > n || padding > MAX_PADDING || comment + padding > UINT16_MAX)
		return false;
	while (end < n && tail[end] == 0)
		end++;
	return end == n;
}

/*
 * Finds the EOCD whose comment ends at the end of the file, or at zeros there. A second candidate,
 * or a signature behind the record, is refused: readers would disagree.
 */
static int find_eocd(const struct zip *z, const uint8_t *tail, size_t n, size_t *ret_at)
{
	size_t found = SIZE_MAX, comment;
	bool any = false;

	for (size_t i = 0; i + EOCD_SIZE <= n; i++) {
		if (tail[i] != 'P' || get_le32(tail + i) != EOCD_SIG)
			continue;
		any = true;
		comment = get_le16(tail + i + 20);
		if (!ends_archive(tail, n, i + EOCD_SIZE + comment, comment)) {
			if (found != SIZE_MAX)
				return zip_refuse(
					"the archive comment contains a second end record");
			continue;
		}
		if (found != SIZE_MAX)
			return zip_refuse("two end records both end where the archive ends");
		found = i;
	}
	if (found == SIZE_MAX && any)
		return zip_refuse(
			"data after the end record that is more than padding of %d zeros, "
			"or its comment length is wrong",
			MAX_PADDING);
	if (found == SIZE_MAX)
		return what_refuse(z->source, "is not a zip file, or was cut off: it has no end of "
					      "central directory record; was it downloaded to its "
					      "end?");
	/* also a signature near the end, where a record would not fit */
	for (size_t i = found + EOCD_SIZE; i + 4 <= n; i++)
		if (get_le32(tail + i) == EOCD_SIG)
			return zip_refuse("the archive comment contains a second end record");
	*ret_at = found;
	return 0;
}

/* Are the 4 bytes at `at` this signature? 1, 0 or an error. */
static int has_signature(const struct zip *z, uint64_t at, uint32_t signature)
{
	uint8_t found[4];
	int r;

	if (at > z->source->size - sizeof(found))
		return 0;
	r = source_pread(z->source, found, sizeof(found), at);
	return r < 0 ? r : get_le32(found) == signature;
}

/* Does the end record at tail[at] lead to a directory, or need none? 1, 0 or an error. */
static int leads_to_directory(const struct zip *z, const uint8_t *tail, size_t at)
{
	const uint8_t *eocd = tail + at;
	int r = 0;

	if (get_le16(eocd + 8) == 0 || get_le16(eocd + 10) == 0)
		return 1;
	if (at >= LOCATOR_SIZE && get_le32(eocd - LOCATOR_SIZE) == LOCATOR_SIG)
		r = has_signature(z, get_le64(eocd - LOCATOR_SIZE + 8), RECORD_SIG);
	return r ? r : has_signature(z, get_le32(eocd + 16), CENTRAL_SIG);
}

/*
 * Other end records before the real one, in the data of entries or in the directory. libzip takes
 * the one whose directory looks best. One of a nested zip is harmless: its offsets count from the
 * start of that zip, so here they do not lead to a directory.
 */
static int check_other_ends(const struct zip *z, const uint8_t *tail, size_t eocd_at)
{
	unsigned n = 0;

	for (size_t i = 0; i + 4 <= eocd_at; i++) {
		int r = 0;

		if (tail[i] != 'P' || get_le32(tail + i) != EOCD_SIG)
			continue;
		/*
		 * the offsets of a nested zip count from its own start, so they lead near the start
		 * of the archive: one request for all of them, if the archive is remote
		 */
		if (n++ == 0)
			r = source_prefetch(z->source, 0, MIN(z->source->size, ZIP_END_SEARCH), 0);
		if (r == 0)
			r = n > MAX_OTHER_ENDS ? 1 : leads_to_directory(z, tail, i);
		if (r < 0)
			return r;
		if (r > 0)
			return zip_refuse(
				"a second end record before the real one, at offset %" PRIu64,
				z->eocd_at - eocd_at + i);
	}
	return 0;
}

/*
 * Reads the zip64 record, which must directly precede its locator, agree with the EOCD and have no
 * extensible data (4.3.14.2).
 */
static int read_zip64(const struct zip *z, const uint8_t *locator, const uint8_t *eocd,
		      struct end *end, uint64_t *ret_at)
{
	uint64_t locator_at = z->eocd_at - LOCATOR_SIZE;
	uint64_t at = get_le64(locator + 8);
	uint8_t record[RECORD_SIZE];
	unsigned disks = 1;
	int r;

	/*
	 * OneDrive and Windows write that there are 0 disks. libarchive then ignores the locator,
	 * so the end record itself may not lead to a directory.
	 */
	if (get_le32(locator + 16) == 0 && get_le32(eocd + 12) == UINT32_MAX &&
	    get_le32(eocd + 16) == UINT32_MAX)
		disks = 0;
	if (get_le32(locator + 4) != 0 || get_le32(locator + 16) != disks)
		return zip_refuse("multi-disk archives are not supported (zip64 locator)");
	if (at > locator_at || locator_at - at < RECORD_SIZE)
		return zip_refuse("zip64 locator points outside of the archive");
	r = source_pread(z->source, record, sizeof(record), at);
	if (r < 0)
		return r;
	if (get_le32(record) != RECORD_SIG)
		return zip_refuse("zip64 locator does not point to a zip64 end record");
	/*
	 * a longer record could hide a second one, which readers that start at the end would find
	 */
	if (locator_at - at != RECORD_SIZE || get_le64(record + 4) != RECORD_SIZE - 12)
		return zip_refuse("zip64 end record is not of 56 bytes");
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

/* Reads the EOCD at tail[at], and the zip64 record if there is one. */
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
		/* a count of 65535 may be the real count: the directory is checked against it */
		return zip_refuse("the end record needs a zip64 record, but there is none");
	}
	if (__builtin_add_overflow(end.offset, end.size, &finish) || finish != directory_end)
		return zip_refuse("central directory of %" PRIu64 " bytes at offset %" PRIu64
				  " does not end where its end record begins, at %" PRIu64,
				  end.size, end.offset, directory_end);
	*ret = end;
	return 0;
}

int zip_has_end(struct source *source)
{
	uint64_t n = MIN(source->size, ZIP_END_SEARCH);
	char *tail = malloc(n + 1);
	int r = tail ? source_pread(source, tail, n, source->size - n) : -ENOMEM;

	if (r == 0)
		r = memmem(tail, n, "PK\5\6", 4) != NULL;
	free(tail);
	return r;
}

int zip_read_end(struct zip *z)
{
	size_t n = (size_t)MIN(z->source->size, ZIP_END_SEARCH), at = 0;
	uint8_t *tail = malloc(n + 1);
	struct end end = { 0 };
	int r;

	if (!tail)
		return -ENOMEM;
	r = source_pread(z->source, tail, n, z->source->size - n);
	if (r == 0)
		r = find_eocd(z, tail, n, &at);
	if (r == 0) {
		z->eocd_at = z->source->size - n + at;
		r = check_other_ends(z, tail, at);
	}
	if (r == 0)
		r = parse_end(z, tail, at, &end);
	free(tail);
	if (r < 0)
		return r;
	if (end.entries > MAX_ENTRIES || end.size > MAX_CENTRAL_DIRECTORY)
		return log_error(-EFBIG, NULL,
				 "refused zip: %" PRIu64 " entries in %" PRIu64
				 " bytes of central directory are over the limit",
				 end.entries, end.size);
	if (end.entries > end.size / CENTRAL_SIZE)
		return zip_refuse("the end record's count of %" PRIu64
				  " entries does not fit in the central directory",
				  end.entries);
	z->directory_at = end.offset;
	z->directory_size = end.size;
	z->n_entries = end.entries;
	return 0;
}
