/* SPDX-License-Identifier: Apache-2.0 */
#include "numbers.h"

#include <errno.h>
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
