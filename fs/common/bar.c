/* SPDX-License-Identifier: Apache-2.0 */
#include "common/bar.h"

void bar_put(FILE *f, uint64_t part, uint64_t whole, unsigned width, bool utf8)
{
	static const char *const eighths[] = { " ", "▏", "▎", "▍", "▌", "▋", "▊", "▉" };
	double filled = whole ? (double)part / (double)whole * width : 0;
	unsigned full, rest;

	if (filled > width)
		filled = width;
	/* a part above 0 never shows an empty bar */
	if (part > 0 && filled < 0.125)
		filled = 0.125;
	full = (unsigned)filled;
	rest = (unsigned)((filled - full) * 8);
	for (unsigned i = 0; i < width; i++)
		fputs(i < full		? (utf8 ? "█" : "#") :
		      i > full || !rest ? " " :
					  (utf8 ? eighths[rest] : "."),
		      f);
}
