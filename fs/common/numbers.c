/* SPDX-License-Identifier: Apache-2.0 */
#include "common/numbers.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool parse_number(const char *text, int base, unsigned long max, unsigned long *ret)
{
	char *end;
	unsigned long n;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	n = strtoul(text, &end, base);
	if (errno || *end || n > max)
		return false;
	*ret = n;
	return true;
}

bool parse_size(const char *text, uint64_t *ret)
{
	static const char units[] = "KMGT";
	char *end;
	unsigned long long n;
	const char *unit;
	unsigned shift = 0;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	n = strtoull(text, &end, 10);
	unit = *end ? strchr(units, *end) : NULL;
	if (unit) {
		shift = 10 * (unsigned)(unit - units + 1);
		end++;
	}
	if (errno || *end || n > (UINT64_MAX >> 1) >> shift)
		return false;
	*ret = (uint64_t)n << shift;
	return true;
}

char *format_size(uint64_t bytes, char ret[SIZE_TEXT])
{
	static const char units[] = "KMGTPE";
	double value = (double)bytes;
	size_t unit = 0;

	if (bytes < 1024) {
		snprintf(ret, SIZE_TEXT, "%" PRIu64 " B", bytes);
		return ret;
	}
	/* 1023.96 would be shown as 1024.0 */
	for (value /= 1024; value >= 1023.95 && units[unit + 1]; unit++)
		value /= 1024;
	snprintf(ret, SIZE_TEXT, "%.1f %ciB", value, units[unit]);
	return ret;
}

char *format_duration(double seconds, char ret[DURATION_TEXT])
{
	uint64_t s = seconds < 1e9 ? (uint64_t)seconds : 1000000000;

	if (seconds < 1)
		snprintf(ret, DURATION_TEXT, "%.1f s", seconds);
	else if (s < 60)
		snprintf(ret, DURATION_TEXT, "%" PRIu64 " s", s);
	else if (s < 3600)
		snprintf(ret, DURATION_TEXT, "%" PRIu64 " min %" PRIu64 " s", s / 60, s % 60);
	else
		snprintf(ret, DURATION_TEXT, "%" PRIu64 " h %" PRIu64 " min", s / 3600,
			 s / 60 % 60);
	return ret;
}
