/* SPDX-License-Identifier: Apache-2.0 */
#include "mount/order.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DIGITS 18 /* of a number in a name */

struct carton_node *order_next(const struct carton *c, struct carton_node *node, unsigned hops)
{
	struct carton_stat st;

	for (unsigned i = 0; node && i <= hops; i++) {
		node = carton_next(c, node);
		if (!node)
			break;
		carton_stat(node, &st);
		if (st.kind == CARTON_FILE)
			return node;
	}
	return NULL;
}

/* The file whose name has one more than the number at [first, end). */
static struct carton_node *next_at(const struct carton_node *node, size_t first, size_t end)
{
	const char *name = carton_name(node);
	char text[NAME_MAX + 2];
	struct carton_node *next;
	struct carton_stat st;
	int n;

	if (end - first > MAX_DIGITS)
		return NULL;
	n = snprintf(text, sizeof(text), "%.*s%0*llu%s", (int)first, name, (int)(end - first),
		     strtoull(name + first, NULL, 10) + 1, name + end);
	if (n >= (int)sizeof(text) || carton_lookup(carton_parent(node), text, &next) < 0)
		return NULL;
	carton_stat(next, &st);
	return st.kind == CARTON_FILE ? next : NULL;
}

struct carton_node *order_next_number(const struct carton_node *node)
{
	const char *name = carton_name(node);
	struct carton_node *next = NULL;
	size_t first, end = strlen(name);

	for (; end > 0 && !next; end = first) {
		while (end > 0 && !isdigit((unsigned char)name[end - 1]))
			end--;
		for (first = end; first > 0 && isdigit((unsigned char)name[first - 1]);)
			first--;
		if (first < end)
			next = next_at(node, first, end);
	}
	return next;
}
