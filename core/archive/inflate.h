/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decodes raw Deflate data (RFC 1951).
 *
 * There are two implementations, and a build has one of them: inflate_isal.c uses ISA-L, which is
 * about three times as fast, and inflate_zlib.c is for machines that have no ISA-L. Both give the
 * same bytes. ISA-L also decodes blocks with incomplete Huffman codes, which zlib refuses; such
 * data has one meaning, too, and the sha256 decides.
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

#include <zstd.h>

struct inflate;

/* 0 or -ENOMEM. */
int inflate_new(struct inflate **ret);

/*
 * Decodes from `in` to `out`, as far as both reach, and advances them; the next call may have other
 * buffers. Returns 1 to go on, 0 at the end of the data; -EBADMSG, with *ret_why, for damaged data;
 * -ENOMEM. At the end, in->pos is in->size unless other bytes follow the data.
 */
int inflate_step(struct inflate *f, ZSTD_inBuffer *in, ZSTD_outBuffer *out, const char **ret_why);

/* NULL-safe. */
void inflate_free(struct inflate *f);

#endif
