/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decodes raw Deflate data (RFC 1951).
 *
 * There are two implementations, and a build has one of them: inflate_isal.c uses ISA-L, which is
 * about three times as fast, and inflate_libarchive.c is for machines that have no ISA-L. Both give
 * the same bytes. ISA-L also decodes blocks with incomplete Huffman codes, which the other one,
 * zlib in the end, refuses; such data has one meaning, too, and the sha256 decides.
 *
 * Why that is not checked: ISA-L decodes up to 64 KiB ahead and shows no header of a block but the
 * last, and the start of a block is known only after the block before it was decoded. So all of the
 * data would have to be decoded twice. Measured on 32 MiB of machine code and of text: zlib in
 * addition takes 1.6 to 2.4 times as long as ISA-L, a scanner that follows the codes and writes
 * nothing 1.5 to 2.3 times: a first open would take three times as long.
 *
 * Threads: each struct inflate is used by one thread at a time.
 */
#ifndef CARTON_ARCHIVE_INFLATE_H
#define CARTON_ARCHIVE_INFLATE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct inflate;

struct inflate_input {
	/*
	 * Returns the next bytes of the data, which stay valid until the next call: their number, 0
	 * at the end, or -errno.
	 */
	ssize_t (*feed)(void *ctx, const void **ret_block);
	void *ctx;
	uint64_t stored, size; /* the sizes of the entry before and after decoding */
};

/*
 * Makes a decoder. 0, -ENOMEM, or an error of inflate_read(). *ret is set on failure too, for
 * inflate_why(), but not with -ENOMEM.
 */
int inflate_new(const struct inflate_input *input, struct inflate **ret);

/*
 * Decodes the next `n` bytes; fewer only at the end of the data. -EBADMSG for damaged or truncated
 * data, -ENOMEM, or any error when feed() failed.
 */
ssize_t inflate_read(struct inflate *f, void *ret_buf, size_t n);

/* How many bytes that feed() has returned come after the end of the data. */
size_t inflate_unused(const struct inflate *f);

/* The fault of the data, after -EBADMSG. Valid until inflate_free(). */
const char *inflate_why(const struct inflate *f);

/* `f` may be NULL. */
void inflate_free(struct inflate *f);

#endif
