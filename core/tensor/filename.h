/* SPDX-License-Identifier: Apache-2.0 */
/*
 * File names for tensor names, which may be any text.
 *
 * Percent-encoded are '%', '/', control characters (also NUL) and all leading dots. An empty name
 * becomes "%~empty". A name that gets too long is cut, and its sha256 follows: START%~HEX.
 *
 * No two files of one view have the same name:
 * - The encoding is reversible, so two names that are not cut have different encodings. "%~" is in
 * no
 *   encoding, so a cut name equals none of them; two cut ones differ in their sha256.
 * - Plain tensors give ENC.bin and ENC.npy.
 * - Nested tensors give a directory. If its name would end in ".bin", ".npy" or ".json", that dot
 * is
 *   encoded too, still reversibly. So no directory has one of these suffixes, and every file does.
 * - index.json ends in ".json", which no tensor's file does.
 */
#ifndef CARTON_TENSOR_FILENAME_H
#define CARTON_TENSOR_FILENAME_H

#include <stdbool.h>
#include <stddef.h>

/* An encoded name with its NUL. With ".bin" it has at most 255 bytes. */
#define TENSOR_FILENAME_SIZE (255 - 4 + 1)

/*
 * Makes the name of a tensor's files without the suffix, or of the directory of a nested one. 0;
 * -ENOMEM or -EIO when hashing a long name failed. Any thread.
 */
int tensor_filename(const char *name, size_t n, bool nested, char ret[TENSOR_FILENAME_SIZE]);

#endif
