/* SPDX-License-Identifier: Apache-2.0 */
/* The inputs and outputs by their names; of several with one name, the first that was declared. */
#include "format/internal.h"

#include <stdlib.h>

#include "base/util.h"

static int by_name(const void *a, const void *b)
{
	const struct meta_tensor *x = *(const struct meta_tensor *const *)a;
	const struct meta_tensor *y = *(const struct meta_tensor *const *)b;
	int c = strcmp(x->name, y->name);

	return c ? c : (x > y) - (x < y);
}

int meta_sort_names(struct meta *m, const struct meta_tensor *list, size_t n,
		    struct meta_names *ret)
{
	ret->list = meta_alloc(m, n * sizeof(*ret->list));
	if (!ret->list)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		if (list[i].name)
			ret->list[ret->n++] = &list[i];
	qsort(ret->list, ret->n, sizeof(*ret->list), by_name);
	return 0;
}

const struct meta_tensor *meta_find(const struct meta_names *names, const char *name)
{
	size_t lo = 0, hi = names->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (strcmp(names->list[mid]->name, name) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < names->n && strcmp(names->list[lo]->name, name) == 0 ? names->list[lo] : NULL;
}
