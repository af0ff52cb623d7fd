/* SPDX-License-Identifier: Apache-2.0 */
#include "utf8.h"

size_t utf8_decode(const char *s, uint32_t *ret)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	const unsigned char *b = (const unsigned char *)s;
	size_t n = b[0] < 0x80 ? 1 : b[0] < 0xc0 ? 0 : b[0] < 0xe0 ? 2 : b[0] < 0xf0 ? 3 : 4;
	uint32_t c = n == 1 ? b[0] : n ? b[0] & (0x7f >> n) : 0;

	for (size_t i = 1; i < n; i++) {
		if ((b[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (b[i] & 0x3f);
	}
	if (n == 0 || c < least[n] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
		return 0;
	*ret = c;
	return n;
}
