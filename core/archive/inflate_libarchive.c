/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libarchive has no interface for bare Deflate data. Its streaming zip reader is fed a local header
 * that is made here, then the data. It never sees the local header of the archive, which is
 * untrusted.
 */
#include <archive.h>
#include <archive_entry.h>
#include <stdlib.h>

#include "archive/decode.h"
#include "archive/inflate.h"
#include "base/util.h"

struct inflate {
	struct inflate_input input;
	struct archive *archive;
	bool header_given;
	uint8_t header[64];
};

static int synthesize_header(struct inflate *f)
{
	static const char name[] = "x";
	uint8_t *h = f->header;

	/* APPNOTE 4.3.7, with the sizes in a zip64 extra field so that any size fits */
	memset(h, 0, 30);
	put_le32(h, 0x04034b50);
	put_le16(h + 4, 45);
	put_le16(h + 8, METHOD_DEFLATE);
	put_le32(h + 18, UINT32_MAX);
	put_le32(h + 22, UINT32_MAX);
	put_le16(h + 26, sizeof(name) - 1);
	put_le16(h + 28, 20);
	memcpy(h + 30, name, sizeof(name) - 1);
	h += 30 + sizeof(name) - 1;
	put_le16(h, 1);
	put_le16(h + 2, 16);
	put_le64(h + 4, f->input.size);
	put_le64(h + 12, f->input.stored);
	return 30 + (int)sizeof(name) - 1 + 20;
}

static la_ssize_t archive_feed(struct archive *a, void *ctx, const void **ret_block)
{
	struct inflate *f = ctx;
	ssize_t got;

	if (!f->header_given) {
		f->header_given = true;
		*ret_block = f->header;
		return synthesize_header(f);
	}
	got = f->input.feed(f->input.ctx, ret_block);
	if (got < 0) {
		archive_set_error(a, (int)-got, "cannot read");
		return ARCHIVE_FATAL;
	}
	return got;
}

static int fault(const struct inflate *f)
{
	return archive_errno(f->archive) == ENOMEM ? -ENOMEM : -EBADMSG;
}

int inflate_new(const struct inflate_input *input, struct inflate **ret)
{
	struct inflate *f = calloc(1, sizeof(*f));
	struct archive_entry *entry;

	if (!f)
		return -ENOMEM;
	f->input = *input;
	f->archive = archive_read_new();
	if (!f->archive) {
		free(f);
		return -ENOMEM;
	}
	*ret = f;
	/*
	 * no crc, since the sha256 is checked; no filters, so that libarchive detects no other
	 * format in the data
	 */
	if (archive_read_support_format_zip_streamable(f->archive) != ARCHIVE_OK ||
	    archive_read_set_options(f->archive, "zip:ignorecrc32") != ARCHIVE_OK ||
	    archive_read_open(f->archive, f, NULL, archive_feed, NULL) != ARCHIVE_OK ||
	    archive_read_next_header(f->archive, &entry) != ARCHIVE_OK)
		return fault(f);
	return 0;
}

ssize_t inflate_read(struct inflate *f, void *ret_buf, size_t n)
{
	la_ssize_t got = archive_read_data(f->archive, ret_buf, n);

	return got < 0 ? fault(f) : got;
}

size_t inflate_unused(const struct inflate *f)
{
	/* libarchive returns what it was given and does not need as an error, or asks late */
	(void)f;
	return 0;
}

const char *inflate_why(const struct inflate *f)
{
	const char *why = archive_error_string(f->archive);

	return why ? why : "damaged";
}

void inflate_free(struct inflate *f)
{
	if (!f)
		return;
	archive_read_free(f->archive);
	free(f);
}
