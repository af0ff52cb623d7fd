/* SPDX-License-Identifier: Apache-2.0 */
/* zlib has this, ISA-L does not. */
#include <zlib.h>

#include "base/digest.h"

uint32_t crc32_join(uint32_t first, uint32_t second, uint64_t n)
{
	return (uint32_t)crc32_combine(first, second, (z_off_t)n);
}
