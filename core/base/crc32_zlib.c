/* SPDX-License-Identifier: Apache-2.0 */
/* zip's crc32 by zlib, where ISA-L is missing. */
#include <zlib.h>

#include "base/digest.h"

uint32_t crc32_update(uint32_t crc, const void *data, size_t n)
{
	return (uint32_t)crc32_z(crc, data, n);
}
