/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/tensor_list.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/ctl.h"

static int add_tensor(void *ctx, const struct ctl_tensor *t)
{
	struct tensor_list *list = ctx;
	struct tensor *new = ctl_grow(list->list, &list->cap, list->n, sizeof(*new));

	if (!new)
		return -ENOMEM;
	list->list = new;
	new += list->n;
	new->name = strdup(t->name);
	if (!new->name)
		return -ENOMEM;
	strcpy(new->dtype, t->dtype);
	strcpy(new->shape, t->shape);
	new->data = t->data;
	list->n++;
	return 0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct tensor *)a)->name, ((const struct tensor *)b)->name);
}

int tensor_list_load(struct carton *c, const char *path, struct tensor_list *ret)
{
	int r = ctl_tensors(c, path, add_tensor, ret);

	if (ret->n)
		qsort(ret->list, ret->n, sizeof(*ret->list), by_name);
	/* no tensors, or a file that is damaged, as was reported */
	return r == -ENOENT || r == -EBADMSG ? 0 : r;
}

void tensor_list_finish(struct tensor_list *list)
{
	for (size_t i = 0; i < list->n; i++)
		free(list->list[i].name);
	free(list->list);
}
