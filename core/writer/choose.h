/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which compression an entry gets. The answer depends on content and options only, so that the same
 * input makes the same carton.
 */
#ifndef CARTON_WRITER_CHOOSE_H
#define CARTON_WRITER_CHOOSE_H

#include "archive/container.h"
#include "base/limits.h"

enum choice {
	CHOOSE_STORE,  /* Stored */
	CHOOSE_ZSTD,   /* compressed by the writer */
	CHOOSE_COPY,   /* the stored bytes of an entry, copied from its zip file */
	CHOOSE_SHRINK, /* zstd if that makes it smaller by a twentieth, else Stored */
};

enum compression {
	COMPRESS_AUTO, /* small and large files are Stored, others CHOOSE_SHRINK */
	COMPRESS_STORE,
	COMPRESS_ZSTD,
	COMPRESS_KEEP, /* entries of a zip file as they are; other files as COMPRESS_AUTO */
};

/*
 * From this size on, COMPRESS_AUTO stores a file: a mount then opens it at once, by the chunk
 * index, and reads any part of it without the rest.
 */
#define CHOOSE_LARGE (8 * MIB)

/* Below this size it stores a file, too: some readers refuse an archive that has a zstd entry. */
#define CHOOSE_SMALL (4 * KIB)

/* Is `packed` smaller than `size` by at least a twentieth? */
bool choose_shrinks(uint64_t size, uint64_t packed);

/*
 * The choice for a file of `size` bytes; `e`: the entry of a zip file that has them, or NULL.
 * `level_given`: zstd entries are compressed anew, as their level is not known.
 */
enum choice choose(enum compression how, bool level_given, uint64_t size, const struct entry *e);

#endif
