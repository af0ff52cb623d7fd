/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/sums.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/numbers.h"
#include "ctl/term.h"

int ctl_sums_add(void *ctx, const struct ctl_tensor *t)
{
	struct ctl_sums *s = ctx;
	size_t i = 0;

	s->tensors++;
	s->elements += ctl_elements(t->shape);
	s->bytes += t->bytes;
	while (i < s->n_dtypes && strcmp(s->dtypes[i].name, t->dtype) != 0)
		i++;
	if (i == CTL_DTYPES)
		return 0;
	if (i == s->n_dtypes)
		strcpy(s->dtypes[s->n_dtypes++].name, t->dtype);
	s->dtypes[i].bytes += t->bytes;
	return 0;
}

/* "1.5 billion", for a number of parameters. */
static char *format_number(uint64_t n, char *ret, size_t size)
{
	static const char *const words[] = { "", " thousand", " million", " billion", " trillion" };
	double value = (double)n;
	size_t i = 0;

	while (value >= 999.95 && i + 1 < sizeof(words) / sizeof(words[0])) {
		value /= 1000;
		i++;
	}
	snprintf(ret, size, i ? "%.1f%s" : "%.0f%s", value, words[i]);
	return ret;
}

static int by_bytes(const void *a, const void *b)
{
	uint64_t x = ((const struct ctl_dtype_sum *)a)->bytes,
		 y = ((const struct ctl_dtype_sum *)b)->bytes;

	return x < y ? 1 : x > y ? -1 : 0;
}

void ctl_sums_put(const char *where, const char *noun, struct ctl_sums *s)
{
	char count[TERM_COUNT], number[48], size[SIZE_TEXT];

	if (s->tensors == 0)
		return;
	term_style(TERM_TITLE);
	printf("\n%s in %s", term_count(s->tensors, "tensor", count), where);
	term_style(TERM_PLAIN);
	printf(": %s %s%s, %s\n", format_number(s->elements, number, sizeof(number)), noun,
	       s->elements == 1 ? "" : "s", format_size(s->bytes, size));
	qsort(s->dtypes, s->n_dtypes, sizeof(s->dtypes[0]), by_bytes);
	for (size_t i = 0; i < s->n_dtypes; i++) {
		printf("  %-10s  %10s  ", s->dtypes[i].name, format_size(s->dtypes[i].bytes, size));
		term_bar(s->dtypes[i].bytes, s->bytes, 20);
		printf(" %3.0f%%\n",
		       s->bytes ? (double)s->dtypes[i].bytes * 100 / (double)s->bytes : 0);
	}
}
