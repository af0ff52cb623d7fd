/* SPDX-License-Identifier: Apache-2.0 */
#include "text.h"

#include <stdbool.h>
#include <string.h>

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

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

/* Writes the character at `s`, but not one that is not UTF-8. Returns how many bytes it took. */
static size_t put_character(FILE *f, const char *s)
{
	uint32_t c;
	size_t n = utf8_decode(s, &c);

	fwrite(n ? s : REPLACEMENT, 1, n ? n : strlen(REPLACEMENT), f);
	return n ? n : 1;
}

static void put_quoted(FILE *f, const char *s, bool label)
{
	fputc('"', f);
	while (*s) {
		if (*s == '"' || *s == '\\') {
			fprintf(f, "\\%c", *s++);
		} else if (label && *s == '\n') {
			fputs("\\n", f);
			s++;
		} else if (!label && (unsigned char)*s < 0x20) {
			fprintf(f, "\\u%04x", (unsigned char)*s++);
		} else {
			s += put_character(f, s);
		}
	}
	fputc('"', f);
}

void json_string(FILE *f, const char *s)
{
	put_quoted(f, s, false);
}

void json_label(FILE *f, const char *s)
{
	put_quoted(f, s, true);
}
