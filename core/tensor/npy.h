/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The header of a .npy file, byte for byte what numpy.save writes before the data of a C-order
 * array (numpy 1.22 to 2.x; older versions reserve no room for the first dimension to grow). The
 * data follows at a multiple of 64 bytes.
 *
 * Version 1.0 while the header's length fits 16 bits, else 2.0. Version 3.0 differs only by
 * field names that are not latin1; arrays without fields never need it.
 */
#ifndef CARTON_TENSOR_NPY_H
#define CARTON_TENSOR_NPY_H

#include <stdint.h>

#include "base/util.h"

/* The longest header, of rank MAX_TENSOR_RANK, is shorter. */
#define NPY_HEADER_MAX 2048

/*
 * Can numpy load such an array? Its size must fit int64, computed without the dimensions of 0.
 * Ranks above 32 need numpy 2, which allows 64.
 */
bool npy_can_hold(const char *descr, const uint64_t *shape, unsigned rank);

/*
 * Appends the header of an array of `descr` (numpy's own spelling: "<f4", "|i1", "<U12") and shape
 * (rank dimensions; 0 is a scalar) to `b`. Returns 0, -ENOMEM, or -EFBIG when the buffer or the
 * format cannot hold it; then the buffer is unchanged.
 */
int npy_header(const char *descr, const uint64_t *shape, unsigned rank, struct buf *b);

/*
 * The descr of an array of strings of at most `width` code points. Returns 0, or -EFBIG when
 * numpy has no such type (4 * width must be below 2^31). Width 0 gives "<U1", as in numpy.
 */
int npy_string_descr(uint64_t width, char ret_descr[16]);

#endif
