/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zip's crc32 by ISA-L: several times as fast as zlib's. crc32_zlib.c is built where it is missing.
 */
#include <isa-l/crc.h>

#include "base/digest.h"

uint32_t crc32_update(uint32_t crc, const void *data, size_t n)
{
	return crc32_gzip_refl(crc, data, n);
}
