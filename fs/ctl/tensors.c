/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/tensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/ctl.h"

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

uint64_t ctl_elements(const char *shape)
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

static int tell(struct carton_node *node, ctl_tensor_fn *fn, void *ctx)
{
	struct ctl_tensor t = { .data = node };
	struct carton_stat st;
	char name[256];

	if (!ends_with(carton_name(node), ".bin") ||
	    carton_property(node, "user.carton.dtype", t.dtype, sizeof(t.dtype)) < 0)
		return 0;
	carton_property(node, "user.carton.shape", t.shape, sizeof(t.shape));
	carton_stat(node, &st);
	t.bytes = st.size_known ? st.size : 0;
	snprintf(name, sizeof(name), "%.*s", (int)strlen(carton_name(node)) - 4, carton_name(node));
	t.name = name;
	return fn(ctx, &t);
}

int ctl_tensors(struct carton *c, const char *path, ctl_tensor_fn *fn, void *ctx)
{
	char view[4096 + sizeof(CTL_TENSOR_VIEWS) + 16];
	struct carton_node *index, *dir, *node;
	int r;

	/* this waits until the directory is generated */
	snprintf(view, sizeof(view), "%s/%s/index.json", CTL_TENSOR_VIEWS, path);
	r = carton_resolve(c, view, &index);
	if (r < 0)
		return r;
	dir = carton_parent(index);
	for (size_t i = 0; r == 0 && (node = carton_child(dir, i)); i++)
		r = tell(node, fn, ctx);
	return r;
}
