/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "toml/internal.h"
#include "base/util.h"

#define FRACTION_DIGITS 9 /* nanoseconds; TOML: further digits are truncated, not rounded */

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* ---- dates and times: RFC 3339 ---- */

/* Reads exactly n digits with a value from `min` to `max` and advances past them. */
static bool number(char **s, int n, int min, int max, int *ret)
{
	int v = 0;

	for (; n; n--, (*s)++) {
		if (!is_digit(**s))
			return false;
		v = v * 10 + (**s - '0');
	}
	*ret = v;
	return v >= min && v <= max;
}

static bool skip(char **s, char c)
{
	if (**s != c)
		return false;
	(*s)++;
	return true;
}

static int days_of(int year, int month)
{
	if (month == 2)
		return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) ? 29 : 28;
	return month == 4 || month == 6 || month == 9 || month == 11 ? 30 : 31;
}

static bool date(char **s)
{
	int year, month, day;

	return number(s, 4, 0, 9999, &year) && skip(s, '-') && number(s, 2, 1, 12, &month) &&
	       skip(s, '-') && number(s, 2, 1, days_of(year, month), &day);
}

/* Second 60 is always accepted: valid leap seconds are known only from a table. */
static bool time_of_day(char **s)
{
	int v, n = 0;
	char *to;

	if (!number(s, 2, 0, 23, &v) || !skip(s, ':') || !number(s, 2, 0, 59, &v) ||
	    !skip(s, ':') || !number(s, 2, 0, 60, &v))
		return false;
	if (!skip(s, '.'))
		return true;
	for (to = *s; is_digit(**s); (*s)++, n++)
		if (n < FRACTION_DIGITS)
			*to++ = **s;
	memmove(to, *s, strlen(*s) + 1);
	*s = to;
	return n > 0;
}

static bool offset(char **s)
{
	int v;

	if (**s == 'Z' || **s == 'z') {
		*(*s)++ = 'Z';
		return true;
	}
	return (skip(s, '+') || skip(s, '-')) && number(s, 2, 0, 23, &v) && skip(s, ':') &&
	       number(s, 2, 0, 59, &v);
}

static bool date_time(char *text, struct toml_value *ret)
{
	char *s = text;

	ret->str = text;
	if (text[2] == ':') {
		ret->type = TOML_LOCAL_TIME;
		return time_of_day(&s) && !*s;
	}
	ret->type = TOML_LOCAL_DATE;
	if (!date(&s))
		return false;
	if (!*s)
		return true;
	if (*s != 'T' && *s != 't' && *s != ' ')
		return false;
	*s++ = 'T';
	ret->type = TOML_LOCAL_DATETIME;
	if (!time_of_day(&s))
		return false;
	if (!*s)
		return true;
	ret->type = TOML_OFFSET_DATETIME;
	return offset(&s) && !*s;
}

/* ---- numbers ---- */

/* Advances past digits of `base` with single underscores between; copies the digits to *to. */
static bool digits(char **s, int base, char **to)
{
	for (;; (*s)++) {
		if (hex_value(**s) >= base)
			return false;
		while (hex_value(**s) < base)
			*(*to)++ = *(*s)++;
		if (**s != '_')
			return true;
	}
}

static bool integer(const char *s, int base, bool negative, int64_t *ret)
{
	int64_t v = 0;

	for (; *s; s++) /* as negative: INT64_MIN has no positive counterpart */
		if (__builtin_mul_overflow(v, base, &v) ||
		    __builtin_sub_overflow(v, hex_value(*s), &v))
			return false;
	return !(negative ? __builtin_add_overflow(v, 0, ret) : __builtin_sub_overflow(0, v, ret));
}

static const char *based(char *text, int base, struct toml_value *ret)
{
	char *s = text + 2, *to = text;

	if (!digits(&s, base, &to) || *s)
		return "not a number";
	*to = '\0';
	ret->type = TOML_INTEGER;
	return integer(text, base, false, &ret->integer) ? NULL : "an integer beyond 64 bits";
}

static const char *decimal(char *text, locale_t c_locale, struct toml_value *ret)
{
	char *s = text, *to = text, *first;
	bool real = false;

	if (*s == '+' || *s == '-')
		to++, s++;
	first = s;
	if (!digits(&s, 10, &to))
		return "not a value";
	if (*first == '0' && to - first > 1)
		return "a number with a leading zero";
	if (*s == '.') {
		real = true;
		*to++ = *s++;
		if (!digits(&s, 10, &to))
			return "not a number";
	}
	if (*s == 'e' || *s == 'E') {
		real = true;
		*to++ = *s++;
		if (*s == '+' || *s == '-')
			*to++ = *s++;
		if (!digits(&s, 10, &to))
			return "not a number";
	}
	if (*s)
		return "not a number";
	*to = '\0';
	ret->type = real ? TOML_FLOAT : TOML_INTEGER;
	if (real)
		ret->real = strtod_l(text, NULL, c_locale);
	else if (!integer(first, 10, *text == '-', &ret->integer))
		return "an integer beyond 64 bits";
	return NULL;
}

/* true, false, inf and nan. */
static bool word(const char *text, struct toml_value *ret)
{
	const char *s = text + (*text == '+' || *text == '-');

	if (!strcmp(text, "true") || !strcmp(text, "false")) {
		ret->type = TOML_BOOL;
		ret->boolean = *text == 't';
		return true;
	}
	if (!strcmp(s, "inf"))
		ret->real = __builtin_inf();
	else if (!strcmp(s, "nan"))
		ret->real = __builtin_nan("");
	else
		return false;
	ret->type = TOML_FLOAT;
	if (*text == '-')
		ret->real = -ret->real;
	return true;
}

const char *toml_scalar_parse(char *text, size_t n, locale_t c_locale, struct toml_value *ret)
{
	struct toml_value v = { .line = ret->line };
	const char *why = NULL;

	if ((n > 2 && text[2] == ':') || (n > 4 && text[4] == '-' && is_digit(text[3]) &&
					  is_digit(text[2]) && is_digit(text[1]))) {
		if (date_time(text, &v))
			v.len = strlen(text);
		else
			why = "not a date or time";
	} else if (text[0] == '0' && text[1] == 'x') {
		why = based(text, 16, &v);
	} else if (text[0] == '0' && text[1] == 'o') {
		why = based(text, 8, &v);
	} else if (text[0] == '0' && text[1] == 'b') {
		why = based(text, 2, &v);
	} else if (!word(text, &v)) {
		why = decimal(text, c_locale, &v);
	}
	if (!why)
		*ret = v;
	return why;
}
