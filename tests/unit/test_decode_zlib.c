/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tests of test_decode.c, with Deflate decoded by zlib, whatever the library was built with.
 */
#include "archive/inflate_zlib.c"

#include "archive/decode.c"

#include "test_decode.c"
