/* SPDX-License-Identifier: Apache-2.0 */
#include "json.h"

#include <stdbool.h>
#include <string.h>

#include "utf8.h"

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

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
