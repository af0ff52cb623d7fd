/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensor names, which may be any text, as file names.
 *
 * Percent-encoded are '%', '/', control characters (NUL with them) and all leading dots; the
 * rest stays as it is. A name that is empty becomes "%~empty"; one that gets too long is cut,
 * and its sha256 follows: START%~HEX.
 *
 * No two files of one view collide, whatever the names:
 * - Encoding can be undone (every '%' begins two hex digits of a byte), so two names that are not
 *   shortened have two encodings. "%~" is in no encoding, so a shortened name is none of them;
 *   two shortened ones differ in their sha256.
 * - Plain tensors give ENC.bin and ENC.npy: two suffixes, each with one file per encoding.
 * - Nested tensors give a directory. One whose name would end in ".bin", ".npy" or ".json"
 *   has that dot encoded too, which can be undone as well; so no directory ends in one of these,
 *   and all files do: ENC.bin, ENC.npy and index.json.
 * - index.json ends in ".json", which no tensor's file does.
 */
#ifndef CARTON_TENSOR_FILENAME_H
#define CARTON_TENSOR_FILENAME_H

#include <stdbool.h>
#include <stddef.h>

/* Room for an encoded name with its NUL: with ".bin" it still is a component of 255 bytes. */
#define TENSOR_FILE_NAME_SIZE (255 - 4 + 1)

/*
 * The name of a tensor's files without their suffix, or of a nested one's directory. Returns 0, or
 * -ENOMEM or -EIO when the sha256 of a long name could not be made.
 */
int tensor_file_name(const char *name, size_t n, bool nested, char ret[TENSOR_FILE_NAME_SIZE]);

#endif
