/* SPDX-License-Identifier: Apache-2.0 */
#include "base/composed.h"

#include "base/util.h"

/* Unicode 3.12: a syllable of Hangul is composed of two or three letters. */
#define SYLLABLES 0xac00
#define LEADING 0x1100
#define VOWELS 0x1161
#define TRAILING 0x11a7
#define N_LEADING 19
#define N_VOWELS 21
#define N_TRAILING 28

/* Returns the next character, and moves *s behind it. 0: the end, or not UTF-8. */
static uint32_t next(const char **s)
{
	size_t step = utf8_step(*s, strlen(*s));
	uint32_t c = step ? utf8_code(*s, step) : 0;

	*s += step;
	return c;
}

static bool is_mark(uint32_t c)
{
	return (c >= 0x300 && c <= 0x36f) || (c >= 0x653 && c <= 0x655) || c == 0x93c ||
	       c == 0x9bc || (c >= 0x1ab0 && c <= 0x1aff) || (c >= 0x1dc0 && c <= 0x1dff) ||
	       c == 0x3099 || c == 0x309a;
}

static unsigned skip_marks(const char **s)
{
	const char *at = *s;
	unsigned n = 0;

	for (; is_mark(next(&at)); n++)
		*s = at;
	return n;
}

/* Does *s begin with the letters of the syllable `c`? If so, moves *s behind them. */
static bool is_syllable(uint32_t c, const char **s)
{
	uint32_t i = c - SYLLABLES, trailing = i % N_TRAILING;
	const char *at = *s;

	if (c < SYLLABLES || i >= N_LEADING * N_VOWELS * N_TRAILING ||
	    next(&at) != LEADING + i / (N_VOWELS * N_TRAILING) ||
	    next(&at) != VOWELS + i / N_TRAILING % N_VOWELS ||
	    (trailing && next(&at) != TRAILING + trailing))
		return false;
	*s = at;
	return true;
}

/* Can *b begin with the decomposed first character of *a? If so, moves both behind it. */
static bool skip_composed(const char **a, const char **b)
{
	const char *in_a = *a, *in_b = *b;
	uint32_t c = next(&in_a), base;

	if (c < 0x80 || is_mark(c))
		return false;
	if (is_syllable(c, b)) {
		*a = in_a;
		return true;
	}
	base = next(&in_b);
	if (!base || base == c || is_mark(base) || skip_marks(&in_b) <= skip_marks(&in_a))
		return false;
	*a = in_a;
	*b = in_b;
	return true;
}

bool composed_alike(const char *a, const char *b)
{
	bool differ = false;

	while (*a && *b) {
		const char *in_a = a, *in_b = b;
		uint32_t c = next(&in_a);

		if (!c)
			return false;
		/* a mark behind an equal letter belongs to it */
		if (c == next(&in_b) && is_mark(next(&(const char *){ in_a })) ==
						is_mark(next(&(const char *){ in_b }))) {
			a = in_a;
			b = in_b;
		} else if (skip_composed(&a, &b) || skip_composed(&b, &a)) {
			differ = true;
		} else {
			return false;
		}
	}
	return differ && !*a && !*b;
}
