/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The compression methods of the carton format: Stored (0), Deflate (8) and zstd (93).
 *
 * The only file that knows libarchive and libzstd. libarchive decodes Deflate: it is fed a local
 * header made here from the validated central record, then exactly the compressed bytes, never the
 * archive's own local header, which is attacker's text. zstd goes to libzstd itself, because
 * libarchive before 3.8 fails on valid zstd entries.
 */
#ifndef CARTON_ARCHIVE_DECODE_H
#define CARTON_ARCHIVE_DECODE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/source.h"

enum decode_method {
	METHOD_STORED = 0,
	METHOD_DEFLATE = 8,
	METHOD_ZSTD = 93,
};

/* Is it one of the three? */
bool decode_knows(unsigned method);

/* "stored", "deflate", "zstd", else "unknown". */
const char *decode_name(unsigned method);

/*
 * The decoded bytes of `in` (taken over, also on failure), which holds `stored` bytes that must
 * decode to exactly `size` bytes and leave none. `name` is for the log and must live as long.
 *
 * Reading gives -EBADMSG for data that is damaged, too short, too long or followed by more;
 * -EOPNOTSUPP for a zstd frame whose window is over MAX_ZSTD_WINDOW_LOG or that needs a dictionary;
 * -ENOMEM; or what `in` gives.
 */
int decode_open(struct stream *in, unsigned method, uint64_t stored, uint64_t size,
		const char *name, struct stream **ret);

#endif
