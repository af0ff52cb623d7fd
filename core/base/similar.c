/* SPDX-License-Identifier: Apache-2.0 */
/* Typos: carton_similar() of log.h. */
#include <stdint.h>
#include <string.h>

#include "log.h"

/*
 * The number of characters to insert, remove or replace; names longer than the row are not
 * compared.
 */
static size_t edits(const char *a, const char *b)
{
	size_t row[32], n = strlen(b);

	if (n >= sizeof(row) / sizeof(row[0]))
		return SIZE_MAX;
	for (size_t j = 0; j <= n; j++)
		row[j] = j;
	for (size_t i = 1; *a; i++, a++) {
		size_t diagonal = row[0];

		row[0] = i;
		for (size_t j = 1; j <= n; j++) {
			size_t best = diagonal + (*a != b[j - 1]);

			diagonal = row[j];
			if (best > row[j] + 1)
				best = row[j] + 1;
			if (best > row[j - 1] + 1)
				best = row[j - 1] + 1;
			row[j] = best;
		}
	}
	return row[n];
}

bool carton_similar(const char *a, const char *b)
{
	size_t n = edits(a, b);

	return n <= 2 && 2 * n < strlen(b);
}
