/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/tensors.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/numbers.h"
#include "ctl/ctl.h"
#include "ctl/term.h"

#define CHEAP ((uint64_t)256 << 20)

static bool ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), k = strlen(end);

	return n > k && strcmp(s + n - k, end) == 0;
}

bool ctl_has_tensors(const struct carton_node *file)
{
	return !carton_target(file) && ends_with(carton_name(file), ".safetensors");
}

bool ctl_is_cheap(const struct carton *c, const struct carton_node *file)
{
	struct carton_storage storage;
	struct carton_stat st;

	carton_stat(file, &st);
	return st.size_known && st.size <= CHEAP && carton_storage(file, &storage) &&
	       storage.contained && !carton_is_remote(c);
}

static int tell(struct carton_node *node, ctl_tensor_fn *fn, void *ctx)
{
	char name[256];
	struct ctl_tensor t = { .name = name, .data = node };
	struct carton_stat st;

	if (!ends_with(carton_name(node), ".bin") ||
	    carton_property(node, "user.carton.dtype", t.dtype, sizeof(t.dtype)) < 0)
		return 0;
	carton_property(node, "user.carton.shape", t.shape, sizeof(t.shape));
	carton_stat(node, &st);
	t.bytes = st.size_known ? st.size : 0;
	snprintf(name, sizeof(name), "%.*s", (int)strlen(carton_name(node)) - 4, carton_name(node));
	return fn(ctx, &t);
}

int ctl_tensors(struct carton *c, const char *path, ctl_tensor_fn *fn, void *ctx)
{
	char view[4096 + sizeof(CTL_TENSOR_VIEWS) + 16];
	struct carton_node *index, *dir, *node;
	int r;

	/* this waits until the directory is generated */
	if (carton_is_bare(c))
		strcpy(view, "index.json");
	else
		snprintf(view, sizeof(view), "%s/%s/index.json", CTL_TENSOR_VIEWS, path);
	r = carton_resolve(c, view, &index);
	if (r < 0)
		return r;
	dir = carton_parent(index);
	for (size_t i = 0; r == 0 && (node = carton_child(dir, i)); i++)
		r = tell(node, fn, ctx);
	return r;
}

/* ---- a list ---- */

static int add_tensor(void *ctx, const struct ctl_tensor *t)
{
	struct tensor_list *list = ctx;
	struct ctl_tensor *new = ctl_grow(list->list, &list->cap, list->n, sizeof(*new));

	if (!new)
		return -ENOMEM;
	list->list = new;
	new += list->n;
	*new = *t;
	new->name = strdup(t->name);
	list->n += new->name != NULL;
	return new->name ? 0 : -ENOMEM;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct ctl_tensor *)a)->name, ((const struct ctl_tensor *)b)->name);
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

/* ---- sums ---- */

/* The number of elements of a shape such as "[2,3]". */
static uint64_t elements(const char *shape)
{
	uint64_t n = 1;

	for (const char *p = shape; *p; p++)
		if (*p >= '0' && *p <= '9') {
			char *end;

			n *= strtoull(p, &end, 10);
			p = end - 1;
		}
	return n;
}

int ctl_sums_add(void *ctx, const struct ctl_tensor *t)
{
	struct ctl_sums *s = ctx;
	size_t i = 0;

	s->tensors++;
	s->elements += elements(t->shape);
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
	size_t columns = 10;

	if (s->tensors == 0)
		return;
	term_style(TERM_TITLE);
	printf("\n%s in %s", term_count(s->tensors, "tensor", count), where);
	term_style(TERM_PLAIN);
	printf(": %s %s%s, %s\n", format_number(s->elements, number, sizeof(number)), noun,
	       s->elements == 1 ? "" : "s", format_size(s->bytes, size));
	qsort(s->dtypes, s->n_dtypes, sizeof(s->dtypes[0]), by_bytes);
	for (size_t i = 0; i < s->n_dtypes; i++)
		if (strlen(s->dtypes[i].name) > columns)
			columns = strlen(s->dtypes[i].name);
	for (size_t i = 0; i < s->n_dtypes; i++) {
		printf("  %-*s  %10s  ", (int)columns, s->dtypes[i].name,
		       format_size(s->dtypes[i].bytes, size));
		term_bar(s->dtypes[i].bytes, s->bytes, 20);
		printf(" %3.0f%%\n",
		       s->bytes ? (double)s->dtypes[i].bytes * 100 / (double)s->bytes : 0);
	}
}
